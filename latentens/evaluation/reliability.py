"""Reliability: how often an event happens by its stated probability."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import isotonic_regression

from latentens.errors import LatentensError
from latentens.evaluation.items import Labels, Posterior
from latentens.runtime.randomness import numpy_generator

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
    known = labels >= 0
    if not known.any():
        raise LatentensError("no item has a known label; a reliability curve needs some")
    stated, happened = _stated_event(labels[known], probs[known])
    order = np.argsort(stated)
    chances = stated[order]
    starts = np.flatnonzero(np.diff(chances, prepend=-np.inf))
    stated, counts = chances[starts], np.diff(starts, append=len(chances)).astype(np.float64)
    hits = np.add.reduceat(happened[order], starts, dtype=np.float64)
    generator, grid = numpy_generator(key), np.linspace(0, 1, points)
    curve, part = _recalibrate(stated, hits, counts, grid)
    # item by item, since binomial variables take several times as long
    draws = (np.add.reduceat(generator.random(len(chances)) < chances, starts) for _ in range(resamples))
    curves, parts = zip(*(_recalibrate(stated, drawn, counts, grid) for drawn in draws), strict=True)
    low, high = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Reliability(grid, curve, low, high, upper_tail(part, np.array(parts)))


def _recalibrate(
    stated: Float[np.ndarray, " tie"], hits: Float[np.ndarray, " tie"], counts: Float[np.ndarray, " tie"], grid: Points
) -> tuple[Points, float]:
    """The isotonic regression of events on distinct stated probabilities, on a grid, and how much loss it saves."""
    shares = hits / counts
    fitted = isotonic_regression(shares, weights=counts).x
    saved = counts @ ((stated - shares) ** 2 - (fitted - shares) ** 2)
    return np.interp(grid, stated, fitted, left=np.nan, right=np.nan), float(saved)


def _stated_event(labels: Labels, probs: Posterior) -> tuple[Float[np.ndarray, " item"], Bool[np.ndarray, " item"]]:
    if probs.shape[1] == 2:
        return probs[:, 1], labels == 1
    return probs.max(axis=1), labels == probs.argmax(axis=1)


def upper_tail(value: float, by_chance: np.ndarray) -> float:
    """The p-value of a statistic that is large where something is wrong."""
    return float((1 + np.sum(by_chance >= value)) / (1 + len(by_chance)))
