"""Reliability: how often an event happens by its stated probability."""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import isotonic_regression

from latentens.errors import LatentensError
from latentens.runtime.numerics import numpy_generator
from latentens.scores.paired import Labels, Posterior

Points = Float[np.ndarray, " point"]


class Reliability(NamedTuple):
    """How often an event happens by its stated probability.

    Attributes:
        stated: Stated probabilities.
        observed: The share of events there, by isotonic regression; nan outside the range of what was stated.
        low: Lower end of the consistency band: where `observed` lies if the stated probabilities are right.
        high: Upper end of the band.
        p_value: Chance of a calibration part of the Brier score this large if the stated probabilities are right.
    """

    stated: Points
    observed: Points
    low: Points
    high: Points
    p_value: float


class _Statements(NamedTuple):
    """What was stated of an event, items by increasing probability.

    Attributes:
        chances: The stated probability of each item.
        happened: Whether the event happened.
        stated: The distinct stated probabilities.
        tie: Which of these each item has.
        counts: How many items have each.
    """

    chances: Float[np.ndarray, " item"]
    happened: Bool[np.ndarray, " item"]
    stated: Float[np.ndarray, " tie"]
    tie: Int[np.ndarray, " item"]
    counts: Float[np.ndarray, " tie"]

    @classmethod
    def of(cls, chances: Float[np.ndarray, " item"], happened: Bool[np.ndarray, " item"]) -> "_Statements":
        order = np.argsort(chances)
        stated, tie, counts = np.unique(chances[order], return_inverse=True, return_counts=True)
        return cls(chances[order], happened[order], stated, tie, counts.astype(np.float64))

    def recalibrated(self, happened: Bool[np.ndarray, " item"], grid: Points) -> tuple[Points, float]:
        """The isotonic regression of events on stated probabilities, on a grid, and how much loss it saves."""
        shares = np.bincount(self.tie, happened) / self.counts
        fitted = isotonic_regression(shares, weights=self.counts).x
        saved = self.counts @ ((self.stated - shares) ** 2 - (fitted - shares) ** 2)
        return np.interp(grid, self.stated, fitted, left=np.nan, right=np.nan), float(saved)


def reliability(
    labels: Labels, probs: Posterior, *, key: jax.Array, level: float = 0.9, resamples: int = 500, points: int = 201
) -> Reliability:
    """The reliability curve of class 1 or, with more than two classes, of the most probable class being right.

    Args:
        labels: The true label of each item, −1 where it is not known.
        probs: The estimated posterior.
        key: Random key; the same key gives the same band.
        level: Pointwise coverage of the band.
        resamples: Number of times the events are drawn anew from the stated probabilities.
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
    """`reliability` of several posteriors of the same items, in less time since they share random numbers."""
    known = labels >= 0
    if not known.any():
        raise LatentensError("no item has a known label; a reliability curve needs some")
    events = [_Statements.of(*_stated_event(labels[known], probs[known])) for probs in posteriors]
    generator, grid = numpy_generator(key), np.linspace(0, 1, points)
    drawn: list[list[tuple[Points, float]]] = [[] for _ in events]
    for _ in range(resamples):
        uniform = generator.random(np.count_nonzero(known))  # by item: binomial variables take several times as long
        for event, found in zip(events, drawn, strict=True):
            found.append(event.recalibrated(uniform < event.chances, grid))
    bounds, result = [(1 - level) / 2, (1 + level) / 2], []
    for event, found in zip(events, drawn, strict=True):
        (curve, saved), (curves, by_chance) = event.recalibrated(event.happened, grid), zip(*found, strict=True)
        low, high = np.quantile(curves, bounds, axis=0)
        result.append(Reliability(grid, curve, low, high, upper_tail(saved, np.array(by_chance))))
    return result


def _stated_event(labels: Labels, probs: Posterior) -> tuple[Float[np.ndarray, " item"], Bool[np.ndarray, " item"]]:
    if probs.shape[1] == 2:
        return probs[:, 1], labels == 1
    return probs.max(axis=1), labels == probs.argmax(axis=1)


def upper_tail(value: float, by_chance: np.ndarray) -> float:
    """The p-value of a statistic that is large where something is wrong."""
    return float((1 + np.sum(by_chance >= value)) / (1 + len(by_chance)))
