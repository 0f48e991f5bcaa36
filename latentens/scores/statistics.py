"""What scores are computed from, and paired differences between two posteriors."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import isotonic_regression
from scipy.special import ndtri, stdtr, stdtrit

from latentens.runtime.numerics import safe_log
from latentens.scores.items import Draws, Items, Labels, Posterior, Resampled, Statistic, Values, ratio

LATTICE = 2**15
"""Steps from zero to the largest difference on which the null distribution of a weighted sign test is laid out."""


class PairedDifference(NamedTuple):
    """A score of a first posterior minus that of a second one on the same items, its interval, and its p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def compare_accuracy(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Accuracy of the first posterior minus that of the second, with McNemar's exact test.

    Only items that just one of them labels correctly count for the test: under equal accuracies each of the two is
    right on half of these. The interval is that of Agresti & Min (2005): half an item is added to each of the four
    cells of the table of rights and wrongs, then the normal interval is taken.
    """
    return _compare_rights(labels, first, second, np.zeros_like(labels), level)


def compare_balanced_accuracy(
    labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95
) -> PairedDifference:
    """Balanced accuracy of the first posterior minus that of the second, with McNemar's test stratified by class.

    Test and interval are those of `compare_accuracy`, each class weighted by one over its number of items: under the
    null hypothesis the items of each class on which just one is right are split by fair coins.
    """
    return _compare_rights(labels, first, second, labels, level)


def compare_log_scores(labels: Labels, first: Posterior, second: Posterior, *, level: float = 0.95) -> PairedDifference:
    """Log score of the first posterior minus that of the second: negative where the first is better.

    Interval and p-value are those of Student's t for the mean of the items' differences.
    """
    known = labels >= 0
    gains = (log_losses(labels, first) - log_losses(labels, second))[known]
    if len(gains) < 2:
        return PairedDifference(*gains, *[np.nan] * (4 - len(gains)))
    mean, error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    margin = float(stdtrit(len(gains) - 1, (1 + level) / 2)) * error
    p_value = 2 * stdtr(len(gains) - 1, -abs(mean) / error) if error > 0 else float(mean == 0)
    return PairedDifference(mean, mean - margin, mean + margin, float(p_value))


def holm(p_values: Sequence[float] | Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Holm's (1979) adjusted p-values: below α together at most with probability α if no null hypothesis is false.

    A test whose p-value is nan does not count.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")  # nan comes last
    size = int(np.sum(~np.isnan(values)))
    factors = np.maximum(size - np.arange(len(values)), 1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * values[order]), 1.0)
    return adjusted


def log_losses(labels: Labels, probs: Posterior) -> Float[np.ndarray, " item"]:
    """−log p(true label) of each item, nan where it is not known."""
    stated = np.take_along_axis(probs, np.maximum(labels, 0)[:, None].astype(np.intp), axis=1)[:, 0]
    return np.where(labels >= 0, -safe_log(stated), np.nan)


def _compare_rights(
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
    margin = _two_sided(level) * np.sqrt(variance.sum()) / len(sizes)
    difference, p_value = float(np.mean(gain / sizes)), _sign_test(wins, losses, 1 / sizes)
    return PairedDifference(difference, float(centre - margin), float(centre + margin), p_value)


def _sign_test(
    wins: Int[np.ndarray, " stratum"], losses: Int[np.ndarray, " stratum"], weights: Float[np.ndarray, " stratum"]
) -> float:
    """Chance that |Σ_s weight_s (wins_s − losses_s)| is as large or larger if wins and losses are equally likely.

    The sum's distribution is the convolution of binomials on a lattice; the rounding to the lattice can only enlarge
    the p-value.
    """
    from scipy.signal import fftconvolve  # slow to import, as is scipy.stats, and needed only here
    from scipy.stats import binom, binomtest

    played = wins + losses
    wins, weights, played = wins[played > 0], weights[played > 0], played[played > 0]
    if len(played) == 0:
        return 1.0
    if len(played) == 1:
        return float(binomtest(int(wins[0]), int(played[0])).pvalue)
    step = float(played @ weights) / LATTICE
    chance = np.ones(1)
    for total, weight in zip(played, weights, strict=True):
        places = np.rint((2 * np.arange(total + 1) - total) * weight / step).astype(np.intp)
        stratum = np.bincount(places - places[0], binom.pmf(np.arange(total + 1), total, 0.5), 2 * places[-1] + 1)
        chance = fftconvolve(chance, stratum)
    sums = np.abs(np.arange(len(chance)) - len(chance) // 2) * step
    observed = abs(float((2 * wins - played) @ weights)) - len(played) * step
    return float(np.clip(chance[sums >= observed].sum(), 0.0, 1.0))


def _two_sided(level: float) -> float:
    return float(ndtri((1 + level) / 2))


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
