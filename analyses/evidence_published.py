"""Evidence without labels on two published sets of votes, beside what was published about them.

    python analyses/evidence_published.py [--out DIR] [--seed 0] [--draws 1000]

Anaesthetists (Dawid & Skene 1979): leave-one-out predictive densities of Dawid & Skene's and of the class-conditional
model with the priors of the R package rater, in this package and by ArviZ, beside those that rater prints; once more
with one vote of observer 1 on patient 7 changed from 2 to 1, with which other figures of rater agree too. Dentists
(Espeland & Handelman 1989): checks of fitted programs by vote counts, rates and agreement.
"""

from dataclasses import replace
from pathlib import Path

import arviz_stats
import jax
import numpy as np
import pandas as pd
from common import run, write

from latentens import check_fit, compare
from latentens.checks import PredictiveRanking
from latentens.comparison import data_trees
from latentens.datasets import Dataset, load
from latentens.methods import MaximumLikelihood, Nuts
from latentens.models import ClassConditional, DawidSkene, ItemDifficulty

PUBLISHED = {"Dawid-Skene": (-234.1, 17.0), "class-conditional": (-245.8, 18.1), "difference": (-11.7, 3.2)}
"""elpd and its standard error by leave-one-out, R Journal RJ-2023-064."""

RIGHT, WRONG = 4.8, 3.2 / 3
"""Concentrations of rater's priors: eight votes, a share of .6 right, the others spread evenly."""


def changed(dataset: Dataset) -> Dataset:
    """The votes with one of observer 1 on patient 7 changed from the second class to the first."""
    votes = dataset.votes
    item, voter, vote = votes.triplets
    patient, observer = list(map(str, votes.item_names)).index("7"), list(map(str, votes.voter_names)).index("1")
    entry = np.flatnonzero((item == patient) & (voter == observer) & (vote == 1))[0]
    moved = np.where(np.arange(len(vote)) == entry, 0, vote).astype(np.int8)
    storage = votes.triplets._replace(vote=moved).in_order()
    return replace(dataset, name="one vote changed", votes=replace(votes, storage=storage))


def leave_out(votes: Dataset, seed: int, draws: int) -> pd.DataFrame:
    """The anaesthetists."""
    classes = votes.votes.num_classes
    confusion = np.where(np.eye(classes, dtype=bool), RIGHT, WRONG)
    models = {
        "Dawid-Skene": DawidSkene(5, classes, 3.0, tuple(map(tuple, confusion.tolist()))),
        "class-conditional": ClassConditional(5, classes, 3.0, (RIGHT, 8 - RIGHT)),
    }
    methods = {name: Nuts(model, num_warmup=500, num_samples=draws) for name, model in models.items()}
    (node,) = data_trees(compare(votes, methods, key=jax.random.key(seed), resamples=20)).values()
    by_arviz = {name: arviz_stats.loo(node[f"fits/{name}/0"]) for name in models}
    density = node["predictions"]["log_density"]
    ranking = PredictiveRanking({name: density.sel(estimator=name).to_numpy() for name in models}).table
    rows = [
        (name, ranking.loc[name, "elpd"], ranking.loc[name, "standard_error"], by_arviz[name].elpd, *PUBLISHED[name])
        for name in models
    ]
    behind = ranking.loc["class-conditional", ["difference", "difference_error"]]
    theirs = by_arviz["class-conditional"].elpd - by_arviz["Dawid-Skene"].elpd
    rows.append(("difference", *behind, theirs, *PUBLISHED["difference"]))
    columns = ["model", "elpd", "error", "by ArviZ", "published", "published error"]
    return pd.DataFrame(rows, columns=columns).set_index("model")


def check_dentists(seed: int) -> pd.DataFrame:
    """The dentists: p-values of each statistic under each program."""
    votes, key = load("caries").votes, jax.random.key(seed)
    found = {}
    for model in (DawidSkene(5), ItemDifficulty(5)):
        check = check_fit(MaximumLikelihood(model, starts=4).fit(votes, key=key), votes, key=key)
        print(check.summary)
        found[str(model)] = {part.name: part.p_value for part in check.statistics}
    return pd.DataFrame(found).rename_axis("statistic")


def main(data: Path | None, out: Path, seed: int, draws: int = 1000) -> tuple[pd.DataFrame, pd.DataFrame]:
    del data  # both sets come with the package
    anesthesia = load("anesthesia")
    by_votes = {each.name: leave_out(each, seed, draws) for each in (anesthesia, changed(anesthesia))}
    tables = pd.concat(by_votes, names=["votes"]), check_dentists(seed)
    for name, table in zip(("loo", "checks"), tables, strict=True):
        write(out, f"evidence_published_{name}", table=table.round(6))
    return tables


if __name__ == "__main__":
    run(main, __doc__)
