"""A truncated Gaussian: votes are the signs of correlated normal variables."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, Int

from latentens.programs.components import Pair, Prior, even_prevalence, keep_normal, keep_positive, sample_prevalence
from latentens.programs.distributions import QuadratureNormal
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class TruncatedGaussian(GenerativeModel):
    """Votes for two classes are the signs of equally correlated normal variables whose means follow the label.

    Density::

        x_j = 1 if z_j > 0 else 0,  z_j = ±m_j + √ρ u + √(1 − ρ) e_j with the sign of the label
        p(x, y) = π_y ∫ Π_j p(x_j | y, u) dN(u)

    of voters j with means m_j, a correlation ρ, independent standard normal u and e_j, and shares π of the classes.
    The factor u is summed out by quadrature.

    Plates, in brackets::

        prevalence → label[item] → vote[item, voter] ← factor[item]
        correlation, mean[voter] → vote

    The order of the labels is not identified and follows the votes, since all means can change sign. Label and factor
    both move all votes at once; only the fact that the label has two values distinguishes them.

    Reference: U. Shaham et al. (2016), A deep learning approach to unsupervised ensemble learning, ICML 2016.

    Attributes:
        num_voters: Number of voters.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for both classes or one for each.
        correlation_prior: Concentrations of the correlation's beta prior.
        mean_prior: Mean and standard deviation of the means' normal prior.
    """

    num_voters: Count = 15
    prevalence_prior: Prior = 2.0
    correlation_prior: Pair = (2.0, 2.0)
    mean_prior: Pair = (0.5, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (2,))
        keep_positive(self, "correlation_prior", (2,))
        keep_normal(self, "mean_prior")

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label and common factor, then votes."""
        shares = sample_prevalence(2, self.prevalence_prior)
        correlation = numpyro.sample("correlation", dist.Beta(*self.correlation_prior))
        with numpyro.plate("voter", self.num_voters):
            mean = numpyro.sample("mean", dist.Normal(*self.mean_prior))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(shares[1]))
            factor = numpyro.sample("factor", QuadratureNormal.for_voters(self.num_voters))
            signed_mean = jnp.where(label[..., None] == 1, mean, -mean)
            z_score = (signed_mean + jnp.sqrt(correlation) * factor[..., None]) / jnp.sqrt(1 - correlation)
            logits = log_ndtr(z_score) - log_ndtr(-z_score)
            numpyro.sample("vote", dist.Bernoulli(logits=logits).to_event(1), obs=votes)

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """The means change sign."""
        return {"prevalence": params["prevalence"][..., order], "mean": -params["mean"]}

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Means √log(1 / (2 (1 − accuracy))) from accuracies uniform on [.5, .8]; correlation .5."""
        accuracy = jax.random.uniform(key, (self.num_voters,), minval=0.5, maxval=0.8)
        mean = jnp.sqrt(-jnp.log(2 * (1 - accuracy)))
        return {"prevalence": even_prevalence(2), "correlation": jnp.array(0.5), "mean": mean}
