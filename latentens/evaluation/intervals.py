"""How far scores, and differences of scores, can be trusted: intervals over the items that happened to be drawn."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from latentens.evaluation.scores import BinGaps, Labels, Posterior, Scorer, Weights, log_losses
from latentens.runtime.randomness import numpy_generator

Interval = tuple[float, float]
Resampled = Float[np.ndarray, " resample"]

BLOCK = 2**20
"""Resamples are weighed in blocks of about so many items, which bounds the memory."""


class PairedDifference(NamedTuple):
    """A score of a first posterior minus that of a second one on the same items, its interval, and its p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def intervals(
    labels: Labels,
    probs: Posterior,
    exact: Posterior | None = None,
    *,
    key: jax.Array,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Bootstrap intervals over items of all scores of `latentens.evaluation.scores.evaluate`.

    Most scores get the quantiles of their resampled values. Four do not, since resampling adds as much noise as the
    sample already has, which shifts what is biased by noise a second time:

    * The parts of the Brier score, on the side that the shift makes too optimistic, get the quantile reflected at the
      estimate. For a calibrated posterior the lower end of the calibration part can stay a little above zero; the
      p-value of `latentens.evaluation.sbc.reliability` is the test of that.
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

    Returns:
        The ends of each score's interval, nan where the score is undefined.
    """
    scorer = Scorer(labels, probs, exact)
    estimates, bins = scorer.scores(scorer.counts), scorer.bin_gaps(scorer.counts)
    blocks = [(scorer.scores(w), scorer.bin_gaps(w)) for w in _resampled(scorer.kinds, resamples, key)]
    values = {name: np.concatenate([scores[name] for scores, _ in blocks]) for name in estimates}
    resampled = BinGaps(*(np.concatenate(parts) for parts in zip(*(gaps for _, gaps in blocks), strict=True)))
    ends = {name: _quantiles(value, level) for name, value in values.items()}
    _, high = ends["brier_calibration"]
    ends["brier_calibration"] = _positive(2 * estimates["brier_calibration"][0] - high), high
    low, _ = ends["brier_refinement"]
    ends["brier_refinement"] = low, float(2 * estimates["brier_refinement"][0] - low)
    ends["calibration_error"] = _calibration_interval(bins, resampled, level)
    ends["calibration_error_debiased"] = _debiased_interval(bins, resampled, level)
    return ends


def compare_accuracy(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Accuracy of the first posterior minus that of the second, with McNemar's exact test.

    Only items that just one of them labels right count for the test: under equal accuracies each of the two is
    right on half of these. The interval is that of Agresti & Min (2005): half an item is added to each of the four
    cells of the table of rights and wrongs, then the normal interval is taken.
    """
    known = labels >= 0
    right, other_right = (probs[known].argmax(axis=1) == labels[known] for probs in (first, second))
    wins, losses = int(np.sum(right & ~other_right)), int(np.sum(other_right & ~right))
    if not known.any():
        return PairedDifference(np.nan, np.nan, np.nan, np.nan)
    size, gain, discordant = known.sum() + 2, wins - losses, wins + losses + 1
    margin = _two_sided(level) * np.sqrt(discordant - gain**2 / size) / size
    p_value = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    return PairedDifference(
        gain / float(known.sum()), float(gain / size - margin), float(gain / size + margin), float(p_value)
    )


def compare_log_scores(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Log score of the first posterior minus that of the second: negative where the first is better.

    Interval and p-value are those of a normal mean of the items' differences.
    """
    known = labels >= 0
    gains = (log_losses(labels, first) - log_losses(labels, second))[known]
    if len(gains) < 2:
        return PairedDifference(*gains, *[np.nan] * (4 - len(gains)))
    mean, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    margin = _two_sided(level) * error
    p_value = 2 * ndtr(-abs(mean) / error) if error > 0 else float(mean == 0)
    return PairedDifference(mean, mean - margin, mean + margin, float(p_value))


def _resampled(kinds: Int[np.ndarray, " item"], resamples: int, key: jax.Array) -> Iterator[Weights]:
    """How many items of each kind are drawn, for one block of resamples after the other."""
    generator = numpy_generator(key)
    num_items, num_kinds = len(kinds), kinds.max() + 1
    rows = max(1, BLOCK // num_items)
    for first in range(0, resamples, rows):
        drawn = kinds[generator.integers(num_items, size=(min(rows, resamples - first), num_items))]
        cells = drawn + num_kinds * np.arange(len(drawn))[:, None]
        counts = np.bincount(cells.ravel(), minlength=num_kinds * len(drawn))
        yield counts.reshape(len(drawn), num_kinds).astype(np.float64)


def _quantiles(values: Resampled, level: float) -> Interval:
    """The quantiles that leave out equally much on both sides; resamples in which a score is undefined do not count."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return np.nan, np.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _calibration_interval(bins: BinGaps, resampled: BinGaps, level: float) -> Interval:
    noise = np.abs(resampled.gaps - bins.gaps).sum(axis=1)
    _, high = _quantiles(np.abs(resampled.gaps).sum(axis=1), level)
    return _positive(np.abs(bins.gaps).sum() - _quantiles(noise, level)[1]), high


def _debiased_interval(bins: BinGaps, resampled: BinGaps, level: float) -> Interval:
    low, high = _quantiles(resampled.debiased_square - bins.square, level)
    ends = [_positive(bins.debiased_square[0] - deviation) ** 0.5 for deviation in (high, low)]
    return ends[0], ends[1]


def _positive(value: float) -> float:
    """The value, zero where it is negative, nan where it is nan."""
    return float(np.maximum(value, 0.0))


def _two_sided(level: float) -> float:
    return float(ndtri((1 + level) / 2))
