"""Distributions of hidden sites that NumPyro lacks, each of which can be summed out; and whether one is proper."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erfc
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints
from scipy.special import log_softmax

REACH = 12.0
"""A normal factor is summed over this many standard deviations on either side."""

SERIES = 20.0
"""Farther out than this, the tail of a normal distribution is its asymptotic series to rounding error."""

ROUNDING = 1e-6
"""Probabilities may be this far beyond 0 and 1, and shares this far from adding up to one."""


def binary_states(num_units: int) -> Int[np.ndarray, "state unit"]:
    """All 2^num_units states of binary units, the last unit changing fastest."""
    return np.array(list(itertools.product((0, 1), repeat=num_units))).reshape(-1, num_units)


@jax.custom_jvp
def log_normal_tail(distance: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """`log Φ(−distance)` for distances from 0 on, in a third of the time of `log_ndtr`, which serves both sides."""
    far = distance > SERIES
    inverse = 1 / jnp.maximum(distance, SERIES)
    square = inverse**2
    # far out Φ(−d) = φ(d) (1 − 1/d² + 3/d⁴ − 15/d⁶ + …) / d, where φ(d) is too small for a number
    series = (1 - (1 - (3 - 15 * square) * square) * square) * inverse / np.sqrt(2 * np.pi)
    near = erfc(jnp.minimum(distance, SERIES) / np.sqrt(2)) / 2
    return jnp.log(jnp.where(far, series, near)) - jnp.where(far, distance**2 / 2, 0.0)


@log_normal_tail.defjvp
def _slope_of_tail(
    primals: tuple[Float[Array, "*batch"]], tangents: tuple[Float[Array, "*batch"]]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    (distance,), (change,) = primals, tangents
    log_tail = log_normal_tail(distance)
    return log_tail, -change * jnp.exp(-(distance**2) / 2 - np.log(2 * np.pi) / 2 - log_tail)


def log_normal_cells(bounds: Float[Array, "*batch bound"]) -> Float[Array, "*batch cell"]:
    """Log-probabilities of a standard normal variable between ascending bounds, and below and above all of them.

    Accurate in both tails; between two bounds that coincide it is about −69 in place of −∞.
    """
    below_middle = bounds <= 0
    log_tail = log_normal_tail(jnp.where(below_middle, -bounds, bounds))  # beyond each bound, away from 0
    log_rest = jnp.log(1 - jnp.exp(log_tail))
    first = jnp.where(below_middle, log_tail, log_rest)[..., :1]
    last = jnp.where(below_middle, log_rest, log_tail)[..., -1:]
    if bounds.shape[-1] == 1:
        return jnp.concatenate([first, last], axis=-1)
    left, right = log_tail[..., :-1], log_tail[..., 1:]
    larger, smaller = jnp.maximum(left, right), jnp.minimum(left, right)
    one_side = larger + jnp.log(-jnp.expm1(jnp.minimum(smaller - larger, -1e-30)))
    both_sides = jnp.log(jnp.maximum(1 - jnp.exp(left) - jnp.exp(right), 1e-30))
    middle = jnp.where(below_middle[..., :-1] == below_middle[..., 1:], one_side, both_sides)
    return jnp.concatenate([first, middle, last], axis=-1)


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
        """Nodes enough for the votes of so many voters, whose product narrows like 1/√num_voters.

        Posteriors are exact to rounding error where the factor explains four fifths of a vote's variance, and to about
        1e-10 where it explains nine tenths. Whoever knows that items have few votes may say how many nodes to take.
        """
        return cls(num_nodes or max(201, int(60 * np.sqrt(num_voters))))

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
        del expand  # there is no batch to expand over
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
