"""Scores of estimated posteriors: arrays in, numbers out. Items whose label is −1 (unknown) do not count."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import isotonic_regression

from latentens.runtime.numerics import safe_log

Labels = Int[np.ndarray, " item"]
Posterior = Float[np.ndarray, "item label"]
Weights = Float[np.ndarray, "resample kind"]


CONFIDENT = 0.99
"""A posterior above this is called confident."""

MOST_BINS = 15
LEAST_BIN = 10
"""Stated confidences are put in so many bins, or fewer where a bin would have fewer than this many items."""

DESCRIPTIONS: Mapping[str, str] = {
    "balanced_accuracy": "Share of the items labelled right, averaged over the true classes",
    "accuracy": "Share of the items labelled right",
    "area_under_curve": "Chance that an item of a class gets a higher probability of it than an item of another class",
    "log_score": "Mean surprise at the true label, −log of its stated probability, in nats",
    "brier_score": "Mean squared distance between the stated probabilities and the truth, from 0 to 1",
    "brier_calibration": "Part of the Brier score that a better statement of the same ranking would remove",
    "brier_refinement": "Part of the Brier score that remains however the same ranking is stated",
    "calibration_error": "Mean gap between stated confidence and accuracy, over bins of equally many items",
    "calibration_error_debiased": "Root mean square of that gap, freed of the gap that chance alone would cause",
    "confident_share": f"Share of the items whose label is stated with a probability above {CONFIDENT}",
    "confident_wrong": f"Share of wrong labels among those stated with a probability above {CONFIDENT}",
    "mean_kl": "Mean Kullback–Leibler divergence from the exact posterior, in nats",
    "total_variation": "Mean total variation distance from the exact posterior, from 0 to 1",
    "root_mean_square_difference": "Root mean square difference from the probabilities of the exact posterior",
    "accuracy_regret": "Expected accuracy lost by choosing labels by this posterior and not by the exact one",
}
"""What each score says, in the order of `evaluate`."""

BETTER: Mapping[str, Literal["larger", "smaller"] | None] = {
    name: "larger" if name in ("balanced_accuracy", "accuracy", "area_under_curve") else "smaller"
    for name in DESCRIPTIONS
} | {"confident_share": None}
"""Which way of each score is the better one; None where it depends."""


def evaluate(labels: Labels, probs: Posterior, exact: Posterior | None = None) -> dict[str, float]:
    """All scores of a posterior, by the names of `DESCRIPTIONS`; undefined ones are nan.

    * `area_under_curve`: for two classes that of class 1; for more, the mean over the classes that occur of one
      class against the rest.
    * `brier_score`: mean of ½ Σ_k (p_k − 1{y = k})², which is (p_1 − y)² for two classes.
    * `brier_refinement`: the Brier score of the same probabilities after each class's were recalibrated by isotonic
      regression on these very labels; `brier_calibration` is the rest. Regression fits noise too: a perfectly
      calibrated posterior has a calibration part of the order n^(−2/3), not zero.
    * `calibration_error`: the stated confidence is the probability of the most probable class; bins hold equally many
      items, ties together. The mean of absolute values is biased upwards by noise.
    * `calibration_error_debiased`: √ Σ_b share_b · gap_b², each square replaced by its unbiased estimate, the mean over
      pairs of different items of the product of their residuals (as Kumar et al. 2019, who subtract the variance of
      a bin's mean); zero where the sum is negative.
    * `accuracy_regret`: mean of max(exact) − exact[most probable class of the estimate].

    Args:
        labels: The true label of each item, −1 where it is not known.
        probs: The estimated posterior.
        exact: The exact posterior, where known; without it, the four distances from it are left out.
    """
    scorer = Scorer(labels, probs, exact)
    return {name: float(value[0]) for name, value in scorer.scores(scorer.counts).items()}


def balanced_accuracy(labels: Labels, predicted: Labels) -> float:
    """Mean over the classes that occur of the share of their items that are predicted right."""
    return float(_balanced_accuracy(labels, predicted, np.ones((1, len(labels))))[0])


def log_score(labels: Labels, probs: Posterior) -> float:
    """Mean of −log p(true label), in nats; zero is best."""
    return float(np.nanmean(log_losses(labels, probs)))


def mean_kl(exact: Posterior, probs: Posterior) -> float:
    """Mean over items of the Kullback–Leibler divergence of an estimate from the exact posterior, in nats."""
    return float(np.mean(_divergences(exact, probs)))


class Event(NamedTuple):
    """An event whose probability is stated for each item, the items in the order of that probability.

    Attributes:
        order: The items, by increasing probability.
        happened: Whether the event happened, in that order.
        starts: Where in that order each distinct probability begins.
    """

    order: Int[np.ndarray, " item"]
    happened: Bool[np.ndarray, " item"]
    starts: Int[np.ndarray, " tie"]

    @classmethod
    def of(cls, stated: Float[np.ndarray, " item"], happened: Bool[np.ndarray, " item"]) -> "Event":
        """Sort the items."""
        order = np.argsort(stated, kind="stable")
        return cls(order, happened[order], np.flatnonzero(np.diff(stated[order], prepend=-np.inf)))

    def pooled(self, weights: Weights) -> tuple[Float[np.ndarray, "resample tie"], Float[np.ndarray, "resample tie"]]:
        """The weight of the items of each distinct probability: of those where the event happened, and of all."""
        ordered = weights[:, self.order]
        happened = np.add.reduceat(ordered * self.happened, self.starts, axis=1)
        return happened, np.add.reduceat(ordered, self.starts, axis=1)


class BinGaps(NamedTuple):
    """What calibration errors are made of.

    Attributes:
        gaps: Accuracy minus mean confidence in each bin, times its share of the items.
        square: Sum over bins of share times squared gap.
        debiased_square: Unbiased estimate of what that sum would be without noise; it can be negative.
    """

    gaps: Float[np.ndarray, "resample bin"]
    square: Float[np.ndarray, " resample"]
    debiased_square: Float[np.ndarray, " resample"]


class Scorer:
    """The scores of one posterior under any weights of its items: how many there are, or how many a resample draws.

    Attributes:
        kinds: The kind of each item: items with the same label and the same probabilities are of one kind.
        counts: The number of items of each kind.
    """

    kinds: Int[np.ndarray, " item"]
    counts: Float[np.ndarray, "1 kind"]

    def __init__(self, labels: Labels, probs: Posterior, exact: Posterior | None = None) -> None:
        known = [labels[:, None], probs] if exact is None else [labels[:, None], probs, exact]
        first, self.kinds, counts = _distinct(np.concatenate(known, axis=1))
        self.counts = counts[None].astype(np.float64)
        self._labels, self._probs = labels[first], probs[first]
        self._predicted = self._probs.argmax(axis=1)
        self._means = _averaged(self._labels, self._probs, None if exact is None else exact[first])

    def scores(self, weights: Weights) -> dict[str, Float[np.ndarray, " resample"]]:
        """Each score under each row of weights, in the order of `DESCRIPTIONS`."""
        scores = self._mean_scores(weights)
        scores["balanced_accuracy"] = _balanced_accuracy(self._labels, self._predicted, weights)
        scores["area_under_curve"], scores["brier_refinement"] = self._ranked_scores(weights)
        scores["brier_calibration"] = scores["brier_score"] - scores["brier_refinement"]
        bins = self.bin_gaps(weights)
        scores["calibration_error"] = np.abs(bins.gaps).sum(axis=1)
        scores["calibration_error_debiased"] = np.sqrt(np.maximum(bins.debiased_square, 0))
        return {name: scores[name] for name in DESCRIPTIONS if name in scores}

    def bin_gaps(self, weights: Weights) -> BinGaps:
        """How far confidence and accuracy are apart in each bin of confidence; bins do not depend on the weights."""
        counts, sums, own = np.split(weights @ self._binned, 3, axis=1)
        total = counts.sum(axis=1, keepdims=True)
        square = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0)
        debiased = np.divide(sums**2 - own, counts - 1, out=np.zeros_like(sums), where=counts > 1)
        return BinGaps(_ratio(sums, total), *(_ratio(part.sum(axis=1), total[:, 0]) for part in (square, debiased)))

    @cached_property
    def _binned(self) -> Float[np.ndarray, "kind three_bins"]:
        """For each bin of confidence: its members; their correctness minus confidence; the square of that."""
        counts = np.where(self._labels >= 0, self.counts[0], 0.0)
        confidence = self._probs.max(axis=1)
        _, place = np.unique(confidence, return_inverse=True)
        stating = np.bincount(place, counts)
        rank = (np.cumsum(stating) - stating / 2)[place]  # the mean rank of the items that state this confidence
        number = np.clip(counts.sum() // LEAST_BIN, 1, MOST_BINS)
        bins = np.where(counts > 0, rank * number // max(counts.sum(), 1.0), -1)
        members = (bins[:, None] == np.arange(number)).astype(np.float64)
        residuals = ((self._predicted == self._labels) - confidence)[:, None]
        return np.concatenate([members, members * residuals, members * residuals**2], axis=1)

    @cached_property
    def _events(self) -> list[Event]:
        """Class 1 for two classes, each class for more."""
        known = np.flatnonzero(self._labels >= 0)
        classes = range(self._probs.shape[1]) if self._probs.shape[1] > 2 else [1]
        events = (Event.of(self._probs[known, k], self._labels[known] == k) for k in classes)
        return [event._replace(order=known[event.order]) for event in events] if len(known) else []

    def _mean_scores(self, weights: Weights) -> dict[str, Float[np.ndarray, " resample"]]:
        values = np.stack(list(self._means.values()), axis=1)
        counts = ~np.isnan(values)
        means = _ratio(weights @ np.where(counts, values, 0.0), weights @ counts.astype(np.float64))
        scores = dict(zip(self._means, means.T, strict=True))
        if "root_mean_square_difference" in scores:
            scores["root_mean_square_difference"] = np.sqrt(scores["root_mean_square_difference"])
        return scores

    def _ranked_scores(self, weights: Weights) -> tuple[Float[np.ndarray, " resample"], Float[np.ndarray, " resample"]]:
        """What depends on the ranking alone: the area under the curve, and the refinement of the Brier score."""
        if not self._events:
            return np.full(len(weights), np.nan), np.full(len(weights), np.nan)
        pooled = [event.pooled(weights) for event in self._events]
        areas = np.stack([_curve_area(*event) for event in pooled])
        losses = np.stack([_isotonic_loss(*event) for event in pooled]).sum(axis=0)
        return _ratio(np.nansum(areas, axis=0), (~np.isnan(areas)).sum(axis=0)), losses / min(2, len(pooled))


def log_losses(labels: Labels, probs: Posterior) -> Float[np.ndarray, " item"]:
    """−log p(true label) of each item, nan where it is not known."""
    stated = np.take_along_axis(probs, np.maximum(labels, 0)[:, None].astype(np.intp), axis=1)[:, 0]
    return np.where(labels >= 0, -safe_log(stated), np.nan)


def _distinct(rows: Float[np.ndarray, "item column"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One index of each distinct row, the distinct row of each item, and how often each occurs."""
    code = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:  # much quicker than sorting whole rows
        values, place = np.unique(column, return_inverse=True)
        _, first, code, counts = np.unique(
            code * len(values) + place, return_index=True, return_inverse=True, return_counts=True
        )
    return first, code, counts


def _averaged(labels: Labels, probs: Posterior, exact: Posterior | None) -> dict[str, Float[np.ndarray, " item"]]:
    """What the scores that are means average over items; nan where an item does not count."""
    known, predicted = labels >= 0, probs.argmax(axis=1)
    confident = probs.max(axis=1) > CONFIDENT
    happened = labels[:, None] == np.arange(probs.shape[1])
    values = {
        "accuracy": np.where(known, predicted == labels, np.nan),
        "log_score": log_losses(labels, probs),
        "brier_score": np.where(known, ((probs - happened) ** 2).sum(axis=1) / 2, np.nan),
        "confident_share": confident.astype(np.float64),
        "confident_wrong": np.where(known & confident, predicted != labels, np.nan),
    }
    if exact is None:
        return values
    chosen = np.take_along_axis(exact, predicted[:, None], axis=1)[:, 0]
    return values | {
        "mean_kl": _divergences(exact, probs),
        "total_variation": np.abs(probs - exact).sum(axis=1) / 2,
        "root_mean_square_difference": ((probs - exact) ** 2).mean(axis=1),
        "accuracy_regret": exact.max(axis=1) - chosen,
    }


def _divergences(exact: Posterior, probs: Posterior) -> Float[np.ndarray, " item"]:
    ratio = safe_log(exact) - safe_log(probs)
    return np.sum(exact * ratio, axis=1)


def _balanced_accuracy(labels: Labels, predicted: Labels, weights: Weights) -> Float[np.ndarray, " resample"]:
    classes = np.unique(labels[labels >= 0])
    members = (labels[:, None] == classes).astype(np.float64)
    totals = weights @ members
    shares = _ratio(weights @ (members * (predicted == labels)[:, None]), totals)
    return _ratio(np.nansum(shares, axis=1), (totals > 0).sum(axis=1))


def _curve_area(
    happened: Float[np.ndarray, "resample tie"], total: Float[np.ndarray, "resample tie"]
) -> Float[np.ndarray, " resample"]:
    """Chance that an item with the event has a higher probability than one without; a tie counts half."""
    others = total - happened
    lower = np.cumsum(others, axis=1) - others / 2
    return _ratio((happened * lower).sum(axis=1), happened.sum(axis=1) * others.sum(axis=1))


def _isotonic_loss(
    happened: Float[np.ndarray, "resample tie"], total: Float[np.ndarray, "resample tie"]
) -> Float[np.ndarray, " resample"]:
    """Mean squared error of the best increasing function of the stated probability."""
    losses = np.full(len(total), np.nan)
    for resample in np.flatnonzero(total.any(axis=1)):
        drawn = total[resample] > 0
        counts = total[resample, drawn]
        share = happened[resample, drawn] / counts
        fitted = isotonic_regression(share, weights=counts).x
        losses[resample] = counts @ ((fitted - share) ** 2 + share * (1 - share)) / counts.sum()
    return losses


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Their quotient, nan where the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator > 0)
