"""Random numbers for code that works in NumPy."""

import jax
import numpy as np


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator, seeded by a JAX key."""
    return np.random.default_rng(key_words(key))


def key_words(key: jax.Array) -> tuple[int, ...]:
    """What seeds `numpy_generator`: numbers by which results of a key can be kept and looked up."""
    return tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())
