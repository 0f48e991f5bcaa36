"""A truncated Gaussian: votes are the signs of correlated normal variables."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, Int

from latentens.programs.distributions import QuadratureNormal
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.precision import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class TruncatedGaussian(GenerativeModel):
    """x = 1{z > 0}, z ~ N(±m, Σ) with the sign of the label and Σ of ones, ρ off the diagonal.

    One factor u carries all the correlation: `z_i = ±m_i + √ρ u + √(1−ρ) e_i`; it is summed out by quadrature.
    """

    num_voters: Count = 15

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label and common factor, then votes."""
        prevalence = numpyro.sample("prevalence", dist.Beta(2.0, 2.0))
        correlation = numpyro.sample("correlation", dist.Beta(2.0, 2.0))
        with numpyro.plate("voter", self.num_voters):
            mean = numpyro.sample("mean", dist.Normal(0.5, 0.5))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(prevalence))
            factor = numpyro.sample("factor", QuadratureNormal(max(201, 8 * self.num_voters)))
            signed_mean = jnp.where(label[..., None] == 1, mean, -mean)
            z_score = (signed_mean + jnp.sqrt(correlation) * factor[..., None]) / jnp.sqrt(1 - correlation)
            logits = log_ndtr(z_score) - log_ndtr(-z_score)
            numpyro.sample("vote", dist.Bernoulli(logits=logits).to_event(1), obs=votes)

    def flip(self, params: Params) -> dict[str, np.ndarray]:
        """The means change sign."""
        return {"prevalence": 1 - params["prevalence"], "mean": -params["mean"]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Means √log(1 / (2 (1 − accuracy))) from accuracies uniform on [.5, .8]; correlation .5."""
        accuracy = jax.random.uniform(key, (self.num_voters,), minval=0.5, maxval=0.8)
        mean = jnp.sqrt(-jnp.log(2 * (1 - accuracy)))
        return {"prevalence": jnp.array(0.5), "correlation": jnp.array(0.5), "mean": mean}
