"""What it costs EBCC to try random starts on a sample of the items first, against running all of them on all items.

    python analyses/ebcc_starts.py [--out DIR] [--sets 20] [--keys 2] [--kinds crowd "two kinds of items" Tree LG]

Every set has parameters of its own: sparse crowds of four classes, the same with two kinds of items in each class, on
which voters err differently, and sets from the priors of the paper's programs, in which no vote is missing; the rule is
not for these, and is tried on them all the same. Of each kind and key: how often random starts were left out, the
evidence bound that was lost an item, and by how many percent the accuracy changed.
"""

import time
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pandas as pd
from common import run, write

from latentens.datasets import PAPER_MODELS, simulate
from latentens.methods import Ebcc, ebcc
from latentens.methods.base import Fit
from latentens.methods.rows import labelled_rows
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.parallel import one_blas_thread
from latentens.runtime.progress import track_late
from latentens.votes import Triplets, Votes

CROWD_KINDS = {"crowd": 1, "two kinds of items": 2}
"""Kinds of items in each class."""


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 20,
    keys: int = 2,
    items: int = 40_000,
    crowd_items: int = 20_000,
    kinds: tuple[str, ...] = (*CROWD_KINDS, "Tree", "LG"),
) -> pd.DataFrame:
    del data  # everything is simulated
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind, number in track_late([(k, n) for k in kinds for n in range(sets)], lambda case: f"{case[0]}, {case[1]}"):
        votes, labels = drawn(kind, crowd_items if kind in CROWD_KINDS else items, seed + number)
        for key in range(keys):
            rows.append({"kind": kind, "set": number, "key": key} | judged(votes, labels, seed + key))
            pd.DataFrame(rows).to_csv(out / "ebcc_starts_fits.csv", index=False)
    table = (
        pd.DataFrame(rows)
        .groupby("kind", sort=False)
        .agg(
            fits=("key", "size"),
            distinct_rows=("distinct_rows", "median"),
            left_out=("left_out", "mean"),
            bound_lost=("bound_lost", "mean"),
            worst_bound_lost=("bound_lost", "max"),
            accuracy_change=("accuracy_change", "mean"),
            worst_accuracy_change=("accuracy_change", "min"),
            seconds=("seconds", "mean"),
            seconds_of_all=("seconds_of_all", "mean"),
        )
    )
    write(out, "ebcc_starts", table=table)
    print(table.T.to_string())
    return table


def judged(votes: Votes, labels: np.ndarray, key: int) -> dict[str, float]:
    """The default fit against one with every start on all items; nothing is fitted where these are the same."""
    rows = labelled_rows(votes, None)
    row = {"distinct_rows": len(rows.counts), "left_out": 0.0, "bound_lost": 0.0, "accuracy_change": 0.0}
    row |= {"seconds": np.nan, "seconds_of_all": np.nan}
    (apart,) = numpy_generator(jax.random.key(key)).spawn(1)
    if Ebcc()._worth_random_starts(rows, apart):
        return row
    screened, seconds = timed_fit(votes, key)
    with mock.patch.object(ebcc, "SCREENED_ITEMS", len(labels) + 1):
        whole, seconds_of_all = timed_fit(votes, key)
    bounds = [fit.diagnostics["evidence_bound"] / len(labels) for fit in (screened, whole)]
    accuracies = [100 * float(np.mean(fit.codes == labels)) for fit in (screened, whole)]
    return row | {
        "left_out": float(len(screened.diagnostics["start_evidence_bounds"]) == 1),
        "bound_lost": bounds[1] - bounds[0],
        "accuracy": accuracies[1],
        "accuracy_change": accuracies[0] - accuracies[1],
        "seconds": seconds,
        "seconds_of_all": seconds_of_all,
    }


def timed_fit(votes: Votes, key: int) -> tuple[Fit, float]:
    """A default fit and its processor time."""
    begin = time.process_time()
    with one_blas_thread():
        fit = Ebcc().fit(votes, key=jax.random.key(key))
    return fit, time.process_time() - begin


def drawn(kind: str, items: int, seed: int) -> tuple[Votes, np.ndarray]:
    """Votes and labels of a set with parameters of its own."""
    if kind in CROWD_KINDS:
        return drawn_crowd(np.random.default_rng(seed), items, CROWD_KINDS[kind])
    made = simulate(PAPER_MODELS[kind], items, key=jax.random.key(1000 + seed))
    storage = Triplets(*made.votes.triplets)  # those of a matrix would all be run
    return Votes(storage, *made.votes.shape, made.votes.num_classes), made.labels


def drawn_crowd(
    generator: np.random.Generator, items: int, kinds: int, voters: int = 200, classes: int = 4, each: int = 5
) -> tuple[Votes, np.ndarray]:
    """Five votes an item by voters who know the label with probability Beta(4, 4) and else guess in their own way."""
    labels = generator.choice(classes, items, p=generator.dirichlet(np.full(classes, 5.0)))
    state = labels * kinds + generator.integers(kinds, size=items)
    knows = generator.beta(4, 4, (voters, classes * kinds, 1))
    confusion = (1 - knows) * generator.dirichlet(np.ones(classes), (voters, classes * kinds))
    confusion += knows * np.eye(classes).repeat(kinds, axis=0)
    diligence = np.log(generator.lognormal(0.0, 1.5, voters))
    willing = diligence + generator.gumbel(size=(items, voters))
    voter = np.argpartition(-willing, each - 1, axis=1)[:, :each]
    chances = confusion[voter, state[:, None]].cumsum(axis=2)[:, :, :-1]
    vote = (generator.random((items, each, 1)) > chances).sum(axis=2)
    item = np.arange(items).repeat(each)
    return Votes.from_long({"item": item, "voter": voter.ravel(), "vote": vote.ravel()}), labels


if __name__ == "__main__":
    run(main, __doc__)
