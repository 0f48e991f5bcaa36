"""Rules that turn a score and its resampled values into an interval.

A rule takes the result of the score's function on the sample (the score first, then other numbers that the rule needs),
the results on all resamples, and the coverage. Undefined ends are NaN.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

Interval = tuple[float, float]
Estimate = Float[np.ndarray, " part"]
Resampled = Float[np.ndarray, "part resample"]


def quantiles(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Percentile bootstrap; resamples in which the score is undefined are left out."""
    del estimate
    return _quantiles(resampled[0], level)


def _quantiles(values: Float[np.ndarray, " resample"], level: float) -> Interval:
    defined = values[~np.isnan(values)]
    if not len(defined):
        return np.nan, np.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson(successes: float, trials: float, level: float) -> Interval:
    """Wilson's (1927) interval of a proportion: it has a width even if all trials, or none, are successes."""
    if not trials > 0:
        return np.nan, np.nan
    z, share = ndtri((1 + level) / 2), successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    margin = z / (1 + z**2 / trials) * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    low = 0.0 if successes == 0 else float(centre - margin)
    return low, 1.0 if successes == trials else float(centre + margin)


def share_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Wilson's interval; the parts are the share, the items outside it and the items inside it."""
    del resampled
    _, others, counted = estimate
    return wilson(counted, others + counted, level)


def mean_share_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Interval of the mean of a share over classes; the parts are the mean, then the items outside and inside by class.

    The distances from each share to the ends of its Wilson interval are added in squares: the method of variance
    estimates recovery (Zou & Donner 2008).
    """
    del resampled
    wrong, right = np.split(estimate[1:], 2)
    occurs = wrong + right > 0
    wrong, right = wrong[occurs], right[occurs]
    if not len(right):
        return np.nan, np.nan
    shares = right / (wrong + right)
    low, high = np.array([wilson(r, w + r, level) for w, r in zip(wrong, right, strict=True)]).T
    below, above = (np.sqrt(((shares - ends) ** 2).sum()) / len(shares) for ends in (low, high))
    return _positive(shares.mean() - below), float(min(shares.mean() + above, 1.0))


def gap_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Interval of confidence minus accuracy: the margins of both are added in squares.

    The parts are the gap, the wrong labels, the correct labels and the mean confidence.
    """
    gap, wrong, right, confidence = estimate
    low, high = wilson(right, wrong + right, level)
    margins = np.abs(np.array(_quantiles(resampled[3], level)) - confidence)
    accuracy = confidence - gap
    below, above = np.hypot(margins, [high - accuracy, accuracy - low])
    return float(gap - below), float(gap + above)


def loss_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Interval of the mean log loss: quantiles, with room above for errors that the sample happens not to contain.

    With few or no wrong labels the quantiles do not reflect the cost of errors. The upper margin therefore includes,
    added in squares, how much larger the mean loss would be if the share of wrong labels were at the upper end of its
    Wilson interval. The cost of an error is the mean of those observed and of one as the posterior itself expects it.
    With many labels the upper margin is too wide by at most one half.

    The parts are the mean loss, that of correct and of wrong labels, the expected loss of an error, and the numbers of
    wrong and correct labels.
    """
    low, high = _quantiles(resampled[0], level)
    loss, right_loss, wrong_loss, stated, wrong, right = estimate
    if not right > 0:
        return low, high
    cost = (stated + (wrong * wrong_loss if wrong > 0 else 0.0)) / (wrong + 1)
    _, share = wilson(wrong, wrong + right, level)
    pessimistic = share * cost + (1 - share) * right_loss
    return low, float(loss + np.hypot(high - loss, max(pessimistic - loss, 0.0)))


def reflected_below(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """For a score that noise biases upwards: the lower end is the upper quantile reflected at the estimate."""
    _, high = _quantiles(resampled[0], level)
    return _positive(2 * estimate[0] - high), high


def reflected_above(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """For a score that noise biases downwards: the upper end is the lower quantile reflected at the estimate."""
    low, _ = _quantiles(resampled[0], level)
    return low, float(2 * estimate[0] - low)


def calibration_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Interval of Σ_b |gap of bin b|, which differs from the truth by at most Σ_b |noise of bin b|.

    The parts are the sum, then the gap of each bin; bins are those of the original sample.
    """
    _, noise = _quantiles(np.abs(resampled[1:] - estimate[1:, None]).sum(axis=0), level)
    _, high = _quantiles(resampled[0], level)
    return _positive(estimate[0] - noise), high


def debiased_interval(estimate: Estimate, resampled: Resampled, level: float) -> Interval:
    """Interval of the root of an unbiased square; the parts are the root, the plain square and the unbiased square.

    The unbiased square is moved by the deviations of the resampled ones from what these estimate: the plain square of
    the original sample, its noise included.
    """
    _, plain, unbiased = estimate
    low, high = _quantiles(resampled[2] - plain, level)
    return _positive(unbiased - high) ** 0.5, _positive(unbiased - low) ** 0.5


def _positive(value: float) -> float:
    return float(np.maximum(value, 0.0))  # NaN stays NaN
