"""How many gold labels, of items drawn at random, would settle a question that votes leave open."""

import numpy as np
from scipy.special import ndtri

from latentens.recommendation.expected_scores import TwinScores
from latentens.runtime.numerics import safe_log
from latentens.scores.items import Posterior

LEVEL = 0.05
POWER = 0.8

CERTAIN = 1e-6
"""Posteriors are kept this far from 0 and 1: one label must not settle everything."""


def to_tell_methods(scores: TwinScores, better: str, worse: str) -> float:
    """Labels until McNemar's test finds that a method labels better than another, if this is the world."""
    only_one, only_other = [], []
    for twin in scores.twins:
        right, other = (twin.posteriors[name].argmax(axis=1) == twin.labels for name in (better, worse))
        only_one.append(np.mean(right & ~other))
        only_other.append(np.mean(other & ~right))
    return mcnemar_number(float(np.mean(only_one)), float(np.mean(only_other)))


def mcnemar_number(only_one: float, only_other: float) -> float:
    """Items that McNemar's test needs, from the shares on which just one of two methods is right (Miettinen 1968)."""
    discordant, gain = only_one + only_other, only_one - only_other
    if gain == 0:
        return np.inf
    spread = np.sqrt(max(discordant - gain**2, 0.0))
    return float(np.ceil((_z(1 - LEVEL / 2) * np.sqrt(discordant) + _z(POWER) * spread) ** 2 / gain**2))


def to_tell_worlds(first: Posterior, second: Posterior) -> float:
    """Labels until one of two posteriors of the same items is found to predict them better, whichever is right.

    If the first is right, an item's label has the log-likelihood ratio log p(y) / q(y) with y drawn from p. The sum of
    n of these is normal; n is such that it is clear of zero, in the less fortunate of the two cases.
    """
    return max(_ratio_number(first, second), _ratio_number(second, first))


def _ratio_number(right: Posterior, wrong: Posterior) -> float:
    right, wrong = (np.clip(probs, CERTAIN, 1.0) for probs in (right, wrong))
    ratio = safe_log(right) - safe_log(wrong)
    mean = float((right * ratio).sum(axis=1).mean())
    variance = float((right * ratio**2).sum(axis=1).mean()) - mean**2
    return float(np.ceil((_z(1 - LEVEL / 2) + _z(POWER)) ** 2 * variance / mean**2)) if mean > 0 else np.inf


def to_check_accuracy(expected: float, drop: float = 0.1) -> float:
    """Labels until an accuracy that lies so much below the expected one is found out (normal approximation)."""
    low = max(expected - drop, 1e-3)
    spread = _z(1 - LEVEL) * np.sqrt(expected * (1 - expected)) + _z(POWER) * np.sqrt(low * (1 - low))
    return float(np.ceil((spread / drop) ** 2))


def to_measure_accuracy(margin: float) -> float:
    """Labels until an accuracy is known up to that margin: two standard errors, which are at most 1 / √n."""
    return float(np.ceil(margin**-2))


def _z(probability: float) -> float:
    return float(ndtri(probability))
