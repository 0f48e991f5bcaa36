"""The statistics behind the scores: functions of items under weights that give one row per resample."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from latentens.evaluation.differences import log_losses
from latentens.evaluation.interval_rules import Statistic
from latentens.evaluation.items import Draws, Items, Posterior, Resampled, Values, ratio
from latentens.runtime.numerics import safe_log

CONFIDENT = 0.99
"""A posterior above this is called confident."""


def averaged(values: Callable[[Items], Values]) -> Callable[[Draws], Resampled]:
    """Make a statistic of a value per item: its mean over the items where it is not nan."""
    return lambda draws: draws.mean(values)


def class_counts(draws: Draws) -> Statistic:
    """For each class that occurs its wrongly labelled items, then for each class those labelled correctly."""
    return np.asarray(draws.items.by_label @ draws.known_weights.T).T


def counts_and_confidence(draws: Draws) -> Statistic:
    """The numbers of wrong and of correct labels, and the mean confidence in them."""
    wrong, right = np.split(class_counts(draws), 2, axis=1)
    return np.stack([wrong.sum(axis=1), right.sum(axis=1), draws.mean(_known_confidence)], axis=1)


def losses_and_errors(draws: Draws) -> Statistic:
    """The mean log loss; that of correct and of wrong labels; that of an error as stated; numbers of wrong and correct.

    By its own probabilities a posterior errs on an item with probability r, all but the largest, and its loss is then
    −log r or more: an error as stated costs E[−r log r] / E[r].
    """
    wrong, right = (part.sum(axis=1) for part in np.split(class_counts(draws), 2, axis=1))
    losses = (draws.mean(values) for values in (_loss, _right_loss, _wrong_loss))
    risk, cost = (draws.mean(values) for values in (_risk, _risk_times_loss))
    return np.stack([*losses, np.where(risk > 0, ratio(cost, risk), -safe_log(np.zeros(1))), wrong, right], axis=1)


def _known_confidence(items: Items) -> Values:
    return np.where(items.known, items.confidence, np.nan)


def _loss(items: Items) -> Values:
    """−log p(true label)."""
    return log_losses(items.labels, items.probs)


def _right_loss(items: Items) -> Values:
    return np.where(items.predicted == items.labels, _loss(items), np.nan)


def _wrong_loss(items: Items) -> Values:
    return np.where(items.predicted != items.labels, _loss(items), np.nan)


def _risk(items: Items) -> Values:
    """The probability of all labels but the most probable one."""
    others = np.sort(items.probs, axis=1)[:, :-1].sum(axis=1)
    return np.where(items.known, others, np.nan)


def _risk_times_loss(items: Items) -> Values:
    risk = _risk(items)
    return -risk * safe_log(risk)


@averaged
def square_loss(items: Items) -> Values:
    """½ Σ_k (p_k − 1{y = k})²."""
    happened = items.labels[:, None] == np.arange(items.probs.shape[1])
    return np.where(items.known, ((items.probs - happened) ** 2).sum(axis=1) / 2, np.nan)


@averaged
def confident(items: Items) -> Values:
    """Whether the label is stated with confidence."""
    return (items.confidence > CONFIDENT).astype(np.float64)


def confident_counts(draws: Draws) -> Statistic:
    """Of the known labels stated with confidence, the numbers of correct and of wrong ones."""
    items = draws.items
    right = (items.predicted == items.labels)[items.known]
    chosen = (items.confidence > CONFIDENT)[items.known]
    return np.stack([draws.known_weights @ (chosen & kind) for kind in (right, ~right)], axis=1)


def curve_areas(draws: Draws) -> Resampled:
    """Chance that an item with the event has a higher probability than one without; a tie counts half."""
    areas = []
    for happened, others in draws.pooled_events:
        lower = np.cumsum(others, axis=1) - others / 2
        above = np.einsum("rt,rt->r", happened, lower)
        areas.append(ratio(above, happened.sum(axis=1) * others.sum(axis=1)))
    if not areas:
        return np.full(len(draws.weights), np.nan)
    return ratio(np.nansum(areas, axis=0), (~np.isnan(areas)).sum(axis=0))


def refinement(draws: Draws) -> Resampled:
    """The Brier score after isotonic recalibration of each event."""
    return draws.once(_refinement)


def miscalibration(draws: Draws) -> Resampled:
    """The part of the Brier score that isotonic recalibration removes."""
    return square_loss(draws) - draws.once(_refinement)


def _refinement(draws: Draws) -> Resampled:
    if not draws.pooled_events:
        return np.full(len(draws.weights), np.nan)
    losses = np.sum([_isotonic_losses(*event) for event in draws.pooled_events], axis=0)
    return losses / min(2, len(draws.pooled_events))


def _isotonic_losses(
    happened: Float[np.ndarray, "resample run"], others: Float[np.ndarray, "resample run"]
) -> Resampled:
    """Mean squared error of the best increasing function f of the stated probability.

    On each block of equal f the events have the mean f, so that Σ (happened − f)² = Σ happened − Σ_blocks weight · f².
    All resamples are fitted in one go, end to end and each above the one before, so that no block goes across.
    """
    total = happened + others
    drawn = np.flatnonzero(total)
    if not len(drawn):
        return np.full(len(total), np.nan)
    resample, hits, counts = drawn // total.shape[1], happened.ravel()[drawn], total.ravel()[drawn]
    starts = isotonic_regression(hits / counts + 2.0 * resample, weights=counts).blocks[:-1]
    hits, counts = np.add.reduceat(hits, starts), np.add.reduceat(counts, starts)
    explained = np.bincount(resample[starts], hits**2 / counts, minlength=len(total))
    return ratio(np.maximum(happened.sum(axis=1) - explained, 0.0), total.sum(axis=1))


def bin_gaps(draws: Draws) -> Statistic:
    """Accuracy minus confidence in each bin of confidence, times its share of the items."""
    return draws.bin_gaps.gaps


def bin_squares(draws: Draws) -> Statistic:
    """Sum over bins of share times squared gap, with its noise and freed of it."""
    return np.stack([draws.bin_gaps.square, draws.bin_gaps.debiased_square], axis=1)


@averaged
def divergence(items: Items) -> Values:
    """Kullback–Leibler divergence from the exact posterior."""
    return divergences(_exact(items), items.probs)


@averaged
def total_variation(items: Items) -> Values:
    """Total variation distance from the exact posterior."""
    return np.abs(items.probs - _exact(items)).sum(axis=1) / 2


@averaged
def square_difference(items: Items) -> Values:
    """Mean square difference from the probabilities of the exact posterior."""
    return ((items.probs - _exact(items)) ** 2).mean(axis=1)


@averaged
def regret(items: Items) -> Values:
    """Probability lost by choosing the label of this posterior and not that of the exact one."""
    exact = _exact(items)
    return exact.max(axis=1) - np.take_along_axis(exact, items.predicted[:, None], axis=1)[:, 0]


def divergences(exact: Posterior, probs: Posterior) -> Float[np.ndarray, " item"]:
    """Kullback–Leibler divergence of each item's estimate from its exact posterior."""
    return np.sum(exact * (safe_log(exact) - safe_log(probs)), axis=1)


def _exact(items: Items) -> Posterior:
    assert items.exact is not None, "scores that need the exact posterior are computed only where it is known"
    return items.exact
