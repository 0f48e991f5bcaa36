"""Which model predicts unseen votes best: the true one? And are its labels the best?

    python analyses/model_choice.py [--data DATA] [--out DIR] [--seed 0] [--sets 2] [--items 3000] [--folds 2]
        [--families condInd Tree LG TG] [--real magic/1 magic/2 S1]

Sets of the paper's four families are drawn anew; on each, every model is fitted to a part of the items and judged by
the log-likelihood of the others. The simplest model is chosen that is not clearly behind the best. The confusion table
counts how often each one is; beside it is the accuracy of its labels and of exact Bayes. On real sets (with --data)
there is no true model, only labels: the choice and its accuracy are reported beside those of the model with the best
labels. Finished sets are not done again.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import find, run, write

from latentens.checks.held_out import MethodChoice, PredictiveRanking, held_out_log_likelihood
from latentens.datasets import PAPER_MODELS, Dataset, simulate_paper
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

CLEARLY = 2.0
"""A model is clearly behind if it is so by more than this many standard errors."""

TRUE = dict(zip(PAPER_MODELS, MODELS, strict=True))
"""The true model of each family: condInd, Tree, LG, TG."""


def judge(dataset: Dataset, folds: int, seed: int) -> dict[str, dict[str, float]]:
    """The held-out log-likelihood of each model, its error behind the best, and the accuracy of its labels."""
    key, known = jax.random.key(seed), dataset.labels >= 0
    densities = {
        name: held_out_log_likelihood(make, dataset.votes, key=key, folds=folds) for name, make in MODELS.items()
    }
    table = PredictiveRanking(densities).table
    # of simulated sets only the labels of the chosen model matter: they are set beside those of exact Bayes
    wanted = [_choice(-table["difference"], table["difference_error"])] if dataset.model is not None else list(MODELS)
    accuracy = dict.fromkeys(MODELS, np.nan)
    for name in wanted:
        method = made if isinstance(made := MODELS[name], Method) else made(dataset.votes)
        labels = method.fit(dataset.votes, key=key).codes
        accuracy[name] = float(np.mean(labels[known] == dataset.labels[known]))
    return {
        name: {"elpd": row.elpd, "behind": -row.difference, "error": row.difference_error, "accuracy": accuracy[name]}
        for name, row in table.iterrows()
    }


def _choice(behind: pd.Series, error: pd.Series) -> str:
    """The simplest model that is not clearly behind the best: `TreeMLE` without groups is Dawid & Skene's, for one."""
    return next(name for name in MODELS if behind[name] <= CLEARLY * error[name])


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 3000,
    folds: int = 2,
    families: tuple[str, ...] = ("condInd", "Tree", "LG", "TG"),
    real: tuple[str, ...] = ("magic/1", "magic/2"),
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
    of_real = [
        {"set": name, "model": model, **figures}
        for name, found in done.items()
        if name.partition("/")[0] not in TRUE
        for model, figures in found["models"].items()
    ]
    if of_real:
        write(out, "model_choice_real", table=pd.DataFrame(of_real).set_index(["set", "model"]))
    write(out, "model_choice", table=table)
    return table


def _record(name: str, found: dict) -> dict:
    """The chosen model of one set, and the one with the best labels where all are known."""
    models = pd.DataFrame(found["models"]).T
    chosen = _choice(models["behind"], models["error"])
    accuracy = models["accuracy"]
    most_right = accuracy.idxmax() if accuracy.notna().all() else ""
    return {
        "set": name,
        "family": name.partition("/")[0],
        "chosen": chosen,
        "margin": models.at[chosen, "elpd"] - models["elpd"].drop(chosen).max(),
        "chosen accuracy": accuracy[chosen],
        "exact": found["exact"],
        "best labels": most_right,
        "best accuracy": accuracy.get(most_right, np.nan),
    }


if __name__ == "__main__":
    run(main, __doc__)
