"""Approximations of a posterior that can be drawn from: Laplace's and variational ones, and how good they are.

All of them live in unconstrained space, where the log density of the marginal program is exact and has all derivatives.
Variational inference uses NumPyro's automatic guides and Optax.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import (
    AutoContinuous,
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
)
from scipy.linalg import eigh, solve_triangular
from scipy.special import softmax

from latentens.errors import LatentensError
from latentens.inference.density import density_at
from latentens.inference.optimise import descend_from, hessian
from latentens.programs.likelihood import Observations
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import transform_of
from latentens.runtime.numerics import some_key
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import task

Point = Float[np.ndarray, " coordinate"]
Matrix = Float[np.ndarray, "coordinate coordinate"]

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
        decrement: The remaining gain of a Newton step, in nats.
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
    return hessian(partial(density_at, model, observations), point)


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
    """Warnings by Pareto's k̂, if the approximation is not good."""
    if np.isnan(pareto_k):
        return [f"fewer than {FEWEST_DRAWS} draws cannot show how far the approximation is from the posterior"]
    if pareto_k <= RELIABLE:
        return []
    return [
        f"the approximation misses part of the posterior (Pareto k̂ is {pareto_k:.2f}, above {RELIABLE}), and its "
        "importance weights cannot correct that: compare with Nuts"
    ]


def flat_words(model: GenerativeModel, flat: Float[np.ndarray, "direction coordinate"]) -> list[str]:
    """A warning that names the parameters in flat directions."""
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


Guide = Literal["normal", "multivariate", "low_rank", "flow"]

CHUNK = 50
"""Steps between two returns to Python."""


