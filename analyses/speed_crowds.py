"""Sparse crowds: the default fits of Dawid–Skene EM and EBCC against crowd-kit and EBCC as published.

    python analyses/speed_crowds.py --data ROOT --out DIR [--seed 0] [--skill 4] [--parts crowds ebcc dream]

Simulated crowds have the shapes of five public ones; others are in ROOT. Both sides run one after the other in this
process on one thread, and every row has seconds, seconds of processor time, and the load. Writes
`speed_crowds.csv`, `speed_crowds_ebcc.csv` and `speed_crowds_dream.csv`.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from common import CROWDS, find, run
from crowdkit.aggregation import DawidSkene as CrowdKitDawidSkene
from ebcc_reference import Reference, ebcc_reference
from rich.console import Console
from scaling import load_per_core
from speed_aggregators import SHAPES, crowdkit_log_likelihood, simulated_crowd

from latentens.datasets import load
from latentens.methods import Cubam, DawidSkeneEM, Ebcc, Glad, LatentSpectral
from latentens.methods.ebcc import EMPTY, SubtypeAscent, Subtypes
from latentens.runtime.parallel import one_blas_thread
from latentens.votes import Votes
from latentens.votes.layout import incidence_of, vote_indicator


def main(
    data: Path | None,
    out: Path,
    seed: int,
    skill: float = 4.0,
    parts: tuple[str, ...] = ("crowds", "ebcc", "dream"),
    shapes: int = len(SHAPES),
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    works: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "crowds": lambda: crowd_rows(crowds(data, seed, skill, shapes), seed),
        "ebcc": lambda: ebcc_rows(crowds(data, seed, skill, shapes), seed),
        "dream": lambda: dream_rows(data, seed),
    }
    for name in parts:
        rows = []
        for row in works[name]():
            rows.append(row | {"load_per_core": load_per_core()})
            Console(soft_wrap=True).print(rows[-1], highlight=False)
            pd.DataFrame(rows).to_csv(out / FILES[name], index=False)


FILES = {"crowds": "speed_crowds.csv", "ebcc": "speed_crowds_ebcc.csv", "dream": "speed_crowds_dream.csv"}


def crowds(data: Path | None, seed: int, skill: float, shapes: int) -> Iterator[tuple[str, Votes]]:
    for shape in SHAPES[:shapes]:
        yield f"simulated {shape.items:,} × {shape.voters:,}", simulated_crowd(shape, seed, skill)
    for crowd in find(CROWDS, data) if data else ():
        yield crowd.name, crowd.votes


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, and the seconds and seconds of processor time that it took."""
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def fresh(votes: Votes) -> Votes:
    """The same votes, of which nothing has been worked out yet."""
    return Votes(votes.storage, *votes.shape, votes.num_classes)


def crowd_rows(sets: Iterator[tuple[str, Votes]], seed: int) -> Iterator[dict[str, Any]]:
    """Default fits; crowd-kit adds no counts (1e-10), so its likelihood is compared at these."""
    key = jax.random.key(seed)
    for name, votes in sets:
        table = pd.DataFrame(dict(zip(("task", "worker", "label"), votes.triplets, strict=True)))
        theirs, their_seconds, their_processor = timed(lambda table=table: CrowdKitDawidSkene().fit(table))
        ours, seconds, processor = timed(lambda votes=votes: DawidSkeneEM().fit(fresh(votes), key=key))
        plain, _, _ = timed(lambda votes=votes: DawidSkeneEM(1e-10, 1e-10).fit(fresh(votes), key=key))
        single, _, single_processor = timed(
            lambda votes=votes: DawidSkeneEM(1e-10, 1e-10, random_starts=0).fit(fresh(votes), key=key)
        )
        their_round = their_processor / len(theirs.loss_history_)
        yield {
            "votes": name,
            "seconds": seconds,
            "crowd_kit_seconds": their_seconds,
            "processor": processor,
            "crowd_kit_processor": their_processor,
            "ratio": their_processor / processor,
            "ratio_per_round": their_round / (single_processor / single.diagnostics.iterations),
            "log_likelihood": ours.diagnostics.log_likelihood,
            "log_likelihood_without_counts": plain.diagnostics.log_likelihood,
            "crowd_kit_log_likelihood": crowdkit_log_likelihood(theirs, votes),
        }


def ebcc_rows(sets: Iterator[tuple[str, Votes]], seed: int) -> Iterator[dict[str, Any]]:
    """The default fit against as many starts of the published algorithm, of which one is run."""
    for name, votes in sets:
        ours, _, processor = timed(lambda votes=votes: Ebcc().fit(fresh(votes), key=jax.random.key(seed)))
        reference, _, one_start = timed(lambda votes=votes: ebcc_reference(votes, seed))
        theirs = one_start * Ebcc().restarts
        agree = np.mean(reference.label_probs.argmax(axis=1) == ours.codes)
        yield {
            "votes": name,
            "processor": processor,
            "reference_processor": theirs,
            "ratio": theirs / processor,
            "rounds": ours.diagnostics.iterations,
            "reference_rounds": reference.rounds,
            "bound_per_item": ours.diagnostics["evidence_bound"] / votes.num_items,
            "reference_bound_per_item": reference_bound(votes, reference) / votes.num_items,
            "same_labels": agree,
        }


def dream_rows(data: Path | None, seed: int) -> Iterator[dict[str, Any]]:
    """Default fits on DREAM S1, whose distinct rows are known."""
    votes = load("S1", root=data).votes
    for method in (LatentSpectral(), LatentSpectral(select="likelihood"), Glad(), Cubam(), Ebcc()):
        same = fresh(votes)
        same.patterns  # noqa: B018, worked out here
        fit, seconds, processor = timed(lambda same=same, method=method: method.fit(same, key=jax.random.key(seed)))
        yield {"method": repr(method), "seconds": seconds, "processor": processor, "ones": int(fit.codes.sum())}


def reference_bound(votes: Votes, reference: Reference) -> float:
    """The evidence bound where the reference ended."""
    _, num_classes, num_subtypes = reference.held.shape
    held = reference.held.reshape(votes.num_items, -1)
    label = np.arange(num_classes).repeat(num_subtypes)
    subtypes = Subtypes(label, held.sum(axis=0), vote_indicator(votes, num_classes).T @ held)
    once = np.ones(votes.num_items, dtype=int)
    categories = votes.num_categories
    ascent = SubtypeAscent(incidence_of(votes), once, None, num_classes, categories, num_subtypes, 1.0, 1)
    return ascent.stand(subtypes.at(subtypes.items > EMPTY)).bound


if __name__ == "__main__":
    run(main, __doc__)
