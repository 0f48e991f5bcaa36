"""How far scores can be trusted: intervals over the items that happened to be drawn."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from latentens.evaluation.events import summing
from latentens.evaluation.interval_rules import Interval
from latentens.evaluation.items import Draws, Items, Labels, Posterior
from latentens.evaluation.scores import computed_scores
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.randomness import key_words
from latentens.runtime.threads import one_blas_thread

Times = UInt8[np.ndarray, "item resample"]
"""How often each item is drawn; 256 times has a probability below 10⁻⁵⁰⁰ however many items there are."""

MOST_KEPT = 2**25
"""So many of these numbers are kept for the next posterior, since methods are compared on the same resamples."""


@one_blas_thread()
def intervals(
    labels: Labels,
    probs: Posterior,
    exact: Posterior | None = None,
    *,
    key: jax.Array,
    resamples: int = 1000,
    level: float = 0.95,
    block_elements: int = BLOCK_ELEMENTS,
) -> dict[str, Interval]:
    """Intervals over items of all scores of `latentens.evaluation.scores.evaluate`, most of them by the bootstrap.

    Most scores get the quantiles of their resampled values. These are blind to errors that a small sample does not
    have: twenty correct labels of twenty resample to nothing else. Accuracies, log score, confidence minus accuracy and
    the share of wrong labels among confident ones therefore get Wilson's interval of a share, or what follows from it.

    Four others do not get quantiles, since resampling adds as much noise as the sample already has, which shifts what
    is biased by noise a second time:

    * The parts of the Brier score, on the side that the shift makes too optimistic, get the quantile reflected at the
      estimate. For a calibrated posterior the lower end of the calibration part can stay a little above zero; the
      p-value of `latentens.evaluation.reliability.reliability` is the test of that.
    * The calibration error is at most Σ_b |noise of bin b| from the truth: its lower end is the estimate minus the
      quantile of that sum. Bins are those of the original sample.
    * The debiased error is squared: its square is moved by the deviations of the resampled squares from the square
      that they estimate, which is that of the original sample with its noise.

    Args:
        labels: The true label of each item, −1 where it is not known.
        probs: The estimated posterior.
        exact: The exact posterior, where known.
        key: Random key; the same key gives the same intervals.
        resamples: Number of bootstrap resamples.
        level: Coverage of each interval.
        block_elements: Resamples are weighed in blocks of about this many items.

    Returns:
        The ends of each score's interval, nan where the score is undefined.
    """
    items, scores = Items(labels, probs, exact), computed_scores(exact)
    whole = Draws(items)
    estimates = {score.name: statistic(whole) for score, statistic in scores}
    resampled: dict[str, list[np.ndarray]] = {score.name: [] for score, _ in scores}
    pool = summing(items.kinds, len(items.counts))
    for times in _resampled(len(labels), resamples, block_elements, key):
        draws = Draws(items, (pool @ times).T)
        for score, statistic in scores:
            resampled[score.name].append(statistic(draws))
    return {
        score.name: score.interval(estimates[score.name], np.concatenate(resampled[score.name]), level)
        for score, _ in scores
    }


def _resampled(num_items: int, resamples: int, block_elements: int, key: jax.Array) -> Iterable[Times]:
    """How often each item is drawn, for one block of resamples after the other."""
    draw = _drawn if num_items * resamples > MOST_KEPT else _drawn_once
    return draw(num_items, resamples, block_elements, key_words(key))


def _drawn(num_items: int, resamples: int, block_elements: int, words: tuple[int, ...]) -> Iterator[Times]:
    generator = np.random.default_rng(words)
    for block in row_blocks(resamples, num_items, block_elements):
        drawn = generator.integers(num_items, size=(block.stop - block.start, num_items))
        times = np.empty(drawn.shape, dtype=np.uint8)
        for row, items in zip(times, drawn, strict=True):
            row[:] = np.bincount(items, minlength=num_items)
        yield np.ascontiguousarray(times.T)


@lru_cache(maxsize=1)
def _drawn_once(*arguments: Any) -> tuple[Times, ...]:
    return tuple(_drawn(*arguments))
