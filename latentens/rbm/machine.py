"""The restricted Boltzmann machine: energy and conditional distributions, in JAX.

`E(x, h) = −Σ_i a_i[x_i] − Σ_j b_j[h_j] − Σ_ij W_ij[x_i, h_j]` over visible units x_i and hidden units h_j that have any
number of states, `p(x, h) = exp(−E(x, h)) / Z`. In the gauge of `units`, where state 0 of a unit has neither bias nor
weights, this is `−(aᵀx + bᵀh + xᵀWh)` in the indicators x and h of the other states; for binary units these are their
values 0 and 1. All functions are pure, can be differentiated and vectorised, and expect 64-bit floats to be switched
on.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from latentens.rbm.units import AnyArray, Units


class Machine(NamedTuple):
    """The parameters of a restricted Boltzmann machine, W, a and b, as arrays of JAX or NumPy.

    Attributes:
        weights: W, one row for each indicator of the visible units and one column for each of the hidden ones.
        visible_bias: a.
        hidden_bias: b.
        visible_units: The kind of the visible units, by default binary.
        hidden_units: The kind of the hidden units, by default binary.
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
    return -(visible @ machine.visible_bias + machine.hidden_units.log_normalisers(logits).sum(axis=0))


def hidden_probs(machine: Machine, visible: Float[AnyArray, "*row visible"]) -> Float[Array, "*row hidden"]:
    """`p(h_j = s | x)` for the indicators of the hidden units."""
    return machine.hidden_units.probs(machine.hidden_bias + visible @ machine.weights)


def visible_probs(machine: Machine, hidden: Float[AnyArray, "*row hidden"]) -> Float[Array, "*row visible"]:
    """`p(x_i = v | h)` for the indicators of the visible units."""
    return hidden_probs(machine.transposed, hidden)


def log_partition(machine: Machine) -> Float[Array, ""]:
    """`log Z`, by enumerating the states of the smaller layer at once; `exact.log_partition` takes them in blocks."""
    if smaller_layer_states(machine) < machine.hidden_units.num_states**machine.num_hidden:
        machine = machine.transposed
    return jax.nn.logsumexp(-free_energy(machine.transposed, hidden_states(machine)))


def smaller_layer_states(machine: Machine) -> int:
    """Number of states of the layer that has fewer."""
    visible, hidden = machine.visible_units, machine.hidden_units
    return min(visible.num_states**machine.num_visible, hidden.num_states**machine.num_hidden)


def hidden_states(machine: Machine) -> Float[np.ndarray, "state hidden"]:
    """All states of the hidden layer."""
    return machine.hidden_units.states(machine.num_hidden)
