"""Double precision, switched on around each entry point and nowhere else."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from latentens.runtime.quick_compilation import compile_quickly

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
