"""From resampled statistics to the ends of a score's interval: one rule per kind of score."""

import numpy as np
from jaxtyping import Float

Interval = tuple[float, float]
Statistic = Float[np.ndarray, "resample *part"]


def quantiles(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """The quantiles that leave out equally much on both sides; resamples in which a score is undefined do not count."""
    del estimate
    defined = resampled[~np.isnan(resampled)]
    if not len(defined):
        return np.nan, np.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def reflected_below(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """For a score that noise makes too large: the lower end is the upper quantile reflected at the estimate."""
    _, high = quantiles(estimate, resampled, level)
    return _positive(2 * estimate[0] - high), high


def reflected_above(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """For a score that noise makes too small: the upper end is the lower quantile reflected at the estimate."""
    low, _ = quantiles(estimate, resampled, level)
    return low, float(2 * estimate[0] - low)


def calibration_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Of Σ_b |gap of bin b|, which is at most Σ_b |noise of bin b| from the truth; bins are those of the sample."""
    _, noise = quantiles(estimate, np.abs(resampled - estimate).sum(axis=1), level)
    _, high = quantiles(estimate, np.abs(resampled).sum(axis=1), level)
    return _positive(np.abs(estimate).sum() - noise), high


def debiased_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Of the root of an unbiased square, from pairs of squares (with noise, unbiased).

    The unbiased square is moved by the deviations of the resampled ones from what they estimate, which is the square of
    the original sample with its noise.
    """
    with_noise, unbiased = estimate[0]
    low, high = quantiles(estimate, resampled[:, 1] - with_noise, level)
    return _positive(unbiased - high) ** 0.5, _positive(unbiased - low) ** 0.5


def _positive(value: float) -> float:
    """The value, zero where it is negative, nan where it is nan."""
    return float(np.maximum(value, 0.0))
