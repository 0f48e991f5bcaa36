"""Are the labels identified? Warnings of `TopDownMLE` beside how far its labels are below exact Bayes.

    python analyses/label_stability.py [--data DATA] [--out DIR] [--seed 0] [--sets 40] [--items 10000]
        [--families TG Tree condInd]

Sets are drawn anew with the true parameters of the authors' sets. A fit is bad if its accuracy is more than 2 points
below that of the exact posterior; a good warning flags the bad ones, and none where the chain contains the truth.
Beside the present rule for the number of hidden units is the one that was used before, BIC alone. Finished sets are
kept in the results' folder and not done again.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import Dataset, simulate
from latentens.inference.stability import UNSTABLE
from latentens.methods import TopDownMLE
from latentens.methods.base import Fit
from latentens.runtime.progress import track_late

BAD = 0.02
"""An accuracy this far below exact Bayes is bad."""


def judge(known: Dataset, items: int, key: jax.Array) -> dict[str, float]:
    """How good a fit to a new set with the parameters of another is, and what it says of itself."""
    assert known.model is not None
    data_key, fit_key = jax.random.split(key)
    dataset = simulate(known.model, items, key=data_key, params=known.params)
    fit = TopDownMLE().fit(dataset.votes, key=fit_key)
    by_bic = fit.diagnostics["bic_by_hidden_units"]
    units, before = _units(fit), min(by_bic, key=by_bic.get)
    # The random key of a size is its own, so that this is the fit that BIC would have kept.
    other = fit if before == units else TopDownMLE(num_hidden=before).fit(dataset.votes, key=fit_key)
    exact = dataset.bayes_posterior()
    assert exact is not None
    return {
        "exact": float(np.mean(exact.argmax(axis=1) == dataset.labels)),
        "accuracy": float(np.mean(fit.labels == dataset.labels)),
        "accuracy by BIC": float(np.mean(other.labels == dataset.labels)),
        "units": units,
        "units by BIC": before,
        "label_change": fit.diagnostics["label_change"],
    }


def _units(fit: Fit) -> int:
    """Number of hidden units of a chain."""
    sizes = fit.diagnostics["architecture"]
    return sizes[1] if len(sizes) > 2 else 0


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 40,
    items: int = 10_000,
    families: tuple[str, ...] = ("TG", "Tree", "condInd"),
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    kept, key = out / f"label_stability_{items}_{seed}.json", jax.random.key(seed)
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for family in families:
        known = known_set(family, data, items)
        for number in track_late(range(sets), family):
            if (name := f"{family}/{number}") not in done:
                done[name] = {"family": family} | judge(known, items, jax.random.fold_in(key, number))
                kept.write_text(json.dumps(done))
    frame = pd.DataFrame.from_dict(done, orient="index")
    frame["loss"], frame["loss by BIC"] = frame["exact"] - frame["accuracy"], frame["exact"] - frame["accuracy by BIC"]
    frame["bad"], frame["flagged"] = frame["loss"] > BAD, frame["label_change"] > UNSTABLE
    frame["missed"] = frame["bad"] & ~frame["flagged"]
    columns: dict[str, str | list[str]] = dict.fromkeys(("exact", "accuracy", "accuracy by BIC"), "mean")
    columns |= dict.fromkeys(("loss", "loss by BIC"), "max") | dict.fromkeys(("bad", "flagged", "missed"), "sum")
    table = frame.groupby("family", sort=False).agg({"units": "size", **columns}).rename(columns={"units": "sets"})
    write(out, "label_stability_sets", table=frame)
    write(out, "label_stability", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
