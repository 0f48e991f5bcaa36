"""Which model predicts unseen votes best: the true one? And are its labels the best?

    python analyses/model_choice.py [--data DATA] [--out DIR] [--seed 0] [--sets 20] [--items 3000] [--folds 2]
        [--families condInd Tree LG TG] [--real Magic/1 Magic/2 S1]

Sets of the paper's four families are drawn anew; on each, every model is fitted to a part of the items and judged by
the log-likelihood of the others. The confusion table counts how often each model is chosen; beside it is the accuracy
of the chosen model's labels and of exact Bayes. On real sets (with --data) there is no true model, only labels: the
choice and its accuracy are reported beside those of the model with the best labels. Finished sets are not done again.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import find, run, write

from latentens.datasets import PAPER_MODELS, Dataset, simulate_paper
from latentens.evaluation.predictive import MethodChoice, PredictiveRanking, held_out_log_likelihood
from latentens.methods import DawidSkeneEM, MaximumLikelihood, TopDownMLE, TreeMLE
from latentens.methods.base import Method
from latentens.models import TruncatedGaussian
from latentens.runtime.progress import track_late

MODELS: dict[str, MethodChoice] = {
    "DawidSkene": DawidSkeneEM(),
    "Tree": TreeMLE(),
    "TopDown": TopDownMLE(num_hidden=5, starts=2),
    "TruncatedGaussian": lambda votes: MaximumLikelihood(TruncatedGaussian(votes.num_voters), starts=2),
}
"""The true models of the families, the chain of hidden units in place of the layered graph; simpler ones first."""

TRUE = dict(zip(PAPER_MODELS, MODELS, strict=True))
"""The true model of each family: condInd, Tree, LG, TG."""


def judge(dataset: Dataset, folds: int, seed: int) -> dict[str, dict[str, float]]:
    """The held-out log-likelihood of each model, its error behind the best, and the accuracy of its labels."""
    key, known = jax.random.key(seed), dataset.labels >= 0
    densities = {
        name: held_out_log_likelihood(make, dataset.votes, key=key, folds=folds) for name, make in MODELS.items()
    }
    table = PredictiveRanking(densities).table
    accuracy = {}
    for name, make in MODELS.items():
        method = make if isinstance(make, Method) else make(dataset.votes)
        labels = method.fit(dataset.votes, key=key).labels
        accuracy[name] = float(np.mean(labels[known] == dataset.labels[known]))
    return {
        name: {"elpd": row.elpd, "behind": -row.difference, "error": row.difference_error, "accuracy": accuracy[name]}
        for name, row in table.iterrows()
    }


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 20,
    items: int = 3000,
    folds: int = 2,
    families: tuple[str, ...] = ("condInd", "Tree", "LG", "TG"),
    real: tuple[str, ...] = ("Magic/1", "Magic/2", "S1"),
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "model_choice.json"
    done = json.loads(kept.read_text()) if kept.exists() else {}
    wanted = [(family, number) for number in range(sets) for family in families]
    datasets = [(f"{family}/{items}/{number}", (family, number)) for family, number in wanted]
    for name, where in track_late([*datasets, *((found.name, found) for found in find(real, data))], "Choosing"):
        if name not in done:
            dataset = where if isinstance(where, Dataset) else simulate_paper(where[0], 1000 + where[1], items)
            exact = dataset.bayes_posterior()
            best = np.nan if exact is None else float(np.mean(exact.argmax(axis=1) == dataset.labels))
            done[name] = {"models": judge(dataset, folds, seed), "exact": best}
            kept.write_text(json.dumps(done))
    records = [_record(name, found) for name, found in done.items()]
    frame = pd.DataFrame(records)
    simulated = frame[frame["family"].isin(TRUE)]
    table = pd.crosstab(simulated["family"], simulated["chosen"]).join(
        simulated.groupby("family")[["chosen accuracy", "exact", "margin"]].mean()
    )
    write(out, "model_choice_sets", table=frame)
    write(out, "model_choice", table=table)
    return table


def _record(name: str, found: dict) -> dict:
    """The chosen model of one set; models that say the same are told apart by their order, simpler ones first."""
    models, order = found["models"], list(MODELS)
    best = max(value["elpd"] for value in models.values())
    chosen = min((one for one in models if models[one]["elpd"] > best - 1e-6), key=order.index)
    others = [value["elpd"] for one, value in models.items() if one != chosen]
    most_right = max(models, key=lambda one: models[one]["accuracy"])
    return {
        "set": name,
        "family": name.partition("/")[0],
        "chosen": chosen,
        "margin": models[chosen]["elpd"] - max(others),
        "chosen accuracy": models[chosen]["accuracy"],
        "exact": found["exact"],
        "best labels": most_right,
        "best accuracy": models[most_right]["accuracy"],
    }


if __name__ == "__main__":
    run(main, __doc__)
