"""Events with a stated probability, and the weights of the items where they happened."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.special import ndtri

Runs = Float[np.ndarray, "resample run"]


class Event(NamedTuple):
    """An event whose probability is stated for each kind of items, kinds pooled into runs by that probability.

    Neighbouring probabilities at all of which the event happened, or at none of which it did, are one run: whatever the
    weights, pooling them does not change the area under the curve, and an isotonic regression is constant on them.

    Attributes:
        runs: Sums weights over runs, by increasing probability: of the kinds where the event did not happen, then of
            those where it did.
    """

    runs: csr_array

    @classmethod
    def of(cls, stated: Float[np.ndarray, " kind"], happened: Bool[np.ndarray, " kind"]) -> "Event":
        """Sort the kinds and pool them."""
        values, tie = np.unique(stated, return_inverse=True)
        share = np.bincount(tie, happened, len(values)) / np.bincount(tie, minlength=len(values))
        begins = (np.diff(share, prepend=-1) != 0) | ((share > 0) & (share < 1))
        run, number = np.cumsum(begins) - 1, int(begins.sum())
        return cls(summing(run[tie] + number * happened, 2 * number))

    def pooled(self, weights: Float[np.ndarray, "resample kind"]) -> tuple[Runs, Runs]:
        """The weight of the items of each run: of those where the event happened, and of the others."""
        others, happened = np.split(self.runs @ weights.T, 2)
        return np.ascontiguousarray(happened.T), np.ascontiguousarray(others.T)


def summing(place: Int[np.ndarray, " kind"], number: int) -> csr_array:
    """The matrix that sums over the kinds of each place."""
    kinds = np.arange(len(place))
    return csr_array((np.ones(len(place)), (place, kinds)), shape=(number, len(place)))


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


Labels = Int[np.ndarray, " item"]
Posterior = Float[np.ndarray, "item label"]
Values = Float[np.ndarray, " kind"]
Weights = Float[np.ndarray, "resample kind"]
Resampled = Float[np.ndarray, " resample"]

MOST_BINS = 15
"""Stated confidences are put into this many bins, …"""

LEAST_BIN = 10
"""… or into fewer where a bin would hold fewer items than this."""

LEAST_BINNED = 5 * LEAST_BIN
"""With fewer known labels than this, errors of calibration are mostly noise and are not stated."""


class BinGaps(NamedTuple):
    """What calibration errors are made of.

    Attributes:
        gaps: Accuracy minus mean confidence in each bin, times its share of the items.
        square: Sum over bins of share times squared gap.
        debiased_square: Unbiased estimate of what that sum would be without noise; it can be negative.
    """

    gaps: Float[np.ndarray, "resample bin"]
    square: Resampled
    debiased_square: Resampled


class Items:
    """Items pooled into kinds: items of one kind have the same label and the same probabilities.

    Kinds are in the order of their confidence, those without a known label last, so that bins of confidence are runs.

    Attributes:
        labels: The true label of each kind, −1 where it is not known.
        probs: The estimated posterior of each kind.
        exact: The exact posterior of each kind, where known.
        kinds: The kind of each item.
        counts: The number of items of each kind.
        columns: What functions have said of each kind; see `kept`.
    """

    labels: Int[np.ndarray, " kind"]
    probs: Float[np.ndarray, "kind label"]
    exact: Float[np.ndarray, "kind label"] | None
    kinds: Int[np.ndarray, " item"]
    counts: Float[np.ndarray, " kind"]

    def __init__(self, labels: Labels, probs: Posterior, exact: Posterior | None = None) -> None:
        columns = [labels[:, None], probs] if exact is None else [labels[:, None], probs, exact]
        first, kinds, counts = _distinct(np.concatenate(columns, axis=1))
        order = np.lexsort((probs[first].max(axis=1), labels[first] < 0))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, self.kinds, self.counts = first[order], place[kinds], counts[order].astype(np.float64)
        self.labels, self.probs = labels[first], probs[first]
        self.exact = None if exact is None else exact[first]
        self.columns: list[Values] = []
        self._kept: dict[Callable[[Items], Values], tuple[int, int]] = {}
        self._masks: dict[bytes, int] = {}

    @cached_property
    def known(self) -> Bool[np.ndarray, " kind"]:
        """Whether the label is known."""
        return self.labels >= 0

    @cached_property
    def predicted(self) -> Int[np.ndarray, " kind"]:
        """The most probable label."""
        return self.probs.argmax(axis=1)

    @cached_property
    def confidence(self) -> Values:
        """The probability of the most probable label."""
        return self.probs.max(axis=1)

    @cached_property
    def bin_starts(self) -> Int[np.ndarray, " bin"]:
        """Where each bin of confidence begins among the kinds with known labels; equal confidences stay together."""
        counts = self.counts[self.known]
        _, place = np.unique(self.confidence[self.known], return_inverse=True)
        stating = np.bincount(place, counts)
        rank = (np.cumsum(stating) - stating / 2)[place]  # the mean rank of the items that state this confidence
        number = np.clip(counts.sum() // LEAST_BIN, 1, MOST_BINS)
        return np.flatnonzero(np.diff(rank * number // max(counts.sum(), 1.0), prepend=-1.0))

    @cached_property
    def by_label(self) -> csr_array:
        """Sums the weights of the kinds of each class that occurs: of those labelled wrongly, then of the others."""
        classes, place = np.unique(self.labels[self.known], return_inverse=True)
        right = (self.predicted == self.labels)[self.known]
        return summing(place + len(classes) * right, 2 * len(classes))

    @cached_property
    def events(self) -> list[Event]:
        """Class 1 of two classes, or each of more."""
        labels, probs = self.labels[self.known], self.probs[self.known]
        classes = range(probs.shape[1]) if probs.shape[1] > 2 else [1]
        return [Event.of(probs[:, k], labels == k) for k in classes] if len(labels) else []

    def kept(self, function: Callable[["Items"], Values]) -> tuple[int, int]:
        """Columns of what a function says of each kind, zero where it is nan, and of whether it is not."""
        if function not in self._kept:
            values = function(self)
            counted = ~np.isnan(values)
            mask = counted.tobytes()  # most scores share one
            if mask not in self._masks:
                self._masks[mask] = self._add(counted.astype(np.float64))
            self._kept[function] = self._add(np.where(counted, values, 0.0)), self._masks[mask]
        return self._kept[function]

    def _add(self, column: Values) -> int:
        self.columns.append(column)
        return len(self.columns) - 1


class Draws:
    """Items under weights, one row per resample: how many items of each kind it draws.

    Attributes:
        items: The items.
        weights: The weights; by default the items as they are, once.
    """

    def __init__(self, items: Items, weights: Weights | None = None) -> None:
        self.items = items
        self.weights = items.counts[None] if weights is None else weights
        self._totals = np.empty((0, len(self.weights)))
        self._statistics: dict[Callable[[Draws], Resampled], Resampled] = {}

    def mean(self, function: Callable[[Items], Values]) -> Resampled:
        """The mean of what a function says of items; those where it is nan do not count."""
        values, counted = self.items.kept(function)
        if len(self._totals) < len(self.items.columns):  # all at once: a product of matrices, not many of vectors
            missing = np.stack(self.items.columns[len(self._totals) :])
            self._totals = np.concatenate([self._totals, missing @ self.weights.T])
        return ratio(self._totals[values], self._totals[counted])

    def once(self, statistic: Callable[["Draws"], Resampled]) -> Resampled:
        """A statistic that several scores need, computed once."""
        if statistic not in self._statistics:
            self._statistics[statistic] = statistic(self)
        return self._statistics[statistic]

    @cached_property
    def known_weights(self) -> Weights:
        """The weights of the kinds with known labels, which come first."""
        return self.weights[:, : int(self.items.known.sum())]

    @cached_property
    def pooled_events(self) -> list[tuple[Float[np.ndarray, "resample run"], Float[np.ndarray, "resample run"]]]:
        """The weights of each event; see `Event.pooled`."""
        return [event.pooled(self.known_weights) for event in self.items.events]

    @cached_property
    def bin_gaps(self) -> BinGaps:
        """How far confidence and accuracy are apart in each bin of confidence; bins do not depend on the weights."""
        items, starts, weights = self.items, self.items.bin_starts, self.known_weights
        if items.counts[items.known].sum() < LEAST_BINNED:
            nothing = np.full(len(weights), np.nan)
            return BinGaps(nothing[:, None], nothing, nothing)
        residuals = ((items.predicted == items.labels) - items.confidence)[items.known]
        powers = np.stack([np.ones_like(residuals), residuals, residuals**2])
        bins = map(slice, starts, [*starts[1:], len(residuals)])
        counts, sums, own = np.stack([powers[:, run] @ weights.T[run] for run in bins], axis=2)
        total = counts.sum(axis=1, keepdims=True)
        square = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0)
        debiased = np.divide(sums**2 - own, counts - 1, out=np.zeros_like(sums), where=counts > 1)
        return BinGaps(ratio(sums, total), *(ratio(part.sum(axis=1), total[:, 0]) for part in (square, debiased)))


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Their quotient, nan where the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)


def _distinct(rows: Float[np.ndarray, "item column"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One index of each distinct row, the distinct row of each item, and how often each occurs."""
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:  # much quicker than sorting whole rows
        values, place = np.unique(column, return_inverse=True)
        _, first, code, counts = np.unique(
            code * len(values) + place, return_index=True, return_inverse=True, return_counts=True
        )
    return first, code, counts
