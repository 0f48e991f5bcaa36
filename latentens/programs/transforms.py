"""Between parameters and unconstrained space in NumPy, as flat vectors, with the derivatives of the way there.

The transforms are those of NumPyro's `biject_to`. Where a parameter has other bounds than those written here, or
bounds that depend on other parameters, all of them go through NumPyro, compiled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from scipy.special import expit

from latentens.programs.contract import inspect
from latentens.programs.marginal import FARTHEST, trace_parameters, unconstrain, unpack
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.compilation import compile_quickly
from latentens.runtime.numerics import SMALLEST, some_key

Flat = Float[np.ndarray, " element"]
Shapes = Mapping[str, tuple[int, ...]]

NEARLY_ONE = 1 - np.finfo(np.float64).eps


def flatten(arrays: Params, names: Shapes) -> Flat:
    """Arrays one after the other in the order of the names."""
    return np.concatenate([np.ravel(arrays[name]) for name in names], dtype=np.float64)


def unflatten(flat: Any, shapes: Shapes) -> dict[str, Any]:
    """The arrays of a vector, of NumPy or JAX."""
    found, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        found[name] = flat[start:stop].reshape(shape)
        start = stop
    return found


class Transform(Protocol):
    """One parameter, or all of them: from unconstrained space to their own and back."""

    def constrain(self, point: Any) -> Any:
        """The parameters at a point."""

    def unconstrain(self, params: Any) -> Any:
        """The point of some parameters; those at a bound are moved a little inside."""

    def pull_back(self, point: Any, params: Any, gradient: Any) -> Any:
        """The derivatives of something by the point, given those by the parameters."""


class _Real:
    def constrain(self, point: np.ndarray) -> np.ndarray:
        return point

    def unconstrain(self, params: np.ndarray) -> np.ndarray:
        return params

    def pull_back(self, point: np.ndarray, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        del point, params
        return gradient


@dataclass(frozen=True)
class _Above:
    lowest: float

    def constrain(self, point: np.ndarray) -> np.ndarray:
        return self.lowest + np.exp(point)

    def unconstrain(self, params: np.ndarray) -> np.ndarray:
        return _inside(np.log(np.maximum(params - self.lowest, 0.0)))

    def pull_back(self, point: np.ndarray, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        del point
        return gradient * (params - self.lowest)


@dataclass(frozen=True)
class _Between:
    lowest: float
    highest: float

    def constrain(self, point: np.ndarray) -> np.ndarray:
        return self.lowest + (self.highest - self.lowest) * expit(point).clip(SMALLEST, NEARLY_ONE)

    def unconstrain(self, params: np.ndarray) -> np.ndarray:
        return _inside(np.log((params - self.lowest) / (self.highest - params)))

    def pull_back(self, point: np.ndarray, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        del params  # too close to a bound they would say nothing about their distance from it
        return gradient * (self.highest - self.lowest) * expit(point) * expit(-point)


class _Shares:
    """Stick-breaking: each share is a fraction z of what the ones before it leave."""

    def constrain(self, point: np.ndarray) -> np.ndarray:
        fraction = self._fractions(point)
        left = np.cumprod(1 - fraction, axis=-1)
        shares = np.empty((*point.shape[:-1], point.shape[-1] + 1))
        shares[..., :-1], shares[..., 1:] = fraction, left
        shares[..., 1:-1] = fraction[..., 1:] * left[..., :-1]
        return shares

    def unconstrain(self, params: np.ndarray) -> np.ndarray:
        left = np.maximum(1 - np.cumsum(params[..., :-1], axis=-1), SMALLEST)
        return _inside(np.log(params[..., :-1] / left) + self._balance(params.shape[-1] - 1))

    def pull_back(self, point: np.ndarray, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        fraction, weighted = self._fractions(point), gradient * params
        after = weighted[..., ::-1].cumsum(axis=-1)[..., -2::-1]
        return weighted[..., :-1] * (1 - fraction) - fraction * after

    def _fractions(self, point: np.ndarray) -> np.ndarray:
        return expit(point - self._balance(point.shape[-1])).clip(SMALLEST, NEARLY_ONE)

    @staticmethod
    def _balance(size: int) -> np.ndarray:
        return np.log(size - np.arange(size))  # zero becomes equal shares


def _inside(point: np.ndarray) -> np.ndarray:
    return np.nan_to_num(point).clip(-FARTHEST, FARTHEST)


@dataclass(frozen=True, eq=False)
class _ByParameter:
    """Each parameter by itself, in NumPy."""

    transforms: Mapping[str, Transform]
    shapes: Shapes
    point_shapes: Shapes

    def constrain(self, point: Flat) -> Flat:
        parts = unflatten(point, self.point_shapes)
        return np.concatenate([self.transforms[name].constrain(part).ravel() for name, part in parts.items()])

    def unconstrain(self, params: Flat) -> Flat:
        parts = unflatten(params, self.shapes)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.concatenate([self.transforms[name].unconstrain(part).ravel() for name, part in parts.items()])

    def pull_back(self, point: Flat, params: Flat, gradient: Flat) -> Flat:
        points, values = unflatten(point, self.point_shapes), unflatten(params, self.shapes)
        slopes = unflatten(gradient, self.shapes)
        return np.concatenate(
            [
                transform.pull_back(points[name], values[name], slopes[name]).ravel()
                for name, transform in self.transforms.items()
            ]
        )


@dataclass(frozen=True, eq=False)
class _ByProgram:
    """All parameters through NumPyro."""

    model: GenerativeModel
    shapes: Shapes
    point_shapes: Shapes

    def constrain(self, point: Flat) -> Flat:
        return flatten(jax.device_get(_constrain(self.model, unflatten(point, self.point_shapes))), self.shapes)

    def unconstrain(self, params: Flat) -> Flat:
        return flatten(jax.device_get(_unconstrain(self.model, unflatten(params, self.shapes))), self.point_shapes)

    def pull_back(self, point: Flat, params: Flat, gradient: Flat) -> Flat:
        del params
        slopes = _pull_back(self.model, unflatten(point, self.point_shapes), unflatten(gradient, self.shapes))
        return flatten(jax.device_get(slopes), self.point_shapes)


_unconstrain = compile_quickly(unconstrain, static_argnums=0)


@partial(compile_quickly, static_argnums=0)
def _constrain(model: GenerativeModel, point: dict[str, Array]) -> dict[str, Array]:
    return unpack(model, point).params


@partial(compile_quickly, static_argnums=0)
def _pull_back(model: GenerativeModel, point: dict[str, Array], gradient: dict[str, Array]) -> dict[str, Array]:
    return jax.vjp(lambda at: unpack(model, at).params, point)[1](gradient)[0]


@lru_cache(maxsize=256)
def transform_of(model: GenerativeModel) -> _ByParameter | _ByProgram:
    """The transform of all parameters of a model."""
    shapes = inspect(model).parameter_shapes
    transforms: dict[str, Transform | None] = {}
    point_shapes: dict[str, tuple[int, ...]] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        for name in shapes:
            with jax.ensure_compile_time_eval():  # bounds that are numbers stay numbers
                support = trace[name]["fn"].support
            transforms[name] = _in_numpy(support)
            point_shapes[name] = biject_to(support).inverse_shape(shapes[name])

    jax.eval_shape(run, some_key())
    known = {name: transform for name, transform in transforms.items() if transform is not None}
    if len(known) == len(shapes):
        return _ByParameter(known, shapes, point_shapes)
    return _ByProgram(model, shapes, point_shapes)


def _in_numpy(support: Any) -> Transform | None:
    while hasattr(support, "base_constraint"):  # a vector of independent elements
        support = support.base_constraint
    if support is constraints.real:
        return _Real()
    if support is constraints.simplex:
        return _Shares()
    if support is constraints.unit_interval:
        return _Between(0.0, 1.0)
    if support is constraints.positive or support is constraints.nonnegative:
        return _Above(0.0)
    if isinstance(support, constraints.interval):
        bounds = support.lower_bound, support.upper_bound
        if not any(isinstance(bound, jax.core.Tracer) or np.ndim(bound) for bound in bounds):
            return _Between(*map(float, bounds))
    return None


def num_parameters(model: GenerativeModel) -> int:
    """The number of free parameters: coordinates of unconstrained space."""
    return sum(map(math.prod, transform_of(model).point_shapes.values()))


def to_point(model: GenerativeModel, params: Params) -> dict[str, np.ndarray]:
    """The point of unconstrained space that stands for some parameters."""
    transform = transform_of(model)
    return unflatten(transform.unconstrain(flatten(params, transform.shapes)), transform.point_shapes)


def to_params(model: GenerativeModel, point: Params) -> dict[str, np.ndarray]:
    """The parameters at a point of unconstrained space."""
    transform = transform_of(model)
    return unflatten(transform.constrain(flatten(point, transform.point_shapes)), transform.shapes)
