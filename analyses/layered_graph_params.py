"""The layered graph of the paper's LG sets, estimated: its parameters are the only ones that the authors did not keep.

    python analyses/layered_graph_params.py --data ROOT [--out DIR] [--starts 0] [--max-iterations 600]

`LayeredGraph` 15-5-5-1 is fitted by exact maximum likelihood to votes *and* known labels of all LG sets that are there,
one set after the other held back as a check. The package keeps the result, in `datasets/published/shaham_2016.json`.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import paper_sets, run, write

from latentens.datasets import Dataset
from latentens.errors import DataNotFoundError
from latentens.methods import MaximumLikelihood, TopDownMLE
from latentens.methods.base import Fit
from latentens.methods.top_down_mle import chain_start
from latentens.models import LayeredGraph
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes

DIGITS = 6


def estimate(sets: list[Dataset], starts: int, max_iterations: int, key: jax.Array) -> Fit:
    """The graph that makes votes and labels of these sets most likely, from the optimum of a chain on each set."""
    votes = Votes.from_matrix(np.concatenate([dataset.votes.matrix for dataset in sets]), num_classes=2)
    labels, model = np.concatenate([dataset.labels for dataset in sets]), LayeredGraph()
    chains = [TopDownMLE(num_hidden=5, starts=starts).fit(dataset.votes, key=key) for dataset in sets]
    initial = [chain_start(model, chain.params) for chain in chains]
    method = MaximumLikelihood(model, starts=0, warm=(), initial=initial, max_iterations=max_iterations, tolerance=1e-6)
    return method.fit(votes, key=key, gold=labels)


def keep(fit: Fit, out: Path) -> None:
    """Write the parameters, rounded, with the paper's prevalence."""
    known = {name: np.round(value, DIGITS) for name, value in fit.params.items()}
    weights = {name: value / value.sum(-1, keepdims=True) for name, value in known.items() if name.endswith("_weight")}
    out.mkdir(parents=True, exist_ok=True)
    kept = {name: value.tolist() for name, value in (known | weights | {"prevalence": np.array(0.5)}).items()}
    (out / "layered_graph_params.json").write_text(json.dumps(kept))


def main(data: Path | None, out: Path, seed: int, starts: int = 0, max_iterations: int = 600) -> pd.DataFrame:
    sets, key = paper_sets("LG", data) if data else [], jax.random.key(seed)
    if not sets:
        raise DataNotFoundError("the LG sets are read from the authors' files; say where they are with --data")
    rows = []
    for held_back in (None, *sets) if len(sets) > 1 else (None,):
        used = [dataset for dataset in sets if dataset is not held_back]
        fit = estimate(used, starts, max_iterations, key)
        if held_back is None:
            keep(fit, out)
        for dataset in sets:
            accuracy = balanced_accuracy(dataset.labels, fit.predict(dataset.votes).argmax(axis=1))
            names = " + ".join(each.name for each in used)
            found = {key: fit.diagnostics[key] for key in ("log_likelihood", "gradient", "iterations")}
            rows.append({"fitted to": names, "scored on": dataset.name, "balanced_accuracy": 100 * accuracy} | found)
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows).set_index(["fitted to", "scored on"])
    write(out, "layered_graph_params", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
