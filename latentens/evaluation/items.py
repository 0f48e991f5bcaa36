"""Labelled items and their posteriors under any weights: what every score is computed from."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from latentens.evaluation.events import Event, summing

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
