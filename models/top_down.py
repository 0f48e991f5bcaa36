"""The directed chain of the paper's appendix: label → hidden units → votes with sigmoid links."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int
from scipy.special import expit

from latentens.programs.components import (
    Categories,
    Classes,
    Prior,
    check_categories,
    even_prevalence,
    keep_positive,
    sample_prevalence,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_draw
from latentens.runtime.settings import Count, Positive


@dataclass(frozen=True)
class TopDown(GenerativeModel):
    """Binary hidden units depend on the label, and votes on the hidden units.

    Density::

        p(x, y) = π_y Σ_h Π_k Bernoulli(h_k; σ(b_k + u_k[y])) Π_j softmax(a_j + W_j h)[x_j]

    of hidden units k and voters j, and shares π of the classes; u_k is zero for label 0, and a_j and W_j are zero for
    vote 0.

    Plates, in brackets::

        prevalence → label[item] → hidden[item, unit] → vote[item, voter]
        hidden_bias[unit], label_weights[unit, class] → hidden
        visible_bias[voter, vote], weights[voter, vote, unit] → vote

    The axes `class` and `vote` omit class 0 and vote 0; with two classes, or two different votes, the axis is absent.

    Only the shape of p(h) identifies the label, for two classes from three units on. The order of the labels follows
    the votes; hidden units can change places and sides.

    Reference: U. Shaham et al. (2016), A deep learning approach to unsupervised ensemble learning, ICML 2016,
    appendix.

    Attributes:
        num_voters: Number of voters.
        num_hidden: Number of hidden units.
        num_classes: Number of classes.
        prevalence_prior: Concentrations of the shares' Dirichlet prior, one for all classes or one for each.
        bias_scale: Standard deviation of the biases' normal priors.
        weight_scale: Standard deviation of the weights' normal priors.
        num_categories: Number of different votes, if there are others than for classes, such as "tie": the first K are
            for the classes.
    """

    num_voters: Count = 15
    num_hidden: Count = 3
    num_classes: Classes = 2
    prevalence_prior: Prior = 2.0
    bias_scale: Positive = 2.0
    weight_scale: Positive = 2.0
    num_categories: Categories = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_positive(self, "prevalence_prior", (), (self.num_classes,))
        check_categories(self.num_classes, self.num_categories, self)

    @property
    def _others(self) -> tuple[int, int]:
        """Number of classes and of different votes besides class 0 and vote 0."""
        return self.num_classes - 1, (self.num_categories or self.num_classes) - 1

    def program(self, num_items: int, votes: Int[Array, "item voter"] | None = None) -> None:
        """Label, then hidden units, then votes."""
        voters, units = self.num_voters, self.num_hidden
        classes, seen = (_axis(number) for number in self._others)
        bias, weight = dist.Normal(0.0, self.bias_scale), dist.Normal(0.0, self.weight_scale)
        shares = sample_prevalence(self.num_classes, self.prevalence_prior)
        with numpyro.plate("unit", units):
            hidden_bias = numpyro.sample("hidden_bias", bias)
            label_weights = numpyro.sample("label_weights", weight.expand(classes).to_event(len(classes)))
        with numpyro.plate("voter", voters):
            visible_bias = numpyro.sample("visible_bias", bias.expand(seen).to_event(len(seen)))
            weights = numpyro.sample("weights", weight.expand((*seen, units)).to_event(len(seen) + 1))
        by_label = jnp.pad(label_weights.reshape(units, -1), ((0, 0), (1, 0))).T
        with numpyro.plate("item", num_items):
            label = numpyro.sample("label", dist.Categorical(probs=shares))
            hidden = numpyro.sample("hidden", dist.Bernoulli(logits=hidden_bias + by_label[label]).to_event(1))
            scores = visible_bias.reshape(-1) + hidden @ weights.reshape(-1, units).T
            scores = scores.reshape(*hidden.shape[:-1], voters, -1)
            logits = jnp.concatenate([jnp.zeros_like(scores[..., :1]), scores], axis=-1)
            numpyro.sample("vote", dist.Categorical(logits=logits).to_event(1), obs=votes)

    def label_views(self, params: Params) -> list[np.ndarray]:
        """Each hidden unit."""
        weights = np.asarray(params["label_weights"]).reshape(self.num_hidden, -1)
        scores = np.asarray(params["hidden_bias"])[:, None] + np.pad(weights, ((0, 0), (1, 0)))
        is_on = expit(scores)
        return list(np.stack([1 - is_on, is_on], axis=-1))

    def permute(self, params: Params, order: Int[np.ndarray, " label"]) -> dict[str, np.ndarray]:
        """Labels come in another order; hidden units and voters stay."""
        weights = params["label_weights"] if len(order) > 2 else params["label_weights"][..., None]
        by_label = np.concatenate([np.zeros_like(weights[..., :1]), weights], axis=-1)[..., order]
        weights = by_label[..., 1:] - by_label[..., :1]
        return {
            "prevalence": params["prevalence"][..., order],
            "hidden_bias": params["hidden_bias"] + by_label[..., 0],
            "label_weights": weights if len(order) > 2 else weights[..., 0],
        }

    @numpy_draw
    def example_params(self, key: Array) -> dict[str, Float[Array, "..."]]:
        """Each hidden unit drives its own share of the voters strongly and the others weakly.

        The appendix gives no figures; label weights are uniform on [2, 4], weights to own voters on [1.5, 3.5] and
        to others on [−.5, .5], biases such that a unit is a fair coin at the midpoint of its input. With more than two
        classes a unit stands for one of the classes 1, 2, … in turn, and teams of such units share the voters. Votes
        that are not labels depend on the units weakly.
        """
        label_key, own_key, other_key = jax.random.split(key, 3)
        voters, units, (others, votes) = self.num_voters, self.num_hidden, self._others
        own_class, team = jnp.arange(units) % others, jnp.arange(units) // others
        own_team = jnp.arange(voters) * -(-units // others) // voters
        is_own = (own_team[:, None, None] == team) & (jnp.arange(votes)[:, None] == own_class)
        weights = jnp.where(
            is_own,
            jax.random.uniform(own_key, is_own.shape, minval=1.5, maxval=3.5),
            jax.random.uniform(other_key, is_own.shape, minval=-0.5, maxval=0.5),
        )
        strength = jax.random.uniform(label_key, (units,), minval=2.0, maxval=4.0)
        return {
            "prevalence": even_prevalence(self.num_classes),
            "hidden_bias": -strength / 2,
            "label_weights": (strength[:, None] * jax.nn.one_hot(own_class, others)).reshape(units, *_axis(others)),
            "visible_bias": -weights.sum(axis=-1).reshape(voters, *_axis(votes)) / 2,
            "weights": weights.reshape(voters, *_axis(votes), units),
        }


def _axis(number: int) -> tuple[int, ...]:
    """The axis of classes or votes besides the first, where there is more than one."""
    return (number,) if number > 1 else ()
