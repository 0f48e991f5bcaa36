"""The parameters of a program: in unconstrained space, as flat vectors, and drawn from their priors.

Optimisers run in NumPy, so the transforms of NumPyro's `biject_to` are written here with their derivatives. Where a
parameter has other bounds than those written here, or bounds that depend on other parameters, all of them go through
NumPyro, compiled. Priors that do not depend on other parameters are drawn from in NumPy, too: JAX's samplers of beta
and Dirichlet variables take seconds to compile.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, biject_to
from scipy.special import expit, softmax

from latentens.programs.contract import run_alone, structure_of
from latentens.programs.distributions import innermost
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import prior_density
from latentens.runtime.compilation import compile_quickly
from latentens.runtime.numerics import SMALLEST, key_from, some_key

Flat = Float[np.ndarray, " element"]
Shapes = Mapping[str, tuple[int, ...]]

FARTHEST = 15.0
"""Parameters given at a bound start this far out in unconstrained space."""

NEARLY_ONE = 1 - np.finfo(np.float64).eps


def flatten(arrays: Params, names: Shapes) -> Flat:
    """Arrays one after the other in the order of the names."""
    return np.concatenate([np.zeros(0), *(np.ravel(arrays[name]) for name in names)], dtype=np.float64)


def unflatten(flat: Any, shapes: Shapes) -> dict[str, Any]:
    """The arrays of a vector, of NumPy or JAX."""
    found, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        found[name] = flat[start:stop].reshape(shape)
        start = stop
    return found


class Unpacked(NamedTuple):
    """Parameters in their own space, their log prior density, and the log volume change of the transform."""

    params: dict[str, Array]
    log_prior: Float[Array, ""]
    log_volume: Float[Array, ""]


def unpack(model: GenerativeModel, point: dict[str, Array]) -> Unpacked:
    """Parameters at a point of unconstrained space."""

    def constrain(site: dict[str, Any]) -> Array | None:
        if site["type"] != "sample" or site["name"] not in point:
            return None
        return biject_to(site["fn"].support)(point[site["name"]])

    trace = trace_parameters(model, handlers.substitute(substitute_fn=constrain))
    params = {name: trace[name]["value"] for name in point}
    log_prior = prior_density(trace, params)
    log_volume = jnp.array(0.0)
    for name, value in params.items():
        transform = biject_to(trace[name]["fn"].support)
        log_volume += jnp.sum(transform.log_abs_det_jacobian(point[name], value))
    return Unpacked(params, log_prior, log_volume)


def unconstrain(model: GenerativeModel, params: Params) -> dict[str, Array]:
    """The point of unconstrained space that stands for some parameters; values at a bound are moved a little inside."""
    trace = trace_parameters(model, handlers.substitute(data=dict(params)))

    def of_site(name: str) -> Array:
        point = biject_to(trace[name]["fn"].support).inv(params[name])
        if _support_of_elements(trace[name]) is constraints.real:
            return point  # without bounds, a large value is only large
        return jnp.nan_to_num(point).clip(-FARTHEST, FARTHEST)

    return {name: of_site(name) for name in params}


@lru_cache(maxsize=256)
def parameter_supports(model: GenerativeModel) -> dict[str, constraints.Constraint]:
    """The range of each parameter, element by element."""
    supports: dict[str, constraints.Constraint] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        for name in structure_of(model).parameter_shapes:
            supports[name] = _support_of_elements(trace[name])

    jax.eval_shape(run, some_key())
    return supports


def _support_of_elements(site: dict[str, Any]) -> constraints.Constraint:
    support = site["fn"].support
    while hasattr(support, "base_constraint"):  # a vector of independent elements
        support = support.base_constraint
    return support


def trace_parameters(model: GenerativeModel, handler: Any) -> dict[str, Any]:
    """Run the program under a handler, with something for each site inside the plate of one item."""
    structure = structure_of(model)  # outside the trace: a first inspection runs the program as well
    hidden = {name: jnp.asarray(site.support[:1]) for name, site in structure.hidden.items()}
    hidden["vote"] = jnp.zeros((1, structure.num_voters), dtype=int)
    with run_alone(), handlers.trace() as trace, handlers.substitute(data=hidden), handler:
        model.program(1)
    return trace


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
    shapes = structure_of(model).parameter_shapes
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


def draw_params(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """Parameters drawn from their priors."""
    shapes, priors = structure_of(model).parameter_shapes, _priors(model)
    if priors is None:
        return flatten(jax.device_get(_draw_together(model, key_from(generator))), shapes)
    return flatten({name: _draw_alone(prior, generator) for name, prior in priors.items()}, shapes)


def normal_point(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """A point of unconstrained space with standard normal coordinates."""
    shapes = transform_of(model).point_shapes
    return flatten({name: generator.normal(size=shape) for name, shape in shapes.items()}, shapes)


@partial(compile_quickly, static_argnums=0)
def _draw_together(model: GenerativeModel, key: Array) -> dict[str, Array]:
    trace = trace_parameters(model, handlers.seed(rng_seed=key))
    return {name: trace[name]["value"] for name in structure_of(model).parameter_shapes}


@lru_cache(maxsize=256)
def _priors(model: GenerativeModel) -> dict[str, dist.Distribution] | None:
    """The prior of each parameter, if each can be drawn without the others."""
    found: dict[str, dist.Distribution] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        found.update({name: trace[name]["fn"] for name in structure_of(model).parameter_shapes})

    jax.eval_shape(run, some_key())
    return found if all(map(_stands_alone, found.values())) else None


def _stands_alone(distribution: dist.Distribution) -> bool:
    """Whether `_draw_alone` can draw from a distribution that was met while a program was being traced."""
    base = innermost(distribution)
    if isinstance(base, dist.TransformedDistribution):
        affine = all(isinstance(transform, AffineTransform) for transform in base.transforms)
        return affine and _stands_alone(base.base_dist)
    return bool(_known_settings(base)) and not any(isinstance(part, jax.core.Tracer) for part in _known_settings(base))


def _draw_alone(
    distribution: dist.Distribution, generator: np.random.Generator, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """A draw, of the distribution's own shape or another, from a distribution whose settings are numbers."""
    shape, base = distribution.shape() if shape is None else shape, innermost(distribution)
    if isinstance(base, dist.TransformedDistribution):
        drawn = _draw_alone(base.base_dist, generator, shape)
        for transform in base.transforms:
            drawn = np.asarray(transform.loc) + np.asarray(transform.scale) * drawn
        return drawn
    settings = [np.asarray(part, dtype=np.float64) for part in _known_settings(base)]
    if isinstance(base, dist.Normal):
        return settings[0] + settings[1] * generator.standard_normal(shape)
    if isinstance(base, dist.HalfNormal):
        return settings[0] * np.abs(generator.standard_normal(shape))
    if isinstance(base, dist.Dirichlet):
        return draw_shares(generator, np.broadcast_to(settings[0], shape))
    both = np.stack(np.broadcast_arrays(*settings), axis=-1)
    return draw_shares(generator, np.broadcast_to(both, (*shape, 2)))[..., 0]


def _known_settings(base: dist.Distribution) -> tuple[Any, ...]:
    """The settings of a normal, half-normal, Dirichlet or beta distribution; none of any other."""
    if isinstance(base, dist.Normal):
        return base.loc, base.scale
    if isinstance(base, dist.HalfNormal):
        return (base.scale,)
    if isinstance(base, dist.Dirichlet):
        return (base.concentration,)
    return (base.concentration1, base.concentration0) if isinstance(base, dist.Beta) else ()


def draw_shares(
    generator: np.random.Generator, concentration: Float[np.ndarray, "*shape part"]
) -> Float[np.ndarray, "*shape part"]:
    """Shares of gamma variables, by their logarithms: with a small concentration they are too small for numbers."""
    # a gamma variable with shape a is one with shape a + 1 times a power 1/a of a uniform one
    uniform = 1 - generator.random(concentration.shape)
    drawn = softmax(np.log(generator.standard_gamma(concentration + 1)) + np.log(uniform) / concentration, axis=-1)
    return drawn.clip(SMALLEST, 1 - np.finfo(np.float64).epsneg)
