"""Partial pooling on sparse crowds: the hierarchical model against plain Dawid–Skene.

    python analyses/partial_pooling.py [--data DIR] [--out DIR] [--sets 2] [--items 2000] [--voters 200] [--votes 3]
        [--draws 100] [--methods majority plain DawidSkeneEM hierarchical]

`plain` is `DawidSkeneEM` with next to no pseudo-counts. In the simulated sets voters vary around a population that is
right three times in four. With `--data` the crowd sets found there are fitted as well. Log scores are in nats per item;
less is better. Every fit is a line of DIR/partial_pooling.jsonl, so that an interrupted run resumes.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from common import CROWDS, Records, find, run, write
from matplotlib import pyplot as plt

from latentens import Dataset, Votes, simulate
from latentens.methods import DawidSkeneEM, MajorityVote, Nuts
from latentens.models import HierarchicalDawidSkene


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 2_000,
    voters: int = 200,
    votes: int = 3,
    draws: int = 100,
    methods: tuple[str, ...] = ("majority", "plain", "DawidSkeneEM", "hierarchical"),
) -> pd.DataFrame:
    crowds = [sparse_crowd(items, voters, votes, seed + number) for number in range(sets)]
    crowds += find(CROWDS, data) if data is not None else []
    out.mkdir(parents=True, exist_ok=True)
    done = Records(out / "partial_pooling.jsonl", ("set", "method", "items", "voters", "votes", "draws", "seed"))
    records = {crowd.name: scores(crowd, methods, draws, seed, done) for crowd in crowds}
    table = pd.DataFrame(records).T.rename_axis("set")
    figure, axes = plt.subplots(layout="constrained")
    table.filter(like="log score").plot.box(ax=axes, rot=20)
    write(out, "partial_pooling", tree=xr.Dataset.from_dataframe(table), table=table, figure=figure)
    return table


def sparse_crowd(items: int, voters: int, votes: int, seed: int) -> Dataset:
    """Voters around a population that is right three times in four; each item has some of them at random."""
    model, generator = HierarchicalDawidSkene(voters), np.random.default_rng(seed)
    share = generator.uniform(0.3, 0.7)
    params = {
        "prevalence": np.array([1 - share, share]),
        "population": np.log(3.0) * np.eye(2),
        "spread": np.full((2, 2), 0.7),
        "deviation": generator.normal(size=(voters, 2, 2)),
    }
    full = simulate(model, items, key=jax.random.key(seed), params=params)
    asked = generator.random((items, voters)).argsort(axis=1) < votes
    matrix = np.where(asked, full.votes.matrix, -1)
    return Dataset(f"simulated {seed}", Votes.from_matrix(matrix, num_classes=2), full.labels, model, params)


def scores(crowd: Dataset, wanted: tuple[str, ...], draws: int, seed: int, done: Records) -> dict[str, float]:
    """Accuracy in percent and mean log score of each method where the label is known."""
    shape = crowd.votes.num_voters, crowd.votes.num_classes
    methods = {
        "majority": MajorityVote(),
        "plain": DawidSkeneEM(0.01, 0.01),
        "DawidSkeneEM": DawidSkeneEM(),
        "hierarchical": Nuts(HierarchicalDawidSkene(*shape), num_chains=2, num_warmup=draws, num_samples=draws),
    }
    exact, known, found = crowd.bayes_posterior(), np.flatnonzero(crowd.labels >= 0), {}
    for name in (*wanted, *(() if exact is None else ("exact Bayes",))):
        sizes = {
            "items": crowd.votes.num_items,
            "voters": crowd.votes.num_voters,
            "votes": len(crowd.votes.triplets.vote),
        }
        place = {"set": crowd.name, "method": name, **sizes, "draws": draws, "seed": seed}
        if not done.has(*place.values()):
            fitted = name in methods
            given = methods[name].fit(crowd.votes, key=jax.random.key(seed)).label_probs if fitted else exact
            of_truth = np.clip(given[known, crowd.labels[known]], 1e-12, None)
            accuracy = 100 * float(np.mean(given[known].argmax(axis=1) == crowd.labels[known]))
            done.add(place | {"accuracy": accuracy, "log score": float(-np.log(of_truth).mean())})
            print(crowd.name, name, round(accuracy, 2), flush=True)
        kept = done.found[tuple(place.values())]
        found |= {f"{name}: {score}": kept[score] for score in ("accuracy", "log score")}
    return found


if __name__ == "__main__":
    run(main, __doc__)
