"""Pseudo-counts of Dawid–Skene on sparse crowds: which ones lose least, judged on simulated sets only.

    python analyses/pseudo_counts.py [--out DIR] [--sets 5] [--items 600] [--voters 60] [--random-starts 2]

Crowds differ in the number of classes, in the votes per item and in their voters: around a population, many of whom
guess, specialists who know some classes only, or a few who do most of the work. Figures are means over sets and worst
losses to the best setting on the same set; accuracies are in percent, log scores in nats per item (less is better).
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from common import run, write

from latentens import Votes
from latentens.methods import DawidSkeneEM
from latentens.votes import Triplets

SETTINGS = (0.01, 0.01), (0.1, 0.1), (1.0, 1.0), (1.0, 0.1), (2.0, 0.1), (2.0, 0.5), (4.0, 1.0)
"""Pseudo-counts on and off the diagonal."""

VOTERS = "around a population", "half guess", "specialists", "few do the work"


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 5,
    items: int = 600,
    voters: int = 60,
    random_starts: int = 2,
    classes: tuple[int, ...] = (2, 4),
    votes: tuple[int, ...] = (3, 5),
) -> pd.DataFrame:
    del data  # labels of real crowds must not choose
    rows = []
    for kind, num_classes, per_item, number in np.ndindex(len(VOTERS), len(classes), len(votes), sets):
        generator = np.random.default_rng([seed, kind, num_classes, per_item, number])
        place = VOTERS[kind], classes[num_classes], votes[per_item]
        crowd, labels = draw_crowd(generator, *place, items, voters)
        rows += [
            {"voters": place[0], "classes": place[1], "votes": place[2], "set": number, **found}
            for found in scores(crowd, labels, random_starts, seed)
        ]
    table = pd.DataFrame(rows).set_index(["voters", "classes", "votes", "set", "diagonal", "off_diagonal"])
    write(out, "pseudo_counts", tree=xr.Dataset.from_dataframe(table))
    summary = summarise(table)
    write(out, "pseudo_counts", table=summary)
    return summary


def draw_crowd(
    generator: np.random.Generator, kind: str, classes: int, per_item: int, items: int, voters: int
) -> tuple[Votes, np.ndarray]:
    """Votes of some voters on each item, and the labels."""
    confusion = draw_confusion(generator, kind, classes, voters)
    labels = generator.choice(classes, items, p=generator.dirichlet(np.full(classes, 5.0)))
    activity = generator.pareto(1.0, voters) + 0.1 if kind == "few do the work" else np.ones(voters)
    order = np.argsort(generator.exponential(size=(items, voters)) / activity, axis=1)[:, :per_item]
    item, voter = np.repeat(np.arange(items), per_item), np.sort(order, axis=1).ravel()
    cumulated = confusion[voter, labels[item]].cumsum(axis=1)
    vote = (generator.random((len(item), 1)) > cumulated[:, :-1]).sum(axis=1)
    return Votes(Triplets(item, voter, vote), items, voters, classes), labels


def draw_confusion(generator: np.random.Generator, kind: str, classes: int, voters: int) -> np.ndarray:
    """A confusion matrix for each voter."""
    right = generator.beta(7.0, 3.0, (voters, classes))
    if kind == "half guess":
        right[: voters // 2] = 1 / classes
    if kind == "specialists":
        right = np.where(generator.random((voters, classes)) < 0.5, 0.95, 1.2 / classes).clip(max=0.95)
    spread = generator.dirichlet(np.full(classes - 1, 3.0), (voters, classes))
    confusion = np.empty((voters, classes, classes))
    for label in range(classes):
        wrong = (1 - right[:, label, None]) * spread[:, label]
        confusion[:, label] = np.insert(wrong, label, right[:, label], axis=1)
    return confusion


def scores(crowd: Votes, labels: np.ndarray, random_starts: int, seed: int) -> Iterator[dict[str, float]]:
    """Accuracy and mean log score under each setting."""
    for diagonal, off_diagonal in SETTINGS:
        method = DawidSkeneEM(diagonal, off_diagonal, random_starts=random_starts)
        probs = method.fit(crowd, key=jax.random.key(seed)).label_probs
        of_truth = np.clip(probs[np.arange(len(labels)), labels], 1e-12, None)
        yield {
            "diagonal": diagonal,
            "off_diagonal": off_diagonal,
            "accuracy": 100 * float(np.mean(probs.argmax(axis=1) == labels)),
            "log_score": float(-np.log(of_truth).mean()),
        }


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Means by kind of crowd, over all of them, and the worst loss to the best setting on the same set."""
    setting = ["diagonal", "off_diagonal"]
    wide = table.unstack(setting)
    lost = pd.concat(
        {
            "accuracy": wide["accuracy"].rsub(wide["accuracy"].max(axis=1), axis=0).max(),
            "log_score": wide["log_score"].sub(wide["log_score"].min(axis=1), axis=0).max(),
        }
    )
    kinds = wide.groupby(["voters", "classes", "votes"]).mean()
    kinds.loc[("all", "", "")] = wide.mean()
    kinds.loc[("all", "", "worst loss")] = lost
    return kinds.stack(setting, future_stack=True)


if __name__ == "__main__":
    run(main, __doc__)
