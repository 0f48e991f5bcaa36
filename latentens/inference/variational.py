"""Variational inference of a marginal program by NumPyro's automatic guides and Optax."""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
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

from latentens.errors import LatentensError
from latentens.inference.approximation import Mode
from latentens.inference.density import density_at
from latentens.programs.likelihood import Observations
from latentens.programs.model import GenerativeModel
from latentens.runtime.numerics import some_key
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import task

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
            "flow": AutoDiagonalNormal,  # of one coordinate, an autoregressive flow is no more than that
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
    """What the ELBO gained from the last but one tenth of its steps to the last, and the standard error of that."""
    tenth = max(2, len(curve) // 10)
    before, last = curve[-2 * tenth : -tenth], curve[-tenth:]
    error = math.hypot(before.std(ddof=1), last.std(ddof=1)) / math.sqrt(tenth) if len(before) > 1 else math.inf
    return float(last.mean() - before.mean()) if len(before) else math.inf, error
