"""Where fits of a program start: draws from its priors, and other points of unconstrained space.

Most programs give their parameters priors that depend on no other parameter. Those are read off once and drawn from in
NumPy: JAX's samplers would be compiled for seconds to make a handful of draws.
"""

from functools import lru_cache

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers

from latentens.programs.contract import inspect, run_alone
from latentens.programs.marginal import trace_parameters
from latentens.programs.model import GenerativeModel
from latentens.programs.prior_draws import draw_alone, numpy_draws, stands_alone
from latentens.programs.transforms import Flat, flatten, transform_of
from latentens.runtime.compilation import compile_quickly
from latentens.runtime.numerics import key_from, some_key


def draw_params(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """Parameters drawn from their priors."""
    shapes, priors = inspect(model).parameter_shapes, _priors(model)
    if priors is None:
        return flatten(jax.device_get(_draw_together(model, key_from(generator))), shapes)
    return flatten({name: draw_alone(prior, generator) for name, prior in priors.items()}, shapes)


def normal_point(model: GenerativeModel, generator: np.random.Generator) -> Flat:
    """A point of unconstrained space with standard normal coordinates."""
    shapes = transform_of(model).point_shapes
    return flatten({name: generator.normal(size=shape) for name, shape in shapes.items()}, shapes)


@lru_cache(maxsize=256)
def _priors(model: GenerativeModel) -> dict[str, dist.Distribution] | None:
    """The prior of each parameter, if each can be drawn without the others."""
    found: dict[str, dist.Distribution] = {}

    def run(key: Array) -> None:
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
        found.update({name: trace[name]["fn"] for name in inspect(model).parameter_shapes})

    jax.eval_shape(run, some_key())
    return found if all(map(stands_alone, found.values())) else None


def _together(model: GenerativeModel, key: Array) -> dict[str, Array]:
    with run_alone(), numpy_draws():
        trace = trace_parameters(model, handlers.seed(rng_seed=key))
    return {name: trace[name]["value"] for name in inspect(model).parameter_shapes}


_draw_together = compile_quickly(_together, static_argnums=0)
