"""Temperatures: what they do to a posterior, and how the best one is found."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from latentens.methods.base import Posterior
from latentens.runtime.numerics import safe_log

TEMPERATURES = 2.0 ** np.arange(-8.0, 3.0)
"""The temperatures that are tried first; the best one lies between the first and the last."""

STEP = 0.2
"""Derivatives with respect to log τ are differences over steps of this size."""

FLAT = 1e-7
"""Mean scores that differ by less than this are equal."""

Score = Callable[[float], Float[np.ndarray, " item"]]
"""The score of each item at a temperature."""


class Temperature(NamedTuple):
    """The best temperature, and how scores depend on it.

    Attributes:
        value: The best temperature.
        standard_error: Its standard error, items being independent of each other; nan where the curve has no peak.
        tried: All temperatures that were tried, in increasing order.
        curve: The mean score of an item at each of them.
    """

    value: float
    standard_error: float
    tried: Float[np.ndarray, " temperature"]
    curve: Float[np.ndarray, " temperature"]


def temper(probs: Posterior, temperature: float) -> Posterior:
    """The posterior p_τ(y) ∝ p(y)^τ: less confident for τ below 1, more confident above, with the same best label."""
    return softmax(temperature * safe_log(probs), axis=1)


def best_temperature(score: Score) -> Temperature:
    """The temperature with the highest mean score; where it makes no difference, the nearest one to 1.

    The standard error is that of an M-estimator: `√Σ g² / |h|` with g the derivative of each item's score and h the
    second derivative of their sum, both with respect to log τ.
    """
    means: dict[float, float] = {}

    def loss(log_temperature: float) -> float:
        temperature = float(np.exp(log_temperature))
        means[temperature] = float(score(temperature).mean())
        return -means[temperature]

    curve = -np.array([loss(log) for log in np.log(TEMPERATURES)])
    equal = np.flatnonzero(curve > curve.max() - FLAT)
    best = equal[np.argmin(np.abs(np.log(TEMPERATURES[equal])))]
    low, high = np.log(TEMPERATURES[[max(best - 1, 0), min(best + 1, len(curve) - 1)]])
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.01})
    value = float(np.exp(found.x)) if -found.fun > curve[best] + FLAT else float(TEMPERATURES[best])
    tried = np.array(sorted(means))
    return Temperature(value, _standard_error(score, value), tried, np.array([means[t] for t in tried]))


def _standard_error(score: Score, value: float) -> float:
    below, here, above = (score(value * float(np.exp(step))) for step in (-STEP, 0.0, STEP))
    slopes, bend = (above - below) / (2 * STEP), float((above + below - 2 * here).sum()) / STEP**2
    return value * float(np.sqrt(np.sum((slopes - slopes.mean()) ** 2))) / -bend if bend < 0 else np.nan
