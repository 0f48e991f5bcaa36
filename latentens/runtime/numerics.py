"""Numerics: float64 locally, a NumPy generator from a key, logarithms of zero."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentens.errors import LatentensError
from latentens.runtime.compilation import compile_quickly

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def double_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run `function` with 64-bit floats, leaving JAX's global configuration as the caller has it."""

    @functools.wraps(function)
    def in_double_precision(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return in_double_precision


def numpy_result(function: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
    """Run `function` with 64-bit floats and hand its result out in NumPy.

    A 64-bit JAX array is of little use to a caller who has not switched 64 bits on: arithmetic turns it into 32 bits.
    """

    @functools.wraps(function)
    @double_precision
    def with_numpy_result(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Any:
        return jax.device_get(function(*args, **kwargs))

    return with_numpy_result


def numpy_draw(method: Callable[..., dict[str, jax.Array]]) -> Callable[..., dict[str, np.ndarray]]:
    """Compile a method `(self, key) -> arrays` of a hashable object and hand its result out in NumPy."""
    return numpy_result(compile_quickly(method, static_argnums=0))


def check_key(key: Any) -> None:
    """Raise `LatentensError` unless `key` is a random key; a seed, for example, is not."""
    is_array = isinstance(key, jax.Array | np.ndarray)
    if not is_array or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == np.uint32):
        seed = key if isinstance(key, int) else 0
        raise LatentensError(f"key must be a random key such as jax.random.key({seed}), not {key!r}")


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator, seeded by a JAX key."""
    check_key(key)
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def key_from(generator: np.random.Generator) -> jax.Array:
    """A JAX key, drawn by NumPy: nothing is compiled for it, as for splitting a key."""
    words: Any = generator.integers(2**32, size=2, dtype=np.uint32)
    return jax.random.wrap_key_data(words)


def some_key() -> jax.Array:
    """A key for runs in which only shapes matter; nothing is compiled for it."""
    return key_from(np.random.default_rng(0))


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


def row_maxima(array: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " row"]:
    """The largest number of each row by halves of the columns, which is faster than `max(axis=1)` if they are few."""
    while (size := array.shape[1]) > 1:
        half = (size + 1) // 2
        array = np.maximum(array[:, :half], array[:, -half:])
    return array[:, 0]


def fault_of(probs: Any, shape: tuple[int, ...], rounding: float = 1e-6) -> str:
    """Why an array does not have this shape and rows of probabilities, in words that follow its name; "" if it does.

    Args:
        probs: The array.
        shape: The shape.
        rounding: How far below 0 a probability may be, and how far from 1 the sum of a row.
    """
    if np.shape(probs) != shape:
        return f"has the shape {np.shape(probs)}, not {shape}"
    values = np.asarray(probs, dtype=float)
    for words, wrong in (
        ("is not finite", ~np.isfinite(values)),
        ("has a negative probability", values < -rounding),
        ("does not add up to 1", np.abs(values @ np.ones(shape[1]) - 1.0) > rounding),
    ):
        if wrong.any():
            row = int(np.argwhere(wrong)[0, 0])
            return f"{words} in row {row}: {', '.join(f'{value:.6g}' for value in values[row, :5])}"
    return ""


def entropy(probs: Float[np.ndarray, "*shape label"]) -> Float[np.ndarray, "*shape"]:
    """Entropies of distributions, in nats."""
    return -(probs * safe_log(probs)).sum(axis=-1)
