"""Small numerical helpers."""

import numpy as np
from jaxtyping import Float

SMALLEST = np.finfo(np.float64).tiny
"""The smallest positive normal number: the floor under every logarithm."""


def safe_log(probs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Logarithms that stay finite at probability zero, so that 0 · log 0 is 0."""
    return np.log(np.maximum(probs, SMALLEST))


def entropy(probs: Float[np.ndarray, "*shape label"]) -> Float[np.ndarray, "*shape"]:
    """Entropies of distributions, in nats."""
    return -(probs * safe_log(probs)).sum(axis=-1)