@dataclass(frozen=True)
class Ascent:
    """Maximisation of the ELBO; its settings are those of `latentens.methods.Variational`."""

    model: GenerativeModel
    guide: Guide
    num_steps: int
    num_particles: int
    learning_rate: float

    def run(
        self, observations: Observations, mode: Mode, key: Array, num_draws: int
    ) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], Float[np.ndarray, " step"]]:
        """Fit the guide.

        Returns:
            Draws in unconstrained space, the guide's log density of each, and the ELBO at each step.
        """
        start_key, draw_key = jax.random.split(key)
        frame = _frame(self.guide, mode)
        state = _begin(self, observations, *frame, start_key)
        curve: list[np.ndarray] = []
        with task(f"Variational inference, {self.guide} guide", self.num_chunks) as advance:
            for _ in range(self.num_chunks):
                stop_if_asked()
                state, losses = _advance(self, observations, *frame, state)
                curve.append(-np.asarray(losses))
                if not np.isfinite(curve[-1]).all():
                    step = CHUNK * (len(curve) - 1) + int(np.argmin(np.isfinite(curve[-1])))
                    raise LatentensError(
                        f"variational inference diverged: the ELBO is not finite after {step} steps; lower "
                        "learning_rate, or use Laplace or Nuts"
                    )
                advance("")
        points, log_guide = jax.device_get(_draw(self, observations, *frame, state, draw_key, num_draws))
        return points, log_guide, np.concatenate(curve)

    @property
    def num_chunks(self) -> int:
        """Number of chunks of steps."""
        return -(-self.num_steps // CHUNK)


def _frame(guide: Guide, mode: Mode) -> tuple[Array, Array]:
    """The coordinates in which a guide works: an origin, the mode, and a scale, a lower triangular matrix.

    A full-rank guide and a flow start from Laplace's approximation. The others get the scale of each coordinate alone,
    because in coordinates that are mixed they would be another family of distributions.
    """
    if guide in ("multivariate", "flow"):
        return jnp.asarray(mode.point), jnp.asarray(mode.scale)
    return jnp.asarray(mode.point), jnp.diag(jnp.linalg.norm(mode.scale, axis=1))


def _target(model: GenerativeModel, observations: Observations, origin: Array, scale: Array) -> None:
    """The posterior as a NumPyro program of one vector, in the coordinates of a frame."""
    point = numpyro.sample("point", dist.ImproperUniform(constraints.real_vector, (), origin.shape))
    log_volume = jnp.log(jnp.diag(scale)).sum()
    with handlers.block():  # the sites of the model itself are not sites of this program
        log_density = density_at(model, observations, origin + scale @ point)
    numpyro.factor("log_density", log_density + log_volume)


@lru_cache(maxsize=64)
def _guide(guide: Guide, dimension: int) -> AutoContinuous:
    """A guide that has seen the shape of its vector."""

    def vector() -> None:
        numpyro.sample("point", dist.ImproperUniform(constraints.real_vector, (), (dimension,)))

    at_mode = init_to_value(values={"point": np.zeros(dimension)})
    if guide == "flow" and dimension > 1:
        width = 2 * dimension
        made = AutoIAFNormal(vector, num_flows=2, hidden_dims=[width, width], init_loc_fn=at_mode)
    else:
        kinds: dict[str, Any] = {
            "normal": AutoDiagonalNormal,
            "multivariate": AutoMultivariateNormal,
            "low_rank": AutoLowRankMultivariateNormal,
            "flow": AutoDiagonalNormal,  # an autoregressive flow of one coordinate is just that
        }
        made = kinds[guide](vector, init_loc_fn=at_mode, init_scale=1.0)
    with jax.ensure_compile_time_eval(), handlers.block(), handlers.seed(rng_seed=some_key()):
        made()
    return made


def _optimiser(ascent: Ascent, observations: Observations, origin: Array, scale: Array, key: Array) -> tuple[SVI, Any]:
    """NumPyro's optimiser of the ELBO and its first state; it knows its parameters only after that state is made."""
    # a rate that falls to nothing averages the noise of the gradients out
    import optax  # slow to import, and needed only here

    rate = optax.cosine_decay_schedule(ascent.learning_rate, CHUNK * ascent.num_chunks)
    loss = Trace_ELBO(num_particles=ascent.num_particles)
    svi = SVI(partial(_target, ascent.model), _guide(ascent.guide, len(origin)), optax.adam(rate), loss)
    return svi, svi.init(key, observations, origin, scale)


@partial(jax.jit, static_argnums=0)
def _begin(ascent: Ascent, observations: Observations, origin: Array, scale: Array, key: Array) -> Any:
    return _optimiser(ascent, observations, origin, scale, key)[1]


@partial(jax.jit, static_argnums=0)
def _advance(
    ascent: Ascent, observations: Observations, origin: Array, scale: Array, state: Any
) -> tuple[Any, Float[Array, " step"]]:
    svi, _ = _optimiser(ascent, observations, origin, scale, state.rng_key)

    def step(state: Any, _: None) -> tuple[Any, Array]:
        return svi.update(state, observations, origin, scale)

    return jax.lax.scan(step, state, length=CHUNK)


@partial(jax.jit, static_argnums=(0, 6))
def _draw(
    ascent: Ascent, observations: Observations, origin: Array, scale: Array, state: Any, key: Array, number: int
) -> tuple[Float[Array, "draw coordinate"], Float[Array, " draw"]]:
    svi, _ = _optimiser(ascent, observations, origin, scale, key)
    fitted = svi.guide.get_posterior(svi.get_params(state))
    if isinstance(fitted, dist.TransformedDistribution):  # its inverse is slow, but what came in between is known
        draws, between = fitted.sample_with_intermediates(key, (number,))
        log_guide = fitted.log_prob(draws, between)
    else:
        fitted = fitted.to_event(1 - fitted.event_dim)
        draws = fitted.sample(key, (number,))
        log_guide = fitted.log_prob(draws)
    return origin + draws @ scale.T, log_guide - jnp.log(jnp.diag(scale)).sum()


def elbo_gain(curve: Float[np.ndarray, " step"]) -> tuple[float, float]:
    """The gain of the ELBO from the last but one tenth of the steps to the last tenth, and its standard error."""
    tenth = max(2, len(curve) // 10)
    before, last = curve[-2 * tenth : -tenth], curve[-tenth:]
    error = math.hypot(before.std(ddof=1), last.std(ddof=1)) / math.sqrt(tenth) if len(before) > 1 else math.inf
    return float(last.mean() - before.mean()) if len(before) else math.inf, error
