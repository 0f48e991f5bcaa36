"""Rectified means: predictions of proxies for all items, corrected by gold labels on a random sample of them.

A quantity is a ratio of two means over the items, θ = Σ aᵢ / Σ bᵢ, where a and b depend on the label of the item: for a
plain mean b = 1, for the sensitivity of a voter b = 1{y = 1} and a = 1{y = 1, x = 1}. On labelled items a and b are
known; on all items proxies predict them. With u = a − θ b, which has mean zero, and proxies x of u, the rectified
estimate regresses u on x among labelled items and corrects for how much the sample's x differ from all items' (PPI++
of Angelopoulos, Duchi & Zrnic 2023; the regression estimator of survey sampling):

    θ̂ = Σₙ (a + r) / Σₙ b,    rᵢ = (x̄ − xᵢ)·β.

The slopes β are shrunk towards zero, which is gold labels alone, by the marginal likelihood of the labels. Proxies must
not have seen the label of an item whose value they predict. Leaving an item out of the fit of its own slopes, too, was
worse: with a single label of a rare class all corrections of the others rest on it and its own on none.

The interval comes from resampled populations. An exact interval for a proportion is that of Clopper & Pearson; its
mid-P version consists of the central quantiles of a distribution: the unseen items are drawn from a Pólya urn that
holds the n labels and one more, which with equal probability is the most favourable or the least favourable possible
one. For values a + r that are not 0 or 1 the same urn gives Gaffke's (2005) interval for the mean of bounded values. It
is the exact binomial or hypergeometric mid-P interval where the votes say nothing, and it remembers that errors of the
proxies may exist though the sample shows none.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks

PerUnit = Float[np.ndarray, " unit"]


class Urn(NamedTuple):
    """Resampled populations: the share of each sampling unit, last the unseen one; rows sum to one.

    Attributes:
        items: Shares in resampled versions of the voted items.
        population: Shares in resampled versions of the population that the items are a sample of.
        has_weights: Whether units that were sampled with a small probability have larger shares.
    """

    items: Float[np.ndarray, "draw unit_and_one"]
    population: Float[np.ndarray, "draw unit_and_one"]
    has_weights: bool = False


def draw_urn(
    generator: np.random.Generator,
    num_draws: int,
    num_units: int,
    num_items: float,
    population: float | None = None,
    probabilities: PerUnit | None = None,
) -> Urn:
    """Populations that the labelled units may come from.

    Args:
        generator: The random generator.
        num_draws: Number of populations, half of them with each kind of unseen unit.
        num_units: Number of labelled units n.
        num_items: Number of units N that they were sampled from.
        population: Number of units that these were sampled from; None: they are the population.
        probabilities: The probability with which each labelled unit was sampled, if they differ: a unit then stands for
            a geometric number of units with mean one over its probability, whose variance is that of Poisson sampling.
    """
    if probabilities is not None:
        each = np.append(probabilities, num_units / (1 / probabilities).sum())
        counts = generator.geometric(np.broadcast_to(each, (num_draws, num_units + 1))).astype(float)
        counts[:, -1] -= 1
    else:
        shares = generator.standard_exponential((num_draws, num_units + 1))
        shares /= shares.sum(axis=1, keepdims=True)
        if np.isinf(num_items):
            return Urn(shares, shares)
        counts = np.zeros((num_draws, num_units + 1))
        counts[:, :-1] = 1
        if num_items > num_units:
            for block in row_blocks(num_draws, num_units + 1, BLOCK_ELEMENTS):
                counts[block] += generator.multinomial(round(num_items) - num_units, shares[block])
    items, has_weights = counts / counts.sum(axis=1, keepdims=True), probabilities is not None
    if population is None or population <= num_items:
        return Urn(items, items, has_weights)
    grown = generator.standard_gamma(counts)
    grown /= grown.sum(axis=1, keepdims=True)
    if np.isfinite(population):
        grown = counts + generator.multinomial(round(population - num_items), grown)
        grown /= grown.sum(axis=1, keepdims=True)
    return Urn(items, grown, has_weights)


class Sample(NamedTuple):
    """A quantity on the labelled items, and its proxies there and on all items.

    Attributes:
        top: The values a of labelled items.
        bottom: The values b of labelled items.
        top_proxies: Predictions of a for labelled items.
        bottom_proxies: Predictions of b for labelled items.
        mean_top_proxies: Means of the predictions of a over the items that may be sampled: for each labelled item those
            that its predictor has not seen, or one row for all.
        mean_bottom_proxies: Means of the predictions of b over the same items.
        weights: One over the probability with which each labelled item was sampled, or a constant.
        possible: All pairs (a, b) that an item may have.
        unit: The sampling unit of each labelled item, as its place in the urn.
    """

    top: Float[np.ndarray, " label"]
    bottom: Float[np.ndarray, " label"]
    top_proxies: Float[np.ndarray, "label proxy"]
    bottom_proxies: Float[np.ndarray, "label proxy"]
    mean_top_proxies: Float[np.ndarray, "#label proxy"]
    mean_bottom_proxies: Float[np.ndarray, "#label proxy"]
    weights: Float[np.ndarray, " label"]
    possible: Float[np.ndarray, "pair 2"]
    unit: Int[np.ndarray, " label"]


class Interval(NamedTuple):
    """An estimate with its interval.

    Attributes:
        estimate: The estimate.
        low: Lower end of its interval.
        high: Upper end.
        variance: Variance of the contribution of one labelled unit.
        draws: The quantity in each resampled population.
    """

    estimate: float
    low: float
    high: float
    variance: float
    draws: Float[np.ndarray, " draw"]


class Rectified(NamedTuple):
    """A quantity from gold labels alone, and with the proxies if that makes its interval narrower."""

    gold: Interval
    rectified: Interval


def rectify(
    samples: Sequence[Sample], urn: Urn, level: float = 0.95, slopes: Float[np.ndarray, " proxy"] | None = None
) -> list[Rectified]:
    """Estimate quantities with and without proxies; no `bottom` may sum to zero.

    Args:
        samples: The quantities on the labelled items.
        urn: Resampled populations of the units.
        level: Coverage of the intervals.
        slopes: Slopes β to take instead of fitted ones.
    """
    blocks = row_blocks(len(samples), 4.0 * len(urn.items), BLOCK_ELEMENTS)
    return [found for block in blocks for found in _rectify(samples[block], urn, level, slopes)]


def _rectify(samples: Sequence[Sample], urn: Urn, level: float, slopes: np.ndarray | None) -> Iterator[Rectified]:
    (num_draws, columns), count = urn.items.shape, len(samples)
    favourable = np.arange(num_draws) < num_draws // 2  # so is the unseen unit of these populations
    values, unseen, of_units = np.zeros((4, columns, count)), np.zeros((2, 4, count)), []
    for number, sample in enumerate(samples):
        weights = sample.weights / sample.weights.mean()
        ratio = float(weights @ sample.top / (weights @ sample.bottom))
        change = corrections(sample, ratio, slopes)
        of_items = np.stack([sample.top, change, sample.bottom, np.ones(len(change))], axis=1)
        units, place = np.unique(sample.unit, return_inverse=True)
        weighted = np.stack([np.bincount(place, weights * column) for column in of_items.T], axis=1)
        of_units.append(weighted)
        values[:, units, number] = (of_items[np.argsort(sample.unit)] if urn.has_weights else weighted).T
        extremes = sample.possible[np.argsort(sample.possible @ [1.0, -ratio])[[-1, 0]]]
        for side, ((top, bottom), furthest) in enumerate(zip(extremes, (change.max(), change.min()), strict=True)):
            unseen[side, :, number] = weights.sum() / len(units) * np.array([top, furthest, bottom, 1.0])
    # Sums over each population: of a, of the corrections, of b, and of the size of the part that a quantity is about.
    values[:, -1, :] = unseen.mean(axis=0)
    half = (unseen[0] - unseen[1]) / 2
    swing = np.where(favourable, 1.0, -1.0)[:, None]
    top, bottom, size = (
        urn.population @ values[part] + swing * urn.population[:, -1:] * half[part] for part in (0, 2, 3)
    )
    change, own_size = (urn.items @ values[part] + swing * urn.items[:, -1:] * half[part] for part in (1, 3))
    change *= size / own_size
    bottom[bottom <= 0] = np.nan
    ends = np.array([_ends(sample.possible) for sample in samples]).T
    drawn = (np.stack([top, top + change]) / bottom).clip(*ends)
    limits = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=1)
    for number, weighted in enumerate(of_units):
        intervals = []
        for used in (0, 1):
            estimate = float(np.clip(weighted.sum(axis=0) @ [1, used, 0, 0] / weighted[:, 2].sum(), *ends[:, number]))
            linear = weighted @ [1, used, -estimate, 0] / weighted[:, 2].mean()
            variance = float(linear.var(ddof=1)) if len(linear) > 1 else np.nan
            low, high = limits[:, used, number].tolist()
            intervals.append(
                Interval(estimate, min(low, estimate), max(high, estimate), variance, drawn[used, :, number])
            )
        gold, rectified = intervals
        is_narrower = rectified.high - rectified.low < gold.high - gold.low
        yield Rectified(gold, rectified if is_narrower or slopes is not None else gold)


def _ends(possible: Float[np.ndarray, "pair 2"]) -> tuple[float, float]:
    """The range of the quantity."""
    ratios = possible[possible[:, 1] > 0, 0] / possible[possible[:, 1] > 0, 1]
    return float(ratios.min()), float(ratios.max())


def corrections(
    sample: Sample, ratio: float, slopes: Float[np.ndarray, " proxy"] | None = None
) -> Float[np.ndarray, " label"]:
    """The correction of each labelled item, rᵢ = (x̄ − xᵢ)·β.

    A proxy predicts the value itself, so a slope of one takes it at its word. Together the slopes are at most one: what
    they predict lies in the range of the values, and a steep piece of a curve is not extended beyond it.

    Residuals are too small after the fit of the slopes, so they are stretched by √((n − 1)/(n − 1 − f)), where f are
    the degrees of freedom of the slopes.

    Args:
        sample: The quantity on the labelled items.
        ratio: Its value θ by gold labels alone.
        slopes: Slopes β to take instead of fitted ones.
    """
    weights = sample.weights / sample.weights.mean()
    proxies = sample.top_proxies - ratio * sample.bottom_proxies
    away = sample.mean_top_proxies - ratio * sample.mean_bottom_proxies - proxies
    if slopes is not None:
        return away @ slopes
    values = sample.top - ratio * sample.bottom
    total = weights.sum()
    centred = proxies - weights @ proxies / total
    values = values - weights @ values / total
    # Marginal likelihood of labels with slopes β ~ N(0, s σ² n / Σ u²): the noise variance σ² is profiled out.
    sizes, axes = np.linalg.eigh((weights[:, None] * centred).T @ centred)
    along = axes.T @ (centred.T @ (weights * values))
    power, units = float(weights @ values**2), len(np.unique(sample.unit))
    if power <= 0:
        return np.zeros(len(values))
    prior = np.append(0.0, 4.0 ** np.arange(-5, 2))[:, None] * units / power  # the values of s that are tried
    left = np.maximum(power - (prior * along**2 / (1 + prior * sizes)).sum(axis=1), np.finfo(float).eps * power)
    evidence = -(units - 1) / 2 * np.log(left) - np.log1p(prior * sizes).sum(axis=1) / 2
    best = int(np.argmax(evidence))
    if best == 0:
        return np.zeros(len(values))
    penalised = sizes + 1 / prior[best, 0]
    slopes = axes @ (along / penalised)
    slopes /= max(np.abs(slopes).sum(), 1.0)
    spent = (sizes / penalised).sum()  # degrees of freedom
    residual = values - centred @ slopes
    stretch = np.sqrt((units - 1) / max(units - 1 - spent, 1.0))
    return away @ slopes + (stretch - 1) * residual
