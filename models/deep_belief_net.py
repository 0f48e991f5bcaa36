"""The deep belief net of the paper's appendix: an RBM of votes and hidden units, and a label that depends on them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.distributions import BoltzmannHidden
from latentens.programs.model import GenerativeModel
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class DeepBeliefNet(GenerativeModel):
    """Votes for two classes and binary hidden units form an RBM, and the label is read off the hidden units.

    Density::

        p(x, h) ∝ exp(aᵀx + bᵀh + xᵀWh),  p(y = 1 | h) = σ(c + uᵀh)

    of votes x and hidden units h.

    Plates, in brackets::

        vote[item, voter] ← hidden[item, unit] → label[item]
        visible_bias[voter], weights[voter, unit] → vote and hidden
        hidden_bias[unit] → hidden, label_bias, label_weights[unit] → label

    Nothing identifies the label: it is a leaf, so simulation and the exact posterior are well defined, but votes hold
    no information about p(y | h), so the model cannot be fitted to them.

    Reference: U. Shaham et al. (2016), A deep learning approach to unsupervised ensemble learning, ICML 2016,
    appendix.

    Attributes:
        num_voters: Number of voters.
        num_hidden: Number of hidden units.
        bias_scale: Standard deviation of the biases' normal priors.
        weight_scale: Standard deviation of the weights' normal priors.
    """

    num_voters: Count = 15
    num_hidden: Count = 3
    bias_scale: Positive = 2.0
    weight_scale: Positive = 2.0

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Hidden units, then votes and label."""
        bias, weight = dist.Normal(0.0, self.bias_scale), dist.Normal(0.0, self.weight_scale)
        with numpyro.plate("voter", self.num_voters):
            visible_bias = numpyro.sample("visible_bias", bias)
            weights = numpyro.sample("weights", weight.expand((self.num_hidden,)).to_event(1))
        with numpyro.plate("unit", self.num_hidden):
            hidden_bias = numpyro.sample("hidden_bias", bias)
            label_weights = numpyro.sample("label_weights", weight)
        label_bias = numpyro.sample("label_bias", bias)
        with numpyro.plate("item", num_items):
            hidden = numpyro.sample("hidden", BoltzmannHidden(weights, visible_bias, hidden_bias))
            numpyro.sample("label", dist.Bernoulli(logits=label_bias + hidden @ label_weights))
            logits = visible_bias + hidden @ weights.T
            numpyro.sample("vote", dist.Bernoulli(logits=logits).to_event(1), obs=votes)

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Each hidden unit couples to its own share of the voters; biases make every unit a fair coin without coupling.

        The appendix gives no figures; the couplings are uniform on [1, 3] and the label's weights on [2, 4].
        """
        weights_key, label_key = jax.random.split(key)
        own_unit = jnp.arange(self.num_voters) * self.num_hidden // self.num_voters
        coupling = jax.random.uniform(weights_key, (self.num_voters,), minval=1.0, maxval=3.0)
        weights = jax.nn.one_hot(own_unit, self.num_hidden) * coupling[:, None]
        visible_bias = -weights.sum(axis=1) / 2
        log_on = jax.nn.softplus(visible_bias + coupling) - jax.nn.softplus(visible_bias)
        label_weights = jax.random.uniform(label_key, (self.num_hidden,), minval=2.0, maxval=4.0)
        return {
            "visible_bias": visible_bias,
            "weights": weights,
            "hidden_bias": -jax.nn.one_hot(own_unit, self.num_hidden).T @ log_on,
            "label_weights": label_weights,
            "label_bias": -label_weights.sum() / 2,
        }
