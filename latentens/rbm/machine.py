"""The restricted Boltzmann machine: energy, conditionals, and everything exact about a machine with one small layer.

`E(x, h) = −Σ_i a_i[x_i] − Σ_j b_j[h_j] − Σ_ij W_ij[x_i, h_j]` over visible units x_i and hidden units h_j that have any
number of states, `p(x, h) = exp(−E(x, h)) / Z`. In the gauge of `units`, where state 0 of a unit has neither bias nor
weights, this is `−(aᵀx + bᵀh + xᵀWh)` in the indicators x and h of the other states; for binary units these are their
values 0 and 1. All functions are pure, can be differentiated and vectorised, and expect 64-bit floats to be switched
on.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentens.rbm.units import AnyArray, Units
from latentens.runtime.blocks import BLOCK_ELEMENTS, COPIES
from latentens.runtime.limits import check_memory, memory_limit

Observed = Bool[AnyArray, "row unit"] | Int[AnyArray, "row unit"]
"""How many votes each visible unit has in each row: 0 where it is missing, more than 1 where a vote was repeated."""


class Machine(NamedTuple):
    """The parameters of a restricted Boltzmann machine, W, a and b, as arrays of JAX or NumPy.

    Attributes:
        weights: W, one row for each indicator of the visible units and one column for each of the hidden ones.
        visible_bias: a.
        hidden_bias: b.
        visible_units: The kind of the visible units, by default binary.
        hidden_units: The kind of the hidden units, likewise.
    """

    weights: Float[AnyArray, "visible hidden"]
    visible_bias: Float[AnyArray, " visible"]
    hidden_bias: Float[AnyArray, " hidden"]
    visible_units: Units = Units()
    hidden_units: Units = Units()

    @property
    def num_visible(self) -> int:
        """Number of visible units."""
        return self.visible_units.count(self.visible_bias)

    @property
    def num_hidden(self) -> int:
        """Number of hidden units."""
        return self.hidden_units.count(self.hidden_bias)

    @property
    def transposed(self) -> "Machine":
        """The same machine with its layers exchanged."""
        return Machine(self.weights.T, self.hidden_bias, self.visible_bias, self.hidden_units, self.visible_units)


def energy(
    machine: Machine, visible: Float[AnyArray, "*#row visible"], hidden: Float[AnyArray, "*#row hidden"]
) -> Float[AnyArray, "*row"]:
    """`E(x, h)`."""
    interaction = ((visible @ machine.weights) * hidden).sum(-1)
    return -(visible @ machine.visible_bias + hidden @ machine.hidden_bias + interaction)


def free_energy(machine: Machine, visible: Float[AnyArray, "row visible"]) -> Float[AnyArray, " row"]:
    """`F(x) = −log Σ_h exp(−E(x, h))`."""
    logits = machine.hidden_bias[:, None] + machine.weights.T @ visible.T
    return -(visible @ machine.visible_bias + machine.hidden_units.sum_log_normalisers(logits))


def hidden_probs(machine: Machine, visible: Float[AnyArray, "*row visible"]) -> Float[Array, "*row hidden"]:
    """`p(h_j = s | x)` for the indicators of the hidden units."""
    return machine.hidden_units.probs(machine.hidden_bias + visible @ machine.weights)


def visible_probs(machine: Machine, hidden: Float[AnyArray, "*row hidden"]) -> Float[Array, "*row visible"]:
    """`p(x_i = v | h)` for the indicators of the visible units."""
    return hidden_probs(machine.transposed, hidden)


def log_partition(machine: Machine, *, block_elements: int = BLOCK_ELEMENTS) -> Float[Array, ""]:
    """`log Z`, by enumerating the states of the smaller layer in blocks."""
    if smaller_layer_states(machine) < machine.hidden_units.num_states**machine.num_hidden:
        machine = machine.transposed

    def log_weights(bias: Float[Array, " state"], logits: Float[Array, "visible state"]) -> Float[Array, " state"]:
        return bias + machine.visible_units.sum_log_normalisers(logits)

    return _log_sum_over_hidden(machine, log_weights, block_elements=block_elements)


def smaller_layer_states(machine: Machine) -> int:
    """Number of states of the layer that has fewer."""
    visible, hidden = machine.visible_units, machine.hidden_units
    return min(visible.num_states**machine.num_visible, hidden.num_states**machine.num_hidden)


def log_unnormalised(
    machine: Machine,
    visible: Float[AnyArray, "row visible"],
    observed: Observed | None,
    *,
    block_elements: int = BLOCK_ELEMENTS,
) -> Float[AnyArray, " row"]:
    """`log Σ exp(−E)` over the hidden units and the unobserved visible units of each row.

    A visible unit with n votes, all drawn given the hidden units, adds the energy of each and, so that these are
    probabilities, 1 − n times its log normaliser: summed out for n = 0, nothing for n = 1.

    Args:
        machine: The machine; its hidden layer is enumerated if any unit is unobserved or repeated.
        visible: Indicators of the visible units, added up over repeated votes; anything where they are unobserved.
        observed: Number of votes of each visible unit; None if all have one.
        block_elements: Number of elements of what is made of a block of hidden states.
    """
    if observed is None:
        return -free_energy(machine, visible)
    votes, missing = _votes_cast(machine, visible, observed), 1.0 - observed

    def log_weights(bias: Float[Array, " state"], logits: Float[Array, "visible state"]) -> Float[Array, "row state"]:
        return bias + votes @ logits + missing @ machine.visible_units.log_normalisers(logits)

    return _log_sum_over_hidden(machine, log_weights, num_rows=len(visible), block_elements=block_elements)


def _votes_cast(machine: Machine, visible: Float[AnyArray, "row visible"], observed: Observed) -> AnyArray:
    """The indicators, zero for what was not observed."""
    present = jnp.repeat(jnp.asarray(observed) > 0, machine.visible_units.width, axis=1)
    return jnp.where(present, visible, 0.0)


def log_probs(
    machine: Machine, visible: Float[AnyArray, "row visible"], observed: Observed | None = None
) -> Float[AnyArray, " row"]:
    """The exact `log p(observed part of x)` of each row."""
    return log_unnormalised(machine, visible, observed) - log_partition(machine)


def log_votes_given_states(
    machine: Machine, visible: Float[AnyArray, "row visible"], observed: Observed | None = None
) -> Float[Array, "row state"]:
    """`log p(observed part of x | h)` for every state h of the hidden layer, the last unit changing fastest."""
    logits = _logits_of_states(machine)
    if observed is None:
        observed = jnp.ones((len(visible), machine.num_visible), dtype=bool)
    votes = _votes_cast(machine, visible, observed)
    return jnp.asarray(votes @ logits - observed @ machine.visible_units.log_normalisers(logits))


def state_posterior(
    machine: Machine, visible: Float[AnyArray, "row visible"], observed: Observed | None = None
) -> Float[Array, "row state"]:
    """`p(h | observed part of x)` for every state h of the hidden layer, in the same order."""
    prior = hidden_states(machine) @ machine.hidden_bias
    prior += machine.visible_units.sum_log_normalisers(_logits_of_states(machine))
    return jax.nn.softmax(prior + log_votes_given_states(machine, visible, observed), axis=-1)


def _logits_of_states(machine: Machine) -> Float[Array, "visible state"]:
    """`a + Wh` for every state h of the hidden layer."""
    return jnp.asarray(machine.visible_bias)[:, None] + jnp.asarray(machine.weights) @ hidden_states(machine).T


def hidden_states(machine: Machine) -> Float[np.ndarray, "state hidden"]:
    """All states of the hidden layer."""
    return machine.hidden_units.states(machine.num_hidden)


def _units_per_block(elements_per_state: int, num_states: int, block_elements: int) -> int:
    """Number of hidden units whose states are enumerated at a time, such that a block fits into memory."""
    element = 8.0 * COPIES
    check_memory(
        element * elements_per_state,
        f"one hidden state of {elements_per_state:,} rows",
        "train on a sample of the rows",
    )
    elements = min(block_elements, memory_limit() / element)
    return math.floor(math.log2(max(elements / elements_per_state, 1)) / math.log2(num_states))


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
    units = machine.hidden_units
    per_block = _units_per_block(max(len(machine.weights), num_rows), units.num_states, block_elements)
    num_outer = max(0, machine.num_hidden - per_block)
    outer_weights, inner_weights = jnp.split(machine.weights, [num_outer * units.width], axis=1)
    outer_bias, inner_bias = jnp.split(machine.hidden_bias, [num_outer * units.width])
    inner_states = jnp.asarray(units.states(machine.num_hidden - num_outer))
    table_bias = inner_states @ inner_bias
    table_logits = jnp.expand_dims(machine.visible_bias, 1) + inner_weights @ inner_states.T

    @jax.checkpoint  # what a block holds is computed again in the gradient, not stored
    def block_sum(outer: Float[Array, " indicator"]) -> Float[Array, "*row"]:
        block = log_weights(table_bias + outer @ outer_bias, table_logits + (outer_weights @ outer)[:, None])
        return jax.nn.logsumexp(block, axis=-1)

    if num_outer == 0:
        return jax.nn.logsumexp(log_weights(table_bias, table_logits), axis=-1)
    return jax.nn.logsumexp(jax.lax.map(block_sum, jnp.asarray(units.states(num_outer))), axis=0)
