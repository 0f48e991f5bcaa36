"""Random numbers for code that works in NumPy."""

import jax
import numpy as np


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator, seeded by a JAX key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
