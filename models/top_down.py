"""The directed chain of the paper's appendix: label → hidden units → votes with sigmoid links."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.precision import numpy_draw
from latentens.runtime.settings import Count


@dataclass(frozen=True)
class TopDown(GenerativeModel):
    """p(h_j = 1 | y) = σ(b_j + u_j y), p(x_i = 1 | h) = σ(a_i + W_i h)."""

    num_voters: Count = 15
    num_hidden: Count = 3

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then hidden units, then votes."""
        prevalence = numpyro.sample("prevalence", dist.Beta(2.0, 2.0))
        with numpyro.plate("unit", self.num_hidden):
            hidden_bias = numpyro.sample("hidden_bias", dist.Normal(0.0, 2.0))
            label_weights = numpyro.sample("label_weights", dist.Normal(0.0, 2.0))
        with numpyro.plate("voter", self.num_voters):
            visible_bias = numpyro.sample("visible_bias", dist.Normal(0.0, 2.0))
            weights = numpyro.sample("weights", dist.Normal(0.0, 2.0).expand((self.num_hidden,)).to_event(1))
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Bernoulli(prevalence))
            logits = hidden_bias + label[..., None] * label_weights
            hidden = numpyro.sample("hidden", dist.Bernoulli(logits=logits).to_event(1))
            logits = visible_bias + hidden @ weights.T
            numpyro.sample("vote", dist.Bernoulli(logits=logits).to_event(1), obs=votes)

    def flip(self, params: Params) -> dict[str, np.ndarray]:
        """The label changes sides; hidden units and voters stay."""
        return {
            "prevalence": 1 - params["prevalence"],
            "hidden_bias": params["hidden_bias"] + params["label_weights"],
            "label_weights": -params["label_weights"],
        }

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Each hidden unit drives its own share of the voters strongly and the others weakly.

        The appendix gives no figures; label weights are uniform on [2, 4], weights to own voters on [1.5, 3.5] and
        to others on [−.5, .5], biases such that a unit is a fair coin at the midpoint of its input.
        """
        label_key, own_key, other_key = jax.random.split(key, 3)
        shape = self.num_voters, self.num_hidden
        own_unit = jnp.arange(self.num_voters) * self.num_hidden // self.num_voters
        weights = jnp.where(
            jax.nn.one_hot(own_unit, self.num_hidden, dtype=bool),
            jax.random.uniform(own_key, shape, minval=1.5, maxval=3.5),
            jax.random.uniform(other_key, shape, minval=-0.5, maxval=0.5),
        )
        label_weights = jax.random.uniform(label_key, (self.num_hidden,), minval=2.0, maxval=4.0)
        return {
            "prevalence": jnp.array(0.5),
            "hidden_bias": -label_weights / 2,
            "label_weights": label_weights,
            "visible_bias": -weights.sum(axis=1) / 2,
            "weights": weights,
        }
