"""Reliability curves: how often an event happens, as a function of its stated probability."""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import isotonic_regression

from latentens.errors import LatentensError
from latentens.runtime.numerics import numpy_generator
from latentens.scores.paired import Labels, Posterior

Points = Float[np.ndarray, " point"]


class Reliability(NamedTuple):
    """A reliability curve with its consistency band.

    Attributes:
        stated: Stated probabilities.
        observed: The share of events, by isotonic regression; NaN outside the range of the stated probabilities.
        low: Lower end of the consistency band: where `observed` lies if the stated probabilities are right.
        high: Upper end of the band.
        p_value: Probability of a calibration part of the Brier score this large if the stated probabilities are right.
    """

    stated: Points
    observed: Points
    low: Points
    high: Points
    p_value: float


def reliability(
    labels: Labels, probs: Posterior, *, key: jax.Array, level: float = 0.9, resamples: int = 500, points: int = 201
) -> Reliability:
    """The reliability curve of class 1 or, with more than two classes, of the most probable class being right.

    Args:
        labels: The true label of each item, −1 where unknown.
        probs: The estimated posterior.
        key: Random key; the same key gives the same band.
        level: Pointwise coverage of the band.
        resamples: Number of times events are simulated from the stated probabilities.
        points: Number of stated probabilities, evenly spaced from 0 to 1, at which curve and band are given.
    """
    return reliabilities(labels, [probs], key=key, level=level, resamples=resamples, points=points)[0]


def reliabilities(
    labels: Labels,
    posteriors: Iterable[Posterior],
    *,
    key: jax.Array,
    level: float = 0.9,
    resamples: int = 500,
    points: int = 201,
) -> list[Reliability]:
    """`reliability` of several posteriors of the same items, faster since they share random numbers."""
    known = labels >= 0
    if not known.any():
        raise LatentensError("no item has a known label; a reliability curve needs some")
    curves = [_Curve(labels[known], probs[known], np.linspace(0, 1, points)) for probs in posteriors]
    generator = numpy_generator(key)
    drawn: list[list[tuple[Points, float]]] = [[] for _ in curves]
    for _ in range(resamples):
        uniform = generator.random(np.count_nonzero(known))  # by item: binomial variables take several times as long
        for curve, found in zip(curves, drawn, strict=True):
            found.append(curve.recalibrated(uniform < curve.chances))
    result = []
    for curve, found in zip(curves, drawn, strict=True):
        (observed, saved), (by_chance, saved_by_chance) = curve.recalibrated(curve.happened), zip(*found, strict=True)
        low, high = np.quantile(by_chance, [(1 - level) / 2, (1 + level) / 2], axis=0)
        result.append(Reliability(curve.grid, observed, low, high, upper_tail(saved, np.array(saved_by_chance))))
    return result


class _Curve:
    """The stated probabilities of an event, sorted, and whether it happened."""

    def __init__(self, labels: Labels, probs: Posterior, grid: Points) -> None:
        two = probs.shape[1] == 2
        chances = probs[:, 1] if two else probs.max(axis=1)
        order = np.argsort(chances)
        self.grid, self.chances = grid, chances[order]
        self.happened = (labels == (1 if two else probs.argmax(axis=1)))[order]
        self.stated, self.tie, counts = np.unique(self.chances, return_inverse=True, return_counts=True)
        self.counts = counts.astype(np.float64)

    def recalibrated(self, happened: Bool[np.ndarray, " item"]) -> tuple[Points, float]:
        """The isotonic regression of events on stated probabilities, on the grid, and how much loss it saves."""
        shares = np.bincount(self.tie, happened) / self.counts
        fitted = isotonic_regression(shares, weights=self.counts).x
        saved = self.counts @ ((self.stated - shares) ** 2 - (fitted - shares) ** 2)
        return np.interp(self.grid, self.stated, fitted, left=np.nan, right=np.nan), float(saved)


def upper_tail(value: float, by_chance: np.ndarray) -> float:
    """One-sided Monte Carlo p-value of a statistic that is large under the alternative."""
    return float((1 + np.sum(by_chance >= value)) / (1 + len(by_chance)))
