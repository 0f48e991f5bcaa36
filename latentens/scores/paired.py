"""Paired differences between two posteriors of the same items, with their tests."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtr, stdtrit

from latentens.runtime.numerics import safe_log

Labels = Int[np.ndarray, " item"]
Posterior = Float[np.ndarray, "item label"]


class PairedDifference(NamedTuple):
    """The score of one posterior minus that of another on the same items, with its interval and p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def compare_accuracy(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Accuracy of the first posterior minus that of the second, with McNemar's exact test.

    The test uses only the items that exactly one of them labels correctly: if both are equally accurate, each is right
    on half of these. The interval is that of Agresti & Min (2005): half an item is added to each of the four cells of
    the table of correct and wrong labels, then the normal interval is taken.

    Args:
        labels: The true labels, −1 where unknown.
        first: One posterior.
        second: The other one.
        level: Coverage of the interval.
    """
    return _compare_correct(labels, first, second, np.zeros_like(labels), level)


def compare_balanced_accuracy(
    labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95
) -> PairedDifference:
    """Balanced accuracy of the first posterior minus that of the second, with McNemar's test stratified by class.

    Test and interval are those of `compare_accuracy`, each class weighted by one over its number of items: under the
    null hypothesis fair coins split the items of each class on which exactly one posterior is right.
    """
    return _compare_correct(labels, first, second, labels, level)


def compare_log_scores(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Log score of the first posterior minus that of the second: negative where the first is better.

    Interval and p-value are those of Student's t for the mean of the items' differences.
    """
    known = labels >= 0
    gains = (log_losses(labels, first) - log_losses(labels, second))[known].round(12)  # rounding errors are no gain
    if len(gains) < 2:
        return PairedDifference(*gains, *[np.nan] * (4 - len(gains)))
    mean, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    margin = float(stdtrit(len(gains) - 1, (1 + level) / 2)) * error
    p_value = 2 * stdtr(len(gains) - 1, -abs(mean) / error) if error > 0 else float(mean == 0)
    return PairedDifference(mean, mean - margin, mean + margin, float(p_value))


def holm(p_values: Sequence[float] | Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Holm's (1979) adjusted p-values, which control the family-wise error rate; NaN stays NaN and does not count."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")  # NaN comes last
    size = int(np.sum(~np.isnan(values)))
    factors = np.maximum(size - np.arange(len(values)), 1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * values[order]), 1.0)
    return adjusted


def log_losses(labels: Labels, probs: Posterior) -> Float[np.ndarray, " item"]:
    """−log p(true label) of each item, NaN where the label is unknown."""
    stated = np.take_along_axis(probs, np.maximum(labels, 0)[:, None].astype(np.intp), axis=1)[:, 0]
    return np.where(labels >= 0, -safe_log(stated), np.nan)


def _compare_correct(
    labels: Labels, first: Posterior, second: Posterior, strata: Labels, level: float
) -> PairedDifference:
    """Mean over strata of the difference between the shares of items labelled correctly."""
    known = labels >= 0
    if not known.any():
        return PairedDifference(np.nan, np.nan, np.nan, np.nan)
    right, other_right = (probs[known].argmax(axis=1) == labels[known] for probs in (first, second))
    _, stratum, sizes = np.unique(strata[known], return_inverse=True, return_counts=True)
    wins, losses = (
        np.bincount(stratum[only], minlength=len(sizes)) for only in (right & ~other_right, other_right & ~right)
    )
    gain, padded = wins - losses, sizes + 2
    centre = np.mean(gain / padded)
    variance = (wins + losses + 1 - gain**2 / padded) / padded**2
    margin = ndtri((1 + level) / 2) * np.sqrt(variance.sum()) / len(sizes)
    difference, p_value = float(np.mean(gain / sizes)), _sign_test(wins, losses, 1 / sizes)
    return PairedDifference(difference, float(centre - margin), float(centre + margin), p_value)


def _sign_test(
    wins: Int[np.ndarray, " stratum"],
    losses: Int[np.ndarray, " stratum"],
    weights: Float[np.ndarray, " stratum"],
    steps: int = 2**15,
) -> float:
    """P(|Σ_s weight_s (wins_s − losses_s)| ≥ its observed value) if wins and losses are equally likely.

    The distribution of the sum is a convolution of binomials on a lattice with `steps` steps from zero to the largest
    sum; rounding to the lattice can only enlarge the p-value.
    """
    from scipy.signal import fftconvolve  # slow to import, as is scipy.stats, and needed only here
    from scipy.stats import binom, binomtest

    played = wins + losses
    wins, weights, played = wins[played > 0], weights[played > 0], played[played > 0]
    if len(played) == 0:
        return 1.0
    if len(played) == 1:
        return float(binomtest(int(wins[0]), int(played[0])).pvalue)
    step = float(played @ weights) / steps
    chance = np.ones(1)
    for total, weight in zip(played, weights, strict=True):
        places = np.rint((2 * np.arange(total + 1) - total) * weight / step).astype(np.intp)
        stratum = np.bincount(places - places[0], binom.pmf(np.arange(total + 1), total, 0.5), 2 * places[-1] + 1)
        chance = fftconvolve(chance, stratum)
    sums = np.abs(np.arange(len(chance)) - len(chance) // 2) * step
    observed = abs(float((2 * wins - played) @ weights)) - len(played) * step
    return float(np.clip(chance[sums >= observed].sum(), 0.0, 1.0))
