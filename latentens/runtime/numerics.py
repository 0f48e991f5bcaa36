"""Small numerical helpers."""

import numpy as np
from jaxtyping import Float

FIVE_POINT_DERIVATIVES = (
    np.array([[1, -1, -6, 12], [-8, 16, 12, -48], [0, -30, 0, 72], [8, 16, -12, -48], [-1, -1, 6, 12]]) / 12
)
"""Five heights at equal distances times this are the derivatives at the middle one, the first to the fourth, of the
polynomial through them, in units of the distance."""

SMALLEST = np.finfo(np.float64).tiny
"""The smallest positive normal number: the floor under every logarithm."""


def safe_log(probs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Logarithms that stay finite at probability zero, so that 0 · log 0 is 0."""
    return np.log(np.maximum(probs, SMALLEST))


def entropy(probs: Float[np.ndarray, "*shape label"]) -> Float[np.ndarray, "*shape"]:
    """Entropies of distributions, in nats."""
    return -(probs * safe_log(probs)).sum(axis=-1)
