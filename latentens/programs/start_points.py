"""Where fits of a program start: draws from its priors, and other points of unconstrained space.

Most programs give their parameters priors that depend on no other parameter. Those are read off once, and draws from
them are NumPy's alone: a program that calls NumPy would be compiled anew by every process.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

from latentens.programs.contract import inspect
from latentens.programs.marginal import to_point, trace_parameters, unconstrain
from latentens.programs.model import GenerativeModel
from latentens.programs.prior_draws import draw_alone, numpy_draws, stands_alone
from latentens.programs.tracing import run_alone
from latentens.runtime.quick_compilation import compile_quickly
from latentens.runtime.randomness import numpy_generator

Point = dict[str, np.ndarray]


def draw_starts(model: GenerativeModel, key: Array, number: int) -> list[Point]:
    """Points of unconstrained space for as many draws from the priors."""
    return [to_point(model, _draw(model, start_key)) for start_key in jax.random.split(key, number)]


def normal_start(model: GenerativeModel, key: Array) -> Point:
    """A point of unconstrained space with standard normal coordinates."""
    rng = numpy_generator(key)
    return {name: rng.normal(size=shape) for name, shape in _unconstrained_shapes(model, key).items()}


def _unconstrained_shapes(model: GenerativeModel, key: Array) -> dict[str, tuple[int, ...]]:
    sites = _prior_sites(model)
    if sites.alone:
        priors = sorted(sites.priors.items())  # as JAX orders them
        return {name: biject_to(prior.support).inverse_shape(prior.shape()) for name, prior in priors}
    shapes = jax.eval_shape(lambda key: unconstrain(model, _together(model, key)), key)
    return {name: shape.shape for name, shape in shapes.items()}


def _draw(model: GenerativeModel, key: Array) -> Point:
    """A draw from the priors; the keys of its sites are those of a `seed` handler."""
    sites = _prior_sites(model)
    if not sites.alone:
        return jax.device_get(_draw_together(model, key))
    drawn = {}
    for name in sites.seeded:
        key, site_key = jax.random.split(key)
        if name in sites.priors:
            drawn[name] = draw_alone(sites.priors[name], site_key)
    return drawn


def _together(model: GenerativeModel, key: Array) -> dict[str, Array]:
    with run_alone(), numpy_draws():
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
    return {name: trace[name]["value"] for name in inspect(model).parameter_shapes}


_draw_together = compile_quickly(_together, static_argnums=0)


class _PriorSites(NamedTuple):
    seeded: list[str]
    """The sites to which a `seed` handler gives keys, in their order."""
    priors: dict[str, dist.Distribution]
    alone: bool
    """Whether each parameter can be drawn without the others."""


@lru_cache(maxsize=256)
def _prior_sites(model: GenerativeModel) -> _PriorSites:
    names, found = inspect(model).parameter_shapes, []

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        seeded = [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]
        priors = {name: trace[name]["fn"] for name in names}
        alone = all(stands_alone(prior) for prior in priors.values())
        found.append(_PriorSites(seeded, priors if alone else {}, alone))

    jax.eval_shape(run, jax.random.key(0))
    return found[0]
