"""Training: how a machine comes from rows, and the machines from which training starts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentens.rbm.machine import Machine
from latentens.rbm.rows import MEAN_PSEUDO, VisibleRows
from latentens.rbm.units import AnyArray
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.settings import NotNegative, Settings


class Trained(NamedTuple):
    """A trained machine.

    Attributes:
        ends: The machines at which the starts ended, the best first; their parameters are NumPy arrays.
        curve: The best one's objective in the course of training: a mean over items, in nats; higher is better.
        diagnostics: How training went: `training` names the way, `iterations` counts its steps, ….
    """

    ends: tuple[Machine, ...]
    curve: Float[np.ndarray, " step"]
    diagnostics: Mapping[str, Any]

    @property
    def machine(self) -> Machine:
        """The best machine."""
        return self.ends[0]


@dataclass(frozen=True)
class Training(Settings, ABC):
    """A way to train a machine, with its settings.

    Attributes:
        penalty: Weight of the L2 penalty `penalty/2 · ‖W‖²` on the mean log-likelihood.
    """

    penalty: NotNegative

    @final
    @double_precision
    def train(self, rows: VisibleRows, num_hidden: int, *, key: jax.Array, starts: Sequence[Machine] = ()) -> Trained:
        """Train a machine.

        Args:
            rows: The training rows.
            num_hidden: Number of hidden units.
            key: Random key; the same key gives the same machine.
            starts: Machines of that size to start from, the most promising first; by default starts are random.
        """
        return self._train(rows, num_hidden, key, starts)

    @abstractmethod
    def _train(self, rows: VisibleRows, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> Trained:
        """Do the work of `train`, in double precision."""


def squared_weights(machine: Machine) -> Float[Array, ""]:
    """`‖W‖²`, whichever states are states 0."""
    return jnp.sum(centred_weights(machine) ** 2)


def centred_weights(machine: Machine) -> Float[AnyArray, "visible hidden"]:
    """W as it is for binary units; for others twice the tables W_ij over all states, centred both ways.

    A table of two by two states with one weight w, centred, has entries ±w/4, so that either has the singular value w.
    """
    visible, hidden = (np.eye(units.num_states) - 1 / units.num_states for units in machine[3:])
    if len(visible) == len(hidden) == 2:
        return machine.weights
    by_visible = visible[:, 1:] @ machine.weights.reshape(machine.num_visible, len(visible) - 1, -1)
    tables = by_visible.reshape(-1, len(hidden) - 1) @ hidden[1:]
    return 2 * tables.reshape(machine.num_visible * len(visible), -1)


def from_vote_shares(rows: VisibleRows) -> Machine:
    """The machine with one unit for which each item's label has the distribution of the item's votes."""
    hidden, pseudo, tables = rows.hidden_units, rows.units.num_states * MEAN_PSEUDO, rows.votes_by_state
    labels = tables.sum(axis=1)[:, : hidden.num_states]
    labels = (labels + pseudo) / (labels.sum(axis=1, keepdims=True) + hidden.num_states * pseudo)
    if rows.label is not None:
        labels = np.where(rows.label[:, None] < 0, labels, np.eye(hidden.num_states)[rows.label])
    weighted = (labels * np.asarray(rows.weight)[:, None]).T
    counts = (weighted @ tables.reshape(len(tables), -1)).reshape(-1, *tables.shape[1:]).swapaxes(0, 1) + pseudo
    log_odds = np.log(counts[:, :, 1:]) - np.log(counts[:, :, :1])
    log_zero = np.log(counts[:, :, 0] / counts.sum(axis=2)).sum(axis=0) + np.log(weighted.sum(axis=1) + pseudo)
    weights = np.moveaxis(log_odds[:, 1:] - log_odds[:, :1], 1, 2)
    bias = log_zero[1:] - log_zero[0]
    return Machine(weights.reshape(-1, hidden.width), log_odds[:, 0].ravel(), bias, rows.units, hidden)


def random_machines(
    rows: VisibleRows, num_hidden: int, weight_scale: float, key: jax.Array, number: int
) -> list[Machine]:
    """Machines with random weights whose units are balanced at the mean of the data.

    Binary hidden units have weights of either sign. Of more states, those of a hidden unit stand for the same states of
    the visible ones, which a few starts of arbitrary order would seldom hit on. Other votes stand for no state.
    """
    units, hidden, biases = rows.units, rows.hidden_units, rows.biases
    table = (1 + np.eye(units.width, hidden.width)) / 2  # that of equal entries for equal states and zeros elsewhere
    machines = []
    for drawn in weight_scale * numpy_generator(key).normal(size=(number, rows.num_units, num_hidden)):
        weights = np.kron(drawn if hidden.width == 1 else 2 * np.abs(drawn), table)
        machines.append(uncentre(Machine(weights, biases, np.zeros(weights.shape[1]), units, hidden), rows.means))
    return machines


def uncentre(centred: Machine, means: Float[AnyArray, " visible"]) -> Machine:
    """The machine whose energy is that of another one in the variables `x − means` and `h − 1/K`."""
    weights, visible_bias, hidden_bias = centred[:3]
    share = weights.sum(axis=1) / centred.hidden_units.num_states
    return centred._replace(visible_bias=visible_bias - share, hidden_bias=hidden_bias - means @ weights)


def centre(machine: Machine, means: Float[AnyArray, " visible"]) -> Machine:
    """The inverse of `uncentre`."""
    weights, visible_bias, hidden_bias = machine[:3]
    share = weights.sum(axis=1) / machine.hidden_units.num_states
    return machine._replace(visible_bias=visible_bias + share, hidden_bias=hidden_bias + means @ weights)
