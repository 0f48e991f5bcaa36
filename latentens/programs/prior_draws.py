"""Draws from priors that need not be compiled.

JAX's samplers of beta and Dirichlet variables take seconds to compile for each site of a program, those of normal ones
part of a second, while a program is asked for a handful of draws from its priors. NumPy has them at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions.transforms import AffineTransform
from numpyro.primitives import Messenger
from scipy.special import softmax

from latentens.programs.distributions import innermost
from latentens.runtime.numerics import SMALLEST

Sampler = Callable[..., np.ndarray]


class numpy_draws(Messenger):  # noqa: N801  a handler, named as NumPyro's are
    """Draw beta, Dirichlet and normal sites in NumPy, by the keys of a `seed` handler inside of this one."""

    def process_message(self, msg: dict[str, Any]) -> None:
        """Give a site its value, if it is of this kind and has none."""
        settings = msg["kwargs"]
        if msg["type"] != "sample" or msg["value"] is not None or settings.get("rng_key") is None:
            return
        if not settings.get("sample_shape"):
            msg["value"] = _draw(msg["fn"], settings["rng_key"])


def _draw(distribution: dist.Distribution, key: Array) -> Array | None:
    """A draw from a distribution of one of these kinds; None of any other."""
    shape, base = distribution.shape(), innermost(distribution)
    if isinstance(base, dist.Normal):
        return base.loc + base.scale * _call_out(standard_normal, key, jnp.zeros(shape))
    if isinstance(base, dist.Dirichlet):
        return _call_out(shares, key, jnp.broadcast_to(base.concentration, shape))
    if isinstance(base, dist.Beta):
        both = jnp.stack(jnp.broadcast_arrays(base.concentration1, base.concentration0), axis=-1)
        return _call_out(shares, key, jnp.broadcast_to(both, (*shape, 2)))[..., 0]
    return None


def stands_alone(distribution: dist.Distribution) -> bool:
    """Whether `draw_alone` can draw from a distribution that was met while a program was being traced."""
    base = innermost(distribution)
    if isinstance(base, dist.TransformedDistribution):
        affine = all(isinstance(transform, AffineTransform) for transform in base.transforms)
        return affine and stands_alone(base.base_dist)
    return bool(_known_settings(base)) and not any(isinstance(part, jax.core.Tracer) for part in _known_settings(base))


def draw_alone(
    distribution: dist.Distribution, generator: np.random.Generator, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """A draw, of the distribution's own shape or another, from a distribution whose settings are numbers."""
    shape, base = distribution.shape() if shape is None else shape, innermost(distribution)
    if isinstance(base, dist.TransformedDistribution):
        drawn = draw_alone(base.base_dist, generator, shape)
        for transform in base.transforms:
            drawn = np.asarray(transform.loc) + np.asarray(transform.scale) * drawn
        return drawn
    settings = [np.asarray(part, dtype=np.float64) for part in _known_settings(base)]
    if isinstance(base, dist.Normal):
        return settings[0] + settings[1] * standard_normal(generator, np.zeros(shape))
    if isinstance(base, dist.HalfNormal):
        return settings[0] * np.abs(standard_normal(generator, np.zeros(shape)))
    if isinstance(base, dist.Dirichlet):
        return shares(generator, np.broadcast_to(settings[0], shape))
    both = np.stack(np.broadcast_arrays(*settings), axis=-1)
    return shares(generator, np.broadcast_to(both, (*shape, 2)))[..., 0]


def _known_settings(base: dist.Distribution) -> tuple[Any, ...]:
    """The settings of a normal, half-normal, Dirichlet or beta distribution; none of any other."""
    if isinstance(base, dist.Normal):
        return base.loc, base.scale
    if isinstance(base, dist.HalfNormal):
        return (base.scale,)
    if isinstance(base, dist.Dirichlet):
        return (base.concentration,)
    return (base.concentration1, base.concentration0) if isinstance(base, dist.Beta) else ()


def _call_out(sampler: Sampler, key: Array, like: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Call a sampler out of a compiled program, to which 64 bits only come back as two words of 32."""
    words = jax.ShapeDtypeStruct((*like.shape, like.dtype.itemsize // 4), np.uint32)
    called = partial(_in_words, sampler, like.dtype)
    drawn = jax.pure_callback(called, words, jax.random.key_data(key), like, vmap_method="sequential")
    return jax.lax.bitcast_convert_type(drawn if like.dtype.itemsize == 8 else drawn[..., 0], like.dtype)


def _in_words(sampler: Sampler, dtype: np.dtype, key: Array, like: Array) -> np.ndarray:
    drawn = sampler(np.random.default_rng(np.asarray(key)), np.asarray(like, dtype=np.float64))
    return drawn.astype(dtype)[..., None].view(np.uint32)


def standard_normal(generator: np.random.Generator, like: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Standard normal variables."""
    return np.asarray(generator.standard_normal(like.shape))


def shares(
    generator: np.random.Generator, concentration: Float[np.ndarray, "*shape part"]
) -> Float[np.ndarray, "*shape part"]:
    """Shares of gamma variables, by their logarithms: with a small concentration they are too small for numbers."""
    # a gamma variable with shape a is one with shape a + 1 times a power 1/a of a uniform one
    uniform = 1 - generator.random(concentration.shape)
    drawn = softmax(np.log(generator.standard_gamma(concentration + 1)) + np.log(uniform) / concentration, axis=-1)
    return drawn.clip(SMALLEST, 1 - np.finfo(np.float64).epsneg)
