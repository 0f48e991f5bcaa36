"""Temperatures: what they do to a posterior, and how the best one is found."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from latentens.methods.base import Posterior
from latentens.runtime.numerics import safe_log
from latentens.votes import Votes

TEMPERATURES = np.array([0.0, *2.0 ** np.arange(-6.0, 3.0)])
"""The temperatures that are tried first; at 0 the posterior says that nothing is known."""

TRACE = 1e-6
"""Stands for the temperature 0, so that the best label can still be told."""

LESS, MORE = 1.0, 2.0
"""A posterior is made less or more confident only if the gain is this many times its standard error."""

FEWEST_ITEMS = 50
"""With fewer items a standard error is too rough for a posterior to be made more confident."""

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
        standard_error: Its standard error, items being independent of each other; nan at 0 and where there is no peak.
        tried: All temperatures that were tried, in increasing order.
        curve: The mean score of an item at each of them.
    """

    value: float
    standard_error: float
    tried: Float[np.ndarray, " temperature"]
    curve: Float[np.ndarray, " temperature"]


def temper(probs: Posterior, temperature: float, base: Float[np.ndarray, " label"] | None = None) -> Posterior:
    """The posterior p_τ(y) ∝ b(y)^(1 − τ) p(y)^τ: less confident for τ below 1, more confident above.

    The base b is what is known of an item before its votes, and all that is left at τ = 0; for τ above 1 it does not
    count. The best label stays the best: where the base would change that, it draws level with those ahead of it.

    Args:
        probs: The posterior p.
        temperature: The temperature τ.
        base: The base; even if not given.
    """
    logs = max(temperature, TRACE) * safe_log(probs)
    if base is None or temperature >= 1:
        return softmax(logs, axis=1)
    tempered = softmax(logs + (1 - max(temperature, TRACE)) * np.log(base), axis=1)
    best = probs.argmax(axis=1)
    changed = np.flatnonzero(tempered.argmax(axis=1) != best)
    tempered[changed] = _leading(tempered[changed], best[changed])
    return tempered


def _leading(probs: Posterior, label: Int[np.ndarray, " item"]) -> Posterior:
    """The nearest probabilities of which a given label's is the highest: it draws level with those that were higher."""
    items = np.arange(len(label))
    own = probs[items, label]
    rest = probs.copy()
    rest[items, label] = -1.0
    rest = -np.sort(-rest, axis=1)[:, :-1]
    levels = (own[:, None] + rest.cumsum(axis=1)) / np.arange(2, probs.shape[1] + 1)
    enough = levels >= np.pad(rest[:, 1:], ((0, 0), (0, 1)), constant_values=-1.0)
    level = levels[items, enough.argmax(axis=1)]
    leading = np.minimum(probs, level[:, None])
    leading[items, label] = np.nextafter(level, 1.0)
    return leading


def usual_shares(votes: Votes) -> Float[np.ndarray, " label"]:
    """The share of each class in all votes, each being one vote more: what is known of an item before its votes."""
    cast = votes.tally.sum(axis=0) + 1.0
    return cast / cast.sum()


def best_temperature(score: Score, *, by_labels: bool = False) -> Temperature:
    """The temperature with the highest mean score, if the evidence for it is enough.

    It has to be better than 1 by once the standard error of the difference, or by twice where it is above 1; else it is
    1. What is not better than 0 by once the standard error is 0: nothing is known.

    Args:
        score: The score of each item at a temperature.
        by_labels: Whether items are scored by their labels. Only these can make a posterior more confident: hidden
            votes do not show the errors that voters share.
    """
    scores: dict[float, Float[np.ndarray, " item"]] = {}

    def mean(temperature: float) -> float:
        if temperature not in scores:
            scores[temperature] = score(temperature)
        return float(scores[temperature].mean())

    value = _highest(mean)
    if value != 1 and not _is_evident(scores[value] - scores[1.0], MORE if value > 1 else LESS):
        value = 1.0
    if value > 1 and (not by_labels or len(scores[1.0]) < FEWEST_ITEMS):
        value = 1.0
    if value > 0 and np.ptp(scores[value] - scores[0.0]) > 0 and not _is_evident(scores[value] - scores[0.0], LESS):
        value = 0.0
    tried = np.array(sorted(scores))
    curve = np.array([mean(temperature) for temperature in tried])
    return Temperature(value, _standard_error(score, value), tried, curve)


def _highest(mean: Callable[[float], float]) -> float:
    """Where a curve is highest: the best of `TEMPERATURES`, and then between its neighbours."""
    curve = np.array([mean(float(temperature)) for temperature in TEMPERATURES])
    equal = np.flatnonzero(curve > curve.max() - FLAT)
    best = equal[np.argmin(np.abs(np.log(np.maximum(TEMPERATURES[equal], TEMPERATURES[1] / 2))))]
    if best == 0:
        return 0.0
    low, high = np.log(TEMPERATURES[[max(best - 1, 1), min(best + 1, len(curve) - 1)]])
    found = minimize_scalar(
        lambda log: -mean(float(np.exp(log))), bounds=(low, high), method="bounded", options={"xatol": 0.05}
    )
    return float(np.exp(found.x)) if -found.fun > curve[best] + FLAT else float(TEMPERATURES[best])


def _is_evident(gains: Float[np.ndarray, " item"], times: float) -> bool:
    return bool(gains.mean() > times * gains.std() / np.sqrt(len(gains)))


def _standard_error(score: Score, value: float) -> float:
    """That of an M-estimator, `√Σ g² / |h|`: g is the slope of an item's score in log τ, h the bend of their sum."""
    if value == 0:
        return np.nan
    below, here, above = (score(value * float(np.exp(step))) for step in (-STEP, 0.0, STEP))
    slopes, bend = (above - below) / (2 * STEP), float((above + below - 2 * here).sum()) / STEP**2
    return value * float(np.sqrt(np.sum((slopes - slopes.mean()) ** 2))) / -bend if bend < 0 else np.nan
