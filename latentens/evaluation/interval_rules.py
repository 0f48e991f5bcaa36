"""From resampled statistics to the ends of a score's interval: one rule per kind of score."""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from latentens.evaluation.items import ratio

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


def wilson(successes: float, trials: float, level: float) -> Interval:
    """Wilson's (1927) interval of a share: it has a width even where all trials, or none, are successes."""
    if not trials > 0:
        return np.nan, np.nan
    z, share = ndtri((1 + level) / 2), successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    margin = z / (1 + z**2 / trials) * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    low = 0.0 if successes == 0 else float(centre - margin)
    return low, 1.0 if successes == trials else float(centre + margin)


def share_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Wilson's interval of the share of items that the second half of the columns counts."""
    del resampled
    others, counted = np.split(estimate[0], 2)
    return wilson(counted.sum(), others.sum() + counted.sum(), level)


def mean_share_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Of the mean over classes of the shares of correct labels, from the statistic `class_counts`.

    The distances from each share to the ends of its Wilson interval are added as standard errors are: the method of
    variance estimates recovery (Zou & Donner 2008).
    """
    del resampled
    wrong, right = np.split(estimate[0], 2)
    counted = wrong + right > 0
    wrong, right = wrong[counted], right[counted]
    if not len(right):
        return np.nan, np.nan
    shares = right / (wrong + right)
    low, high = np.array([wilson(r, w + r, level) for w, r in zip(wrong, right, strict=True)]).T
    below, above = (np.sqrt(((shares - ends) ** 2).sum()) / len(shares) for ends in (low, high))
    return _positive(shares.mean() - below), float(min(shares.mean() + above, 1.0))


def gap_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Of mean confidence minus accuracy, from the statistic `counts_and_confidence`; put together like the former."""
    wrong, right, confidence = estimate[0]
    low, high = wilson(right, wrong + right, level)
    share = ratio(np.array(right), np.array(wrong + right))
    margins = np.abs(np.array(quantiles(estimate, resampled[:, 2], level)) - confidence)
    below, above = np.hypot(margins, [high - share, share - low])
    return float(confidence - share - below), float(confidence - share + above)


def loss_interval(estimate: Statistic, resampled: Statistic, level: float) -> Interval:
    """Of the mean log loss, from the statistic `losses_and_errors`: quantiles, and above them room for more errors.

    Where few labels are wrong, or none, the quantiles do not know what errors would cost. To the distance of the upper
    one from the mean loss is added, as standard errors are, how much larger the mean loss would be if the share of
    wrong labels were at the upper end of its Wilson interval. An error then costs the mean of those seen and of one as
    the probabilities themselves expect it. With many labels this is too careful by half the upper distance at most.
    """
    low, high = quantiles(estimate, resampled[:, 0], level)
    loss, right_loss, wrong_loss, stated, wrong, right = estimate[0]
    if not right > 0:
        return low, high
    cost = (stated + (wrong * wrong_loss if wrong > 0 else 0.0)) / (wrong + 1)
    _, share = wilson(wrong, wrong + right, level)
    supposed = share * cost + (1 - share) * right_loss
    return low, float(loss + np.hypot(high - loss, max(supposed - loss, 0.0)))


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
