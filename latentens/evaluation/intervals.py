"""How far scores can be trusted: intervals over the items that happened to be drawn."""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Int

from latentens.evaluation.interval_rules import Interval
from latentens.evaluation.items import Draws, Items, Labels, Posterior, Weights
from latentens.evaluation.scores import computed_scores
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.randomness import numpy_generator
from latentens.runtime.threads import one_blas_thread


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
    """Bootstrap intervals over items of all scores of `latentens.evaluation.scores.evaluate`.

    Most scores get the quantiles of their resampled values. Four do not, since resampling adds as much noise as the
    sample already has, which shifts what is biased by noise a second time:

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
    estimate = Draws(items)
    resampled: dict[str, list[np.ndarray]] = {score.name: [] for score, _ in scores}
    for weights in _resampled(items.kinds, resamples, block_elements, key):
        draws = Draws(items, weights)
        for score, statistic in scores:
            resampled[score.name].append(statistic(draws))
    return {
        score.name: score.interval(statistic(estimate), np.concatenate(resampled[score.name]), level)
        for score, statistic in scores
    }


def _resampled(
    kinds: Int[np.ndarray, " item"], resamples: int, block_elements: int, key: jax.Array
) -> Iterator[Weights]:
    """How many items of each kind are drawn, for one block of resamples after the other."""
    generator = numpy_generator(key)
    num_items, num_kinds = len(kinds), kinds.max() + 1
    for block in row_blocks(resamples, num_items, block_elements):
        drawn = kinds[generator.integers(num_items, size=(block.stop - block.start, num_items))]
        drawn += num_kinds * np.arange(len(drawn))[:, None]
        counts = np.bincount(drawn.ravel(), minlength=num_kinds * len(drawn))
        yield counts.reshape(len(drawn), num_kinds).astype(np.float64)
