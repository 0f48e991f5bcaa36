"""Approximations of a posterior by a distribution that can be drawn from: Laplace's, and how good any of them is.

All of them live in unconstrained space, where the log density of the marginal program is exact and has all derivatives.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigh, solve_triangular
from scipy.special import softmax

from latentens.inference.density import density_at
from latentens.inference.optimise import descend_from
from latentens.programs.likelihood import Observations
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import transform_of

Point = Float[np.ndarray, " coordinate"]
Matrix = Float[np.ndarray, "coordinate coordinate"]

COLUMNS_AT_ONCE = 8
"""Columns of the Hessian that are computed together."""

RELIABLE = 0.7
"""Importance weights with a Pareto k̂ above this have no usable mean (Vehtari et al. 2024)."""

FEWEST_DRAWS = 25
"""Fewer draws have no tail that a Pareto distribution can be fitted to."""


class Mode(NamedTuple):
    """A maximum of the log density in unconstrained space and the curvature there.

    Attributes:
        point: The maximum.
        log_density: The log density there.
        precision: The negative Hessian.
        scale: A lower triangular matrix whose product with its transpose is the inverse of the precision. Directions
            without curvature have unit length.
        decrement: What a Newton step would still gain, in nats.
        flat: Combinations of coordinates along which the log density does not curve down, one per row.
        iterations: Iterations of the climb.
    """

    point: Point
    log_density: float
    precision: Matrix
    scale: Matrix
    decrement: float
    flat: Float[np.ndarray, "direction coordinate"]
    iterations: int

    def draw(
        self, generator: np.random.Generator, number: int
    ) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"]]:
        """Draws of the normal distribution with this mode and curvature, and the log density of each."""
        normal = generator.normal(size=(number, len(self.point)))
        log_volume = np.log(np.diag(self.scale)).sum()
        log_normal = -0.5 * (normal**2).sum(axis=1) - 0.5 * len(self.point) * np.log(2 * np.pi)
        return self.point + normal @ self.scale.T, log_normal - log_volume


def find_mode(
    model: GenerativeModel, observations: Observations, start: Point, *, max_iterations: int, tolerance: float = 1e-8
) -> Mode:
    """Climb from a point to the nearest maximum of the log density, and take the exact Hessian there.

    Args:
        model: The generative model.
        observations: The votes.
        start: Where to start, such as the posterior mode in the space of the parameters.
        max_iterations: Limit on the iterations of L-BFGS.
        tolerance: Largest entry of the gradient per item at the end of the climb.
    """
    num_items = float(observations.num_items)

    def loss(point: Point) -> tuple[float, Point]:
        value, slope = jax.device_get(_value_and_slope(model, observations, point))
        return -float(value) / num_items, -np.asarray(slope) / num_items

    end = descend_from(loss, start, max_iterations=max_iterations, tolerance=tolerance)
    precision = -np.asarray(_hessian(model, observations, end.point))
    values, vectors = eigh((precision + precision.T) / 2)
    usable = values > len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    slope = -num_items * loss(end.point)[1]
    along = vectors[:, usable].T @ slope
    decrement = float(0.5 * (along**2 / values[usable]).sum())
    # the Cholesky factor of the inverse by way of that of the precision, flat directions having unit precision
    whole = (vectors * np.where(usable, values, 1.0)) @ vectors.T
    reversed_factor = np.linalg.cholesky(whole[::-1, ::-1])[::-1, ::-1]  # upper triangular U with U Uᵀ = precision
    scale = solve_triangular(reversed_factor, np.eye(len(values)), lower=False).T
    return Mode(
        end.point, -num_items * end.loss, precision, scale, decrement, vectors[:, ~usable].T, len(end.curve) - 1
    )


@partial(jax.jit, static_argnums=0)
def _value_and_slope(model: GenerativeModel, observations: Observations, point: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(partial(density_at, model, observations))(point)


@partial(jax.jit, static_argnums=0)
def _hessian(model: GenerativeModel, observations: Observations, point: Array) -> Float[Array, "coordinate coordinate"]:
    slope = jax.grad(partial(density_at, model, observations))

    def column(direction: Array) -> Array:
        return jax.jvp(slope, (point,), (direction,))[1]

    return jax.lax.map(column, jnp.eye(len(point)), batch_size=COLUMNS_AT_ONCE)


class Weights(NamedTuple):
    """Pareto-smoothed importance weights of draws.

    Attributes:
        weights: One per draw, summing to one.
        pareto_k: The shape of the tail of the raw weights: above 0.7 the approximation is far from the posterior. NaN
            if there are too few draws to know.
        elbo: The mean of the log ratios, a lower bound of the log evidence.
    """

    weights: Float[np.ndarray, " draw"]
    pareto_k: float
    elbo: float


def importance_weights(log_density: Float[np.ndarray, " draw"], log_proposal: Float[np.ndarray, " draw"]) -> Weights:
    """Weights of draws of an approximation as draws of the posterior.

    Args:
        log_density: The log posterior density at each draw.
        log_proposal: The log density of the approximation there.
    """
    from arviz_stats.base import array_stats  # slow to import, and needed only here

    log_ratio = np.where(np.isfinite(log_density), log_density, -np.inf) - log_proposal
    finite = np.isfinite(log_ratio)
    if not finite.any():
        return Weights(np.full(len(log_ratio), 1 / len(log_ratio)), np.inf, -np.inf)
    if len(log_ratio) < FEWEST_DRAWS:
        return Weights(softmax(log_ratio), np.nan, float(log_ratio.mean()))
    lowest = log_ratio[finite].min()
    # ArviZ takes log-likelihoods of an item to be left out, whose negatives are the log ratios
    smoothed, pareto_k = array_stats.psislw(-np.where(finite, log_ratio, lowest - 1e3))
    return Weights(softmax(np.asarray(smoothed)), float(pareto_k), float(log_ratio.mean()))


def resample(
    weights: Float[np.ndarray, " draw"], number: int, generator: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """Draws chosen by their weights, in random order (systematic resampling)."""
    positions = (generator.random() + np.arange(number)) / number
    chosen = np.searchsorted(np.cumsum(weights), positions).clip(max=len(weights) - 1)
    return generator.permutation(chosen)


def pareto_words(pareto_k: float) -> list[str]:
    """What Pareto's k̂ says of an approximation, if it is not good."""
    if np.isnan(pareto_k):
        return [f"fewer than {FEWEST_DRAWS} draws cannot show how far the approximation is from the posterior"]
    if pareto_k <= RELIABLE:
        return []
    return [
        f"the approximation misses part of the posterior (Pareto k̂ is {pareto_k:.2f}, above {RELIABLE}), and its "
        "importance weights cannot correct that: compare with Nuts"
    ]


def flat_words(model: GenerativeModel, flat: Float[np.ndarray, "direction coordinate"]) -> list[str]:
    """Which parameters a flat direction is made of, one sentence for all directions."""
    if not len(flat):
        return []
    sizes = {name: int(np.prod(shape)) for name, shape in transform_of(model).point_shapes.items()}
    names = np.repeat(list(sizes), list(sizes.values()))
    load = (flat**2).sum(axis=0)
    involved = [name for name in sizes if load[names == name].sum() > 0.1 * load.sum()]
    return [
        f"the Hessian at the mode is singular along {len(flat)} direction{'s' * (len(flat) > 1)}, made of "
        f"{', '.join(involved)}: the posterior has a ridge or the climb ended on a saddle, and the spread along it is "
        "not known"
    ]
