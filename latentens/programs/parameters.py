"""The parameters of a program: in unconstrained space, as flat vectors, and drawn from their priors.

Optimisers run in NumPy, so the transforms of NumPyro's `biject_to` are written here with their derivatives. If a
parameter has bounds other than those written here, or bounds that depend on other parameters, all parameters go
through NumPyro, compiled. Priors that do not depend on other parameters are also drawn from in NumPy: JAX's samplers
of beta and Dirichlet variables take seconds to compile.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, biject_to
from scipy.special import expit, softmax

from latentens.programs.contract import RUN_ALONE, structure_of
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


def trace_parameters(model: GenerativeModel, handler: Any) -> dict[str, Any]:
    """Run the program under a handler, with arbitrary values for the sites inside the plate of one item."""
    structure = structure_of(model)  # outside the trace: a first inspection runs the program as well
    hidden = {name: jnp.asarray(site.support[:1]) for name, site in structure.hidden.items()}
    hidden["vote"] = jnp.zeros((1, structure.num_voters), dtype=int)
    with RUN_ALONE, handlers.trace() as trace, handlers.substitute(data=hidden), handler:
        model.program(1)
    return trace


class ParameterSite(NamedTuple):
    """A parameter of a program.

    Attributes:
        prior: Its prior; settings that depend on other parameters are tracers of JAX.
        support: The range of each element; of a vector with a joint constraint, such as a simplex, that of the vector.
        point_shape: Its shape in unconstrained space.
    """

    prior: dist.Distribution
    support: constraints.Constraint
    point_shape: tuple[int, ...]


@lru_cache(maxsize=256)
def parameter_sites(model: GenerativeModel) -> dict[str, ParameterSite]:
    """The parameters of a model, read off its program without running it on numbers."""
    sites: dict[str, ParameterSite] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        for name, shape in structure_of(model).parameter_shapes.items():
            prior = trace[name]["fn"]
            with jax.ensure_compile_time_eval():  # bounds that are numbers stay numbers
                support = prior.support
            sites[name] = ParameterSite(prior, _of_elements(support), biject_to(support).inverse_shape(shape))

    jax.eval_shape(run, some_key())
    return sites


def _of_elements(support: constraints.Constraint) -> constraints.Constraint:
    while hasattr(support, "base_constraint"):  # a vector of independent elements
        support = support.base_constraint
    return support


def parameter_supports(model: GenerativeModel) -> dict[str, constraints.Constraint]:
    """The range of each parameter, element by element."""
    return {name: site.support for name, site in parameter_sites(model).items()}


def num_parameters(model: GenerativeModel) -> int:
    """The number of free parameters: coordinates of unconstrained space."""
    return sum(math.prod(site.point_shape) for site in parameter_sites(model).values())


# Through NumPyro, in JAX.


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
    log_volume = jnp.array(0.0)
    for name, value in params.items():
        transform = biject_to(trace[name]["fn"].support)
        log_volume += jnp.sum(transform.log_abs_det_jacobian(point[name], value))
    return Unpacked(params, prior_density(trace, params), log_volume)


def unconstrain(model: GenerativeModel, params: Params) -> dict[str, Array]:
    """The point of unconstrained space that stands for some parameters; values at a bound are moved a little inside."""
    trace = trace_parameters(model, handlers.substitute(data=dict(params)))

    def of_site(name: str) -> Array:
        support = trace[name]["fn"].support
        point = biject_to(support).inv(params[name])
        if _of_elements(support) is constraints.real:
            return point  # without bounds, a large value is only large
        return jnp.nan_to_num(point).clip(-FARTHEST, FARTHEST)

    return {name: of_site(name) for name in params}


_unconstrain = compile_quickly(unconstrain, static_argnums=0)


@partial(compile_quickly, static_argnums=0)
def _constrain(model: GenerativeModel, point: dict[str, Array]) -> dict[str, Array]:
    return unpack(model, point).params


@partial(compile_quickly, static_argnums=0)
def _pull_back(model: GenerativeModel, point: dict[str, Array], gradient: dict[str, Array]) -> dict[str, Array]:
    return jax.vjp(lambda at: unpack(model, at).params, point)[1](gradient)[0]


# Element by element, in NumPy.


class _Transform(NamedTuple):
    """A transform of one parameter: to its own space, back, and a gradient by (point, params, gradient by params)."""

    constrain: Callable[[np.ndarray], np.ndarray]
    unconstrain: Callable[[np.ndarray], np.ndarray]
    pull_back: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


LARGEST_EXPONENT = np.log(np.finfo(float).max) / 2
"""A line search may try any point: positive parameters and their squares, as in normal priors, stay finite."""

_REAL = _Transform(lambda point: point, lambda params: params, lambda _point, _params, gradient: gradient)
_POSITIVE = _Transform(
    lambda point: np.exp(np.minimum(point, LARGEST_EXPONENT)),
    lambda params: np.log(np.maximum(params, 0.0)),
    lambda _point, params, gradient: gradient * params,
)


def _between(lowest: float, highest: float) -> _Transform:
    width = highest - lowest
    return _Transform(
        lambda point: lowest + width * expit(point).clip(SMALLEST, NEARLY_ONE),
        lambda params: np.log(np.maximum(params - lowest, 0.0)) - np.log(np.maximum(highest - params, 0.0)),
        # by the point: parameters too close to a bound have lost their distance from it
        lambda point, _params, gradient: gradient * width * expit(point) * expit(-point),
    )


def _fractions(point: np.ndarray) -> np.ndarray:
    """Stick-breaking: each share is a fraction of the remainder of those before it."""
    return expit(point - _balance(point.shape[-1])).clip(SMALLEST, NEARLY_ONE)


def _balance(size: int) -> np.ndarray:
    return np.log(size - np.arange(size))  # zero becomes equal shares


def _to_shares(point: np.ndarray) -> np.ndarray:
    fraction = _fractions(point)
    left = np.cumprod(1 - fraction, axis=-1)
    shares = np.empty((*point.shape[:-1], point.shape[-1] + 1))
    shares[..., :-1], shares[..., 1:] = fraction, left
    shares[..., 1:-1] = fraction[..., 1:] * left[..., :-1]
    return shares


def _from_shares(params: np.ndarray) -> np.ndarray:
    left = np.maximum(1 - np.cumsum(params[..., :-1], axis=-1), SMALLEST)
    return np.log(params[..., :-1] / left) + _balance(params.shape[-1] - 1)


def _pull_back_shares(point: np.ndarray, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    fraction, weighted = _fractions(point), gradient * params
    after = weighted[..., ::-1].cumsum(axis=-1)[..., -2::-1]
    return weighted[..., :-1] * (1 - fraction) - fraction * after


_SHARES = _Transform(_to_shares, _from_shares, _pull_back_shares)


def _in_numpy(support: constraints.Constraint) -> _Transform | None:
    """The transform to a support; None if it is not written here."""
    if support is constraints.real:
        return _REAL
    if support is constraints.simplex:
        return _SHARES
    if support is constraints.unit_interval:
        return _between(0.0, 1.0)
    if support is constraints.positive or support is constraints.nonnegative:
        return _POSITIVE
    if isinstance(support, constraints.interval):
        bounds = support.lower_bound, support.upper_bound
        if not any(isinstance(bound, jax.core.Tracer) or np.ndim(bound) for bound in bounds):
            return _between(*map(float, bounds))
    return None


@dataclass(frozen=True, eq=False)
class Transform:
    """All parameters of a model between their own space and unconstrained space, as flat vectors.

    Attributes:
        model: The model.
        shapes: Shapes of the parameters.
        point_shapes: Their shapes in unconstrained space.
        by_name: The transform of each parameter; None if NumPyro transforms all of them.
    """

    model: GenerativeModel
    shapes: Shapes
    point_shapes: Shapes
    by_name: Mapping[str, _Transform] | None

    def constrain(self, point: Flat) -> Flat:
        """The parameters at a point."""
        points = unflatten(point, self.point_shapes)
        if self.by_name is None:
            return flatten(jax.device_get(_constrain(self.model, points)), self.shapes)
        return flatten({name: each.constrain(points[name]) for name, each in self.by_name.items()}, self.shapes)

    def unconstrain(self, params: Flat) -> Flat:
        """The point of some parameters; those at a bound are moved a little inside."""
        values = unflatten(params, self.shapes)
        if self.by_name is None:
            return flatten(jax.device_get(_unconstrain(self.model, values)), self.point_shapes)
        with np.errstate(divide="ignore", invalid="ignore"):
            points = {name: each.unconstrain(values[name]) for name, each in self.by_name.items()}
        for name, point in points.items():
            if self.by_name[name] is not _REAL:
                points[name] = np.nan_to_num(point).clip(-FARTHEST, FARTHEST)
        return flatten(points, self.point_shapes)

    def pull_back(self, point: Flat, params: Flat, gradient: Flat) -> Flat:
        """The derivatives by the point, given those by the parameters."""
        points, slopes = unflatten(point, self.point_shapes), unflatten(gradient, self.shapes)
        if self.by_name is None:
            return flatten(jax.device_get(_pull_back(self.model, points, slopes)), self.point_shapes)
        values = unflatten(params, self.shapes)
        pulled = {name: each.pull_back(points[name], values[name], slopes[name]) for name, each in self.by_name.items()}
        return flatten(pulled, self.point_shapes)


@lru_cache(maxsize=256)
def transform_of(model: GenerativeModel) -> Transform:
    """The transform of all parameters of a model."""
    sites = parameter_sites(model)
    known = {name: each for name, site in sites.items() if (each := _in_numpy(site.support)) is not None}
    point_shapes = {name: site.point_shape for name, site in sites.items()}
    by_name = known if len(known) == len(sites) else None
    return Transform(model, structure_of(model).parameter_shapes, point_shapes, by_name)


def to_point(model: GenerativeModel, params: Params) -> dict[str, np.ndarray]:
    """The point of unconstrained space that stands for some parameters."""
    transform = transform_of(model)
    return unflatten(transform.unconstrain(flatten(params, transform.shapes)), transform.point_shapes)


# Starting points and draws from priors.


def normal_point(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """A point of unconstrained space with standard normal coordinates."""
    return generator.normal(size=num_parameters(model))


def draw_params(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """Parameters drawn from their priors."""
    drawn: dict[str, np.ndarray] = {}
    for name, site in parameter_sites(model).items():
        value = _draw(site.prior, generator, site.prior.shape())
        if value is None:  # of another kind, or dependent on other parameters
            drawn = jax.device_get(_draw_together(model, key_from(generator)))
            break
        drawn[name] = value
    return flatten(drawn, structure_of(model).parameter_shapes)


@partial(compile_quickly, static_argnums=0)
def _draw_together(model: GenerativeModel, key: Array) -> dict[str, Array]:
    trace = trace_parameters(model, handlers.seed(rng_seed=key))
    return {name: trace[name]["value"] for name in structure_of(model).parameter_shapes}


def _draw(prior: dist.Distribution, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray | None:
    """A draw from a distribution of a kind known here whose settings are numbers; None from any other."""
    base = innermost(prior)
    if isinstance(base, dist.TransformedDistribution):
        if not all(isinstance(transform, AffineTransform) for transform in base.transforms):
            return None
        drawn = _draw(base.base_dist, generator, shape)
        for transform in base.transforms if drawn is not None else ():
            drawn = np.asarray(transform.loc) + np.asarray(transform.scale) * drawn
        return drawn
    kinds = {
        dist.Normal: ("loc", "scale"),
        dist.HalfNormal: ("scale",),
        dist.Dirichlet: ("concentration",),
        dist.Beta: ("concentration1", "concentration0"),
    }
    kind = next((kind for kind in kinds if isinstance(base, kind)), None)
    settings = [getattr(base, name) for name in kinds[kind]] if kind else []
    if kind is None or any(isinstance(setting, jax.core.Tracer) for setting in settings):
        return None
    first, *others = (np.asarray(setting, dtype=np.float64) for setting in settings)
    if kind is dist.Normal:
        return first + others[0] * generator.standard_normal(shape)
    if kind is dist.HalfNormal:
        return first * np.abs(generator.standard_normal(shape))
    if kind is dist.Dirichlet:
        return draw_shares(generator, np.broadcast_to(first, shape))
    both = np.stack(np.broadcast_arrays(first, others[0]), axis=-1)
    return draw_shares(generator, np.broadcast_to(both, (*shape, 2)))[..., 0]


def draw_shares(
    generator: np.random.Generator, concentration: Float[np.ndarray, "*shape part"]
) -> Float[np.ndarray, "*shape part"]:
    """Shares of gamma variables, by their logarithms: with a small concentration they are too small for numbers."""
    # a gamma variable with shape a is one with shape a + 1 times a power 1/a of a uniform one
    uniform = 1 - generator.random(concentration.shape)
    drawn = softmax(np.log(generator.standard_gamma(concentration + 1)) + np.log(uniform) / concentration, axis=-1)
    return drawn.clip(SMALLEST, 1 - np.finfo(np.float64).epsneg)
