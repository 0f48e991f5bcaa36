"""Random numbers for code that works in NumPy."""

from typing import Any

import jax
import numpy as np


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator, seeded by a JAX key."""
    return np.random.default_rng(key_words(key))


def key_from(generator: np.random.Generator) -> jax.Array:
    """A JAX key, drawn by NumPy: nothing is compiled for it, as for splitting a key."""
    words: Any = generator.integers(2**32, size=2, dtype=np.uint32)
    return jax.random.wrap_key_data(words)


def some_key() -> jax.Array:
    """A key for runs in which only shapes matter; nothing is compiled for it."""
    return key_from(np.random.default_rng(0))


def key_words(key: jax.Array) -> tuple[int, ...]:
    """What seeds `numpy_generator`: numbers by which results of a key can be kept and looked up."""
    return tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())
