"""Distributions of hidden sites that can be summed out, and checks of probabilities."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erfc
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints
from scipy.special import log_softmax

from latentens.runtime.numerics import SMALLEST

REACH = 8.5
"""A normal factor is summed over this many standard deviations on either side: beyond are 2e-17 of its probability."""

ROUNDING = 1e-6
"""Probabilities may be this far beyond 0 and 1, and shares this far from adding up to one."""


def binary_states(num_units: int) -> Int[np.ndarray, "state unit"]:
    """All 2^num_units states of binary units, the last unit changing fastest."""
    return np.array(list(itertools.product((0, 1), repeat=num_units))).reshape(-1, num_units)


def log_normal_cells(bounds: Float[Array, "*batch bound"]) -> Float[Array, "*batch cell"]:
    """Log-probabilities of a standard normal variable between ascending bounds, and below and above all of them.

    Differences are taken on the side of the smaller tails, so that they are accurate in both; probabilities that
    underflow get the logarithm of the smallest float.
    """
    low = bounds <= 0
    tail = erfc(jnp.abs(bounds) / np.sqrt(2)) / 2  # beyond each bound, away from 0
    below, above = jnp.where(low, tail, 1 - tail), jnp.where(low, 1 - tail, tail)
    middle = jnp.where(low[..., :-1], below[..., 1:] - below[..., :-1], above[..., :-1] - above[..., 1:])
    return jnp.log(jnp.maximum(jnp.concatenate([below[..., :1], middle, above[..., -1:]], axis=-1), SMALLEST))


class QuadratureNormal(dist.Normal):
    """A standard normal factor of each item that can be summed out.

    Samples are exact; the support are equally spaced nodes u_k with weights w_k proportional to the density, so that
    `E f(u) ≈ Σ_k w_k f(u_k)`. This trapezoidal rule converges exponentially for analytic f and, where f is a product of
    votes, needs fewer nodes than that of Gauss and Hermite, whose nodes are too far apart in the middle.

    Args:
        num_nodes: Number of nodes. They must be closer than the product of votes is wide: see `for_voters`.
    """

    has_enumerate_support = True

    def __init__(self, num_nodes: int = 201) -> None:
        self.nodes = np.linspace(-REACH, REACH, num_nodes)
        self.log_quadrature_weights = log_softmax(-(self.nodes**2) / 2)
        super().__init__(0.0, 1.0)

    @classmethod
    def for_voters(cls, num_voters: int, num_nodes: int | None = None) -> "QuadratureNormal":
        """Enough nodes for this many voters, whose product of votes narrows like 1/√num_voters.

        Posteriors are exact to rounding error where the factor explains four fifths of a vote's variance, and to about
        1e-9 where it explains nine tenths. Pass `num_nodes` to use fewer where items have few votes.
        """
        return cls(num_nodes or math.ceil(2 * REACH / min(0.12, 0.4 / math.sqrt(num_voters))) + 1)

    def enumerate_support(self, expand: bool = True) -> Float[Array, "node *batch"]:
        """The nodes."""
        nodes = jnp.asarray(self.nodes).reshape((-1,) + (1,) * len(self.batch_shape))
        return jnp.broadcast_to(nodes, (len(self.nodes), *self.batch_shape)) if expand else nodes


class BoltzmannHidden(dist.Distribution):
    """The hidden layer of a restricted Boltzmann machine, its visible units summed out.

    `p(h) ∝ exp(bᵀh) Π_i (1 + exp(a_i + W_i h))`, normalised over all 2^m states, so for m up to about 15.

    Args:
        weights: W, one row per visible unit and one column per hidden unit.
        visible_bias: a.
        hidden_bias: b.
    """

    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True
    pytree_data_fields = ("weights", "visible_bias", "hidden_bias")

    def __init__(
        self,
        weights: Float[Array, "visible hidden"],
        visible_bias: Float[Array, " visible"],
        hidden_bias: Float[Array, " hidden"],
    ) -> None:
        self.weights, self.visible_bias, self.hidden_bias = weights, visible_bias, hidden_bias
        super().__init__(batch_shape=(), event_shape=(weights.shape[1],))

    def _unnormalised(self, hidden: Int[Array, "*batch hidden"]) -> Float[Array, "*batch"]:
        visible = jax.nn.softplus(self.visible_bias + hidden @ self.weights.T)
        return hidden @ self.hidden_bias + visible.sum(-1)

    def log_prob(self, value: Int[Array, "*batch hidden"]) -> Float[Array, "*batch"]:
        """Log probability of hidden states."""
        return self._unnormalised(value) - jax.nn.logsumexp(self._unnormalised(self._states()))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> Int[Array, "*batch hidden"]:
        """Draw states."""
        states = self._states()
        return jax.random.choice(key, states, sample_shape, p=jax.nn.softmax(self._unnormalised(states)))

    def enumerate_support(self, expand: bool = True) -> Int[Array, "state hidden"]:
        """All states."""
        del expand  # no batch to expand over
        return self._states()

    def _states(self) -> Int[Array, "state hidden"]:
        return jnp.asarray(binary_states(self.event_shape[0]))


def innermost(distribution: dist.Distribution) -> dist.Distribution:
    """The distribution of single elements inside a vector of them."""
    while isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        distribution = distribution.base_dist
    return distribution


def log_probabilities(distribution: dist.Distribution, num_values: int) -> Float[Array, "*batch value"]:
    """The log-probability of each of the values 0, 1, … of a distribution of single codes.

    Those of a categorical one are read off: to ask for one value at a time takes several times longer, since the
    gradient of a look-up is added up element by element.
    """
    if isinstance(distribution, dist.CategoricalLogits | dist.CategoricalProbs):
        # the logarithms of probabilities, cut off where NumPyro does, are not normalised by it either
        by_logits = isinstance(distribution, dist.CategoricalLogits)
        log_probs = jax.nn.log_softmax(distribution.logits) if by_logits else distribution.logits
        return jnp.broadcast_to(log_probs, (*distribution.batch_shape, num_values))
    values = (jnp.full(distribution.batch_shape, value) for value in range(num_values))
    return jnp.stack([distribution.log_prob(value) for value in values], axis=-1)


def is_proper(distribution: dist.Distribution) -> Bool[Array, ""]:
    """Whether probabilities lie between 0 and 1 and shares add up to one: NumPyro silently cuts them off."""
    base, holds = innermost(distribution), jnp.array(True)
    for name, constraint in base.arg_constraints.items():
        value = getattr(base, name)
        if constraint is constraints.unit_interval:
            holds &= jnp.all((value >= -ROUNDING) & (value <= 1 + ROUNDING))
        elif constraint is constraints.simplex:
            holds &= jnp.all((value >= -ROUNDING) & (jnp.abs(value.sum(-1, keepdims=True) - 1) <= ROUNDING))
    return holds
