"""Rectified means: what proxies say about all items, corrected by gold labels on a random sample of them.

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

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks

PerUnit = Float[np.ndarray, " unit"]


class Urn(NamedTuple):
    """Resampled populations: the share of each sampling unit, last the one that nobody saw; rows sum to one.

    Attributes:
        items: Shares in resampled versions of the voted items.
        population: Shares in resampled versions of the population that the items are a sample of.
    """

    items: Float[np.ndarray, "draw unit_and_one"]
    population: Float[np.ndarray, "draw unit_and_one"]

    def of_units(self, units: Int[np.ndarray, " some"]) -> "Urn":
        """The same populations without the other units."""
        kept = np.append(units, self.items.shape[1] - 1)
        items, population = self.items[:, kept], self.population[:, kept]
        return Urn(items / items.sum(axis=1, keepdims=True), population / population.sum(axis=1, keepdims=True))


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
    items = counts / counts.sum(axis=1, keepdims=True)
    if population is None or population <= num_items:
        return Urn(items, items)
    grown = generator.standard_gamma(counts)
    grown /= grown.sum(axis=1, keepdims=True)
    if np.isfinite(population):
        grown = counts + generator.multinomial(round(population - num_items), grown)
        grown /= grown.sum(axis=1, keepdims=True)
    return Urn(items, grown)


class Sample(NamedTuple):
    """A quantity on the labelled items, and its proxies there and on all items.

    Attributes:
        top: The values a of labelled items.
        bottom: The values b of labelled items.
        top_proxies: Predictions of a for labelled items.
        bottom_proxies: Predictions of b for labelled items.
        mean_top_proxies: Means of the predictions of a over the items that may be sampled: for each labelled item those
            that its predictor has not seen, or one row for all.
        mean_bottom_proxies: Likewise of b.
        weights: One over the probability with which each labelled item was sampled, or a constant.
        possible: All pairs (a, b) that an item may have.
        unit: The sampling unit of each labelled item, 0 … n−1.
    """

    top: Float[np.ndarray, " label"]
    bottom: Float[np.ndarray, " label"]
    top_proxies: Float[np.ndarray, "label proxy"]
    bottom_proxies: Float[np.ndarray, "label proxy"]
    mean_top_proxies: Float[np.ndarray, "#label proxy"]
    mean_bottom_proxies: Float[np.ndarray, "#label proxy"]
    weights: Float[np.ndarray, " label"]
    possible: Float[np.ndarray, "pair 2"]
    unit: Int[np.ndarray, " label"] | None = None


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
    """A quantity from gold labels alone, and with the proxies."""

    gold: Interval
    rectified: Interval


def rectify(
    sample: Sample, urn: Urn, level: float = 0.95, slopes: Float[np.ndarray, " proxy"] | None = None
) -> Rectified:
    """Estimate a quantity with and without proxies; `sample.bottom` must not sum to zero.

    Args:
        sample: The quantity on the labelled items.
        urn: Resampled populations of the units.
        level: Coverage of the intervals.
        slopes: Slopes β to take instead of fitted ones.
    """
    weights = sample.weights / sample.weights.mean()
    ratio = float(weights @ sample.top / (weights @ sample.bottom))
    correction = corrections(sample, ratio, slopes)
    pairs = sample.possible[np.argsort(sample.possible @ [1.0, -ratio])[[-1, 0]]]
    within = sample.possible[sample.possible[:, 1] > 0]
    ends = (within[:, 0] / within[:, 1]).min(), (within[:, 0] / within[:, 1]).max()
    values = np.stack([sample.top, correction, sample.bottom], axis=1)
    weighted = weights[:, None] * values
    if sample.unit is not None:  # the values of a unit are sums over its items
        values = weighted = np.stack([np.bincount(sample.unit, column) for column in weighted.T], axis=1)
    size = weights.sum() / len(values)  # of the unit that nobody saw, favourable in the first half of the populations
    favourable = np.arange(len(urn.items)) < len(urn.items) // 2
    padded = np.vstack([values, np.zeros(3)])
    above, _, below = (urn.population @ padded).T + size * urn.population[:, -1] * np.where(
        favourable, *(np.array([[a, 0.0, b]]).T for a, b in pairs)
    )
    changes = correction.max(), correction.min()
    changed = urn.items @ padded[:, 1] + size * urn.items[:, -1] * np.where(favourable, *changes)
    found = []
    for used in (0.0, 1.0):
        drawn = ((above + used * changed) / np.where(below > 0, below, np.nan)).clip(*ends)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        estimate = float(np.clip(weighted.sum(axis=0) @ [1.0, used, 0.0] / weighted[:, 2].sum(), *ends))
        linear = weighted @ [1.0, used, -estimate] / weighted[:, 2].mean()
        variance = float(linear.var(ddof=1)) if len(linear) > 1 else np.nan
        found.append(Interval(estimate, min(float(low), estimate), max(float(high), estimate), variance, drawn))
    return Rectified(*found)


SIGNAL = np.append(0.0, 4.0 ** np.arange(-2, 8))
"""Prior variances of the slopes that are tried, in units of the noise of one label over the spread of the proxies."""


def corrections(
    sample: Sample, ratio: float, slopes: Float[np.ndarray, " proxy"] | None = None
) -> Float[np.ndarray, " label"]:
    """The correction of each labelled item, rᵢ = (x̄ − xᵢ)·β.

    What the slopes took from the residuals is given back: these are stretched by √((n − 1)/(n − 1 − f)), where f are
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
    # Marginal likelihood of labels with slopes β ~ N(0, s σ² / spread): the noise variance σ² is profiled out.
    sizes, axes = np.linalg.eigh((weights[:, None] * centred).T @ centred)
    along = axes.T @ (centred.T @ (weights * values))
    spread, power = sizes.sum() / max(len(sizes), 1), float(weights @ values**2)
    if spread <= 0 or power <= 0:
        return np.zeros(len(values))
    prior = SIGNAL[:, None] / spread
    left = np.maximum(power - (prior * along**2 / (1 + prior * sizes)).sum(axis=1), np.finfo(float).eps * power)
    units = len(values) if sample.unit is None else int(sample.unit.max()) + 1
    evidence = -(units - 1) / 2 * np.log(left) - np.log1p(prior * sizes).sum(axis=1) / 2
    best = int(np.argmax(evidence))
    if best == 0:
        return np.zeros(len(values))
    penalised = sizes + 1 / prior[best, 0]
    slopes = axes @ (along / penalised)
    spent = (sizes / penalised).sum()  # degrees of freedom
    residual = values - centred @ slopes
    stretch = np.sqrt((units - 1) / max(units - 1 - spent, 1.0))
    return away @ slopes + (stretch - 1) * residual
