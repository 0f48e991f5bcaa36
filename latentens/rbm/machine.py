"""The restricted Boltzmann machine: energy, conditionals, and everything exact about a machine with one small layer.

`E(x, h) = −(aᵀx + bᵀh + xᵀWh)` over binary visible units x and hidden units h, `p(x, h) = exp(−E(x, h)) / Z`.
All functions are pure, can be differentiated and vectorised, and expect 64-bit floats to be switched on.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from latentens.errors import LatentensError
from latentens.programs.distributions import binary_states
from latentens.runtime.blocks import BLOCK_ELEMENTS, COPIES
from latentens.runtime.limits import check_memory, memory_limit

MAX_ENUMERATED = 20
"""The largest layer whose states are enumerated: 2^20 of them."""

LARGEST_PRODUCT = 512
"""That many factors between 1 and 2 can be multiplied without overflow."""


AnyArray = Array | np.ndarray
"""Arrays of JAX or NumPy: every function takes either."""


class Machine(NamedTuple):
    """The parameters of a restricted Boltzmann machine, W, a and b, as arrays of JAX or NumPy."""

    weights: Float[AnyArray, "visible hidden"]
    visible_bias: Float[AnyArray, " visible"]
    hidden_bias: Float[AnyArray, " hidden"]

    @property
    def transposed(self) -> "Machine":
        """The same machine with its layers exchanged."""
        return Machine(self.weights.T, self.hidden_bias, self.visible_bias)


def energy(
    machine: Machine, visible: Float[AnyArray, "*#row visible"], hidden: Float[AnyArray, "*#row hidden"]
) -> Float[AnyArray, "*row"]:
    """`E(x, h)`."""
    interaction = ((visible @ machine.weights) * hidden).sum(-1)
    return -(visible @ machine.visible_bias + hidden @ machine.hidden_bias + interaction)


def free_energy(machine: Machine, visible: Float[AnyArray, "row visible"]) -> Float[AnyArray, " row"]:
    """`F(x) = −log Σ_h exp(−E(x, h))`."""
    return -(
        visible @ machine.visible_bias + sum_softplus(machine.hidden_bias[:, None] + machine.weights.T @ visible.T)
    )


def hidden_probs(machine: Machine, visible: Float[AnyArray, "*row visible"]) -> Float[Array, "*row hidden"]:
    """`p(h_j = 1 | x)`."""
    return jax.nn.sigmoid(machine.hidden_bias + visible @ machine.weights)


def visible_probs(machine: Machine, hidden: Float[AnyArray, "*row hidden"]) -> Float[Array, "*row visible"]:
    """`p(x_i = 1 | h)`."""
    return hidden_probs(machine.transposed, hidden)


@jax.custom_jvp
def sum_softplus(logits: Float[AnyArray, "unit row"]) -> Float[Array, " row"]:
    """`Σ log(1 + exp(logit))` over the units: one logarithm a row in place of one an entry."""
    factors = 1 + jnp.exp(-jnp.abs(logits))
    logs = jnp.log(factors.prod(0)) if len(logits) <= LARGEST_PRODUCT else jnp.log(factors).sum(0)
    return jnp.maximum(logits, 0).sum(0) + logs


@sum_softplus.defjvp
def _sum_softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (logits,), (tangent,) = primals, tangents
    return sum_softplus(logits), (jax.nn.sigmoid(logits) * tangent).sum(0)


def log_partition(machine: Machine, *, block_elements: int = BLOCK_ELEMENTS) -> Float[Array, ""]:
    """`log Z`, by enumerating the states of the smaller layer in blocks."""
    if machine.weights.shape[0] < machine.weights.shape[1]:
        machine = machine.transposed

    def log_weights(bias: Float[Array, " state"], logits: Float[Array, "visible state"]) -> Float[Array, " state"]:
        return bias + sum_softplus(logits)

    return _log_sum_over_hidden(machine, log_weights, block_elements=block_elements)


def log_unnormalised(
    machine: Machine,
    visible: Float[AnyArray, "row visible"],
    observed: Bool[AnyArray, "row visible"] | None,
    *,
    block_elements: int = BLOCK_ELEMENTS,
) -> Float[AnyArray, " row"]:
    """`log Σ exp(−E)` over the hidden units and the unobserved visible units of each row.

    Args:
        machine: The machine; its hidden layer is enumerated if anything is unobserved.
        visible: Values of the visible units, anything where they are unobserved.
        observed: Which of them were observed; None if all were.
        block_elements: Number of elements of what is made of a block of hidden states.
    """
    if observed is None:
        return -free_energy(machine, visible)
    ones, missing = visible * observed, 1.0 - observed

    def log_weights(bias: Float[Array, " state"], logits: Float[Array, "visible state"]) -> Float[Array, "row state"]:
        return bias + ones @ logits + missing @ jax.nn.softplus(logits)

    return _log_sum_over_hidden(machine, log_weights, num_rows=len(visible), block_elements=block_elements)


def log_probs(
    machine: Machine, visible: Float[AnyArray, "row visible"], observed: Bool[AnyArray, "row visible"] | None = None
) -> Float[AnyArray, " row"]:
    """The exact `log p(observed part of x)` of each row."""
    return log_unnormalised(machine, visible, observed) - log_partition(machine)


def state_posterior(
    machine: Machine, visible: Float[AnyArray, "row visible"], observed: Bool[AnyArray, "row visible"] | None = None
) -> Float[Array, "row state"]:
    """`p(h | observed part of x)` for every state h of the hidden layer, in the order of `binary_states`."""
    states = hidden_states(machine)
    logits = machine.visible_bias + states @ machine.weights.T
    if observed is None:
        observed = jnp.ones(visible.shape, dtype=bool)
    scores = states @ machine.hidden_bias + (visible * observed) @ logits.T
    return jax.nn.softmax(scores + (1.0 - observed) @ jax.nn.softplus(logits).T, axis=-1)


def hidden_states(machine: Machine) -> Float[Array, "state hidden"]:
    """All states of the hidden layer."""
    return enumerate_states(machine.weights.shape[1])


def enumerate_states(num_units: int) -> Float[Array, "state unit"]:
    """All states of a layer as floats; refuses a layer that is too large."""
    if num_units > MAX_ENUMERATED:
        raise LatentensError(
            f"a layer of {num_units} units has too many states to enumerate; "
            f"have at most {MAX_ENUMERATED} units, or sample"
        )
    return jnp.asarray(binary_states(num_units), dtype=float)


def _units_per_block(elements_per_state: int, block_elements: int) -> int:
    """Number of hidden units whose states are enumerated at a time, such that a block fits into memory."""
    element = 8.0 * COPIES
    check_memory(
        element * elements_per_state,
        f"one hidden state of {elements_per_state:,} rows",
        "train on a sample of the rows",
    )
    elements = min(block_elements, memory_limit() / element)
    return math.floor(math.log2(max(elements / elements_per_state, 1)))


def _log_sum_over_hidden(
    machine: Machine,
    log_weights: Callable[[Array, Array], Float[Array, "*row state"]],
    *,
    num_rows: int = 1,
    block_elements: int,
) -> Float[Array, "*row"]:
    """Log-sum-exp over all hidden states h of `log_weights(bᵀh, a + Wh)`, block by block.

    The first units number the blocks and the last the states in a block, so that a block's logits are the sum of a
    table and one vector.
    """
    num_visible, num_hidden = machine.weights.shape
    num_outer = max(0, num_hidden - _units_per_block(max(num_visible, num_rows), block_elements))
    outer_weights, inner_weights = jnp.split(machine.weights, [num_outer], axis=1)
    outer_bias, inner_bias = jnp.split(machine.hidden_bias, [num_outer])
    inner_states = enumerate_states(len(inner_bias))
    table_bias = inner_states @ inner_bias
    table_logits = jnp.expand_dims(machine.visible_bias, 1) + inner_weights @ inner_states.T

    @jax.checkpoint  # what a block holds is computed again in the gradient, not stored
    def block_sum(outer: Float[Array, " unit"]) -> Float[Array, "*row"]:
        block = log_weights(table_bias + outer @ outer_bias, table_logits + (outer_weights @ outer)[:, None])
        return jax.nn.logsumexp(block, axis=-1)

    if num_outer == 0:
        return jax.nn.logsumexp(log_weights(table_bias, table_logits), axis=-1)
    return jax.nn.logsumexp(jax.lax.map(block_sum, enumerate_states(num_outer)), axis=0)
