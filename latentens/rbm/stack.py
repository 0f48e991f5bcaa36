"""From layer to layer: what the hidden units of one machine are to the next, and to the label at the top."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentens.rbm.machine import Machine, enumerate_states, hidden_probs, hidden_states, state_posterior
from latentens.rbm.rows import Rows, rows_from_votes
from latentens.rbm.training.sampled import fill_gaps
from latentens.runtime.devices import fetch
from latentens.runtime.precision import double_precision
from latentens.votes import Votes

Prediction = Literal["exact", "map", "sample"]

LARGEST_EXACT_LAYER = 12
"""Expectations over the states of a layer are exact up to this many units."""

BLOCK_CELLS = 2**22
"""Rows are processed in blocks whose table of states has about this many cells."""


@jax.jit
def hidden_distribution(machine: Machine, rows: Rows) -> Rows:
    """The rows of the next layer, exactly: every hidden state with its probability under the data."""
    states = hidden_states(machine)

    def add_block(total: Float[Array, " state"], block: Rows) -> tuple[Float[Array, " state"], None]:
        return total + block.weight @ state_posterior(machine, block.visible, block.observed), None

    weight, _ = jax.lax.scan(add_block, jnp.zeros(len(states)), _in_blocks(rows, len(states)))
    return Rows(states, weight)


def hidden_sample(machine: Machine, votes: Votes, key: jax.Array) -> Votes:
    """The votes of the next layer, sampled: one hidden state for each item."""
    gap_key, key = jax.random.split(key)
    probs = fetch(marginal_hidden_probs(machine, rows_from_votes(votes), gap_key))[votes.patterns.inverse]
    return Votes.from_matrix(np.asarray(jax.random.bernoulli(key, probs)), num_classes=2)


def marginal_hidden_probs(machine: Machine, rows: Rows, key: jax.Array) -> Float[Array, "row hidden"]:
    """`p(h_j = 1 | observed part of x)`; the key serves where gaps in a large machine have to be sampled."""
    if rows.observed is None:
        return hidden_probs(machine, rows.visible)
    if len(machine.hidden_bias) <= LARGEST_EXACT_LAYER:
        return _expected(machine, rows, hidden_states(machine))
    draws = [fill_gaps(machine, rows.visible, rows.observed, draw_key) for draw_key in jax.random.split(key, 20)]
    return jnp.mean(jnp.stack([hidden_probs(machine, draw) for draw in draws]), axis=0)


def top_probs(
    machines: Sequence[Machine], rows: Rows, prediction: Prediction, num_samples: int, key: jax.Array
) -> Float[Array, " row"]:
    """Probability that the one unit at the top of the stack is on.

    Args:
        machines: The machines from the votes up; the last has one hidden unit.
        rows: The votes.
        prediction: `exact`: expectation over all hidden states; `map`: every layer passes on its most probable
            state; `sample`: the mean over random states.
        num_samples: How many for `sample`.
        key: Random key, for `sample` and for gaps in a large machine.
    """
    first, *others = machines
    if prediction == "exact" and (others or rows.observed is not None):
        return _expected(first, rows, _top_table(machines))[:, 0]
    probs = marginal_hidden_probs(first, rows, key)
    if not others:
        return probs[:, 0]
    if prediction == "map":
        return _climb(others, (probs > 0.5).astype(float))[:, 0]
    return _mean_climb(tuple(others), probs, jax.random.split(key, num_samples))[:, 0]


@double_precision
def hidden_representations(
    machines: Sequence[Machine], votes: Votes, key: jax.Array
) -> list[Float[np.ndarray, "item unit"]]:
    """Each layer's `p(unit = 1)` for every item, given the most probable state of the layer below."""
    probs = [marginal_hidden_probs(machines[0], rows_from_votes(votes), key)]
    for machine in machines[1:]:
        probs.append(hidden_probs(machine, (probs[-1] > 0.5).astype(float)))
    return [fetch(layer)[votes.patterns.inverse] for layer in probs]


def flip_hidden(machine: Machine) -> Machine:
    """The same distribution of the visible units with every hidden unit's 0 and 1 exchanged."""
    return Machine(-machine.weights, machine.visible_bias + machine.weights.sum(axis=1), -machine.hidden_bias)


def _top_table(machines: Sequence[Machine]) -> Float[Array, "state top"]:
    """Probability of the top unit given each state of the first hidden layer."""
    if len(machines) == 1:
        return enumerate_states(1)
    table = hidden_probs(machines[-1], hidden_states(machines[-2]))
    for below, machine in zip(machines[-3::-1], machines[-2:0:-1], strict=True):
        table = state_posterior(machine, hidden_states(below)) @ table
    return table


def _climb(
    machines: Sequence[Machine], states: Float[Array, "row unit"], key: jax.Array | None = None
) -> Float[Array, "row top"]:
    """Pass states up, the most probable ones or, with a key, random ones; the probabilities at the top."""
    for layer, machine in enumerate(machines):
        probs = hidden_probs(machine, states)
        random = None if key is None else jax.random.bernoulli(jax.random.fold_in(key, layer), probs)
        states = (probs > 0.5 if random is None else random).astype(float)
    return probs


@jax.jit
def _mean_climb(
    machines: tuple[Machine, ...], probs: Float[Array, "row unit"], keys: Key[Array, " sample"]
) -> Float[Array, "row top"]:
    """The mean over random states of the first hidden layer, and of those above, of the probabilities at the top."""

    def add_draw(total: Float[Array, "row top"], key: jax.Array) -> tuple[Float[Array, "row top"], None]:
        first_key, climb_key = jax.random.split(key)
        states = jax.random.bernoulli(first_key, probs).astype(float)
        return total + _climb(machines, states, climb_key), None

    return jax.lax.scan(add_draw, jnp.zeros((len(probs), 1)), keys)[0] / len(keys)


@jax.jit
def _expected(machine: Machine, rows: Rows, table: Float[Array, "state value"]) -> Float[Array, "row value"]:
    """The mean of a function of the hidden state, given each row."""

    def block_mean(block: Rows) -> Float[Array, "row value"]:
        return state_posterior(machine, block.visible, block.observed) @ table

    means = jax.lax.map(block_mean, _in_blocks(rows, len(table)))
    return means.reshape(-1, table.shape[1])[: len(rows.weight)]


def _in_blocks(rows: Rows, num_states: int) -> Rows:
    """The rows with a leading axis of blocks, the last block filled up with rows of weight zero."""
    size = min(len(rows.weight), max(1, BLOCK_CELLS // num_states))
    count = -(-len(rows.weight) // size)

    def split(part: Array) -> Array:
        filled = jnp.pad(part, ((0, count * size - len(part)),) + ((0, 0),) * (part.ndim - 1))
        return filled.reshape(count, size, *part.shape[1:])

    return jax.tree.map(split, rows)
