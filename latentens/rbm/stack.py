"""Stacks of machines: training one, passing its hidden units on to the next, and the label at the top."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from rich.console import Console

from latentens.rbm.exact import ExactTraining, expected_given_rows, hidden_distribution, rows_of
from latentens.rbm.machine import Machine, hidden_probs, hidden_states
from latentens.rbm.rows import MOST_ENTRIES, VisibleRows, rows_from_votes
from latentens.rbm.sampled import SampledTraining
from latentens.rbm.sampling import fill_gaps
from latentens.rbm.training import Trained, Training
from latentens.rbm.units import MOST_EXACT_STATES, AnyArray
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes

Prediction = Literal["exact", "map", "sample"]
Passing = Literal["exact", "sampled"]


def choose_training(rows: VisibleRows, num_hidden: int) -> Training:
    """Exact training where the machine can be enumerated, sampled training elsewhere, which is announced."""
    if rows.sizes.can_enumerate(num_hidden):
        return ExactTraining()
    announce(
        f"machine with {rows.num_units} × {num_hidden} units of {rows.units.num_states} states, "
        f"{len(rows.weight):,} rows: sampled training (exact training would go through "
        f"{rows.sizes.entries(num_hidden):,.0f} entries for each step; the limit is {MOST_ENTRIES:,})"
    )
    return SampledTraining()


@lru_cache(maxsize=256)
def announce(message: str) -> None:
    """Print a message once, to the log and on standard error."""
    logging.getLogger("latentens").info(message)
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def train_machine(votes: Votes, num_hidden: int, *, key: jax.Array, training: Training | None = None) -> Trained:
    """Train one machine on votes.

    Args:
        votes: Votes, some of which may be missing.
        num_hidden: Number of hidden units.
        key: Random key.
        training: How; by default exactly where the size allows, by sampling elsewhere.
    """
    rows = rows_from_votes(votes)
    return (training or choose_training(rows, num_hidden)).train(rows, num_hidden, key=key)


def is_exact(machine: Machine) -> bool:
    """Whether expectations over the states of the hidden layer are exact."""
    return machine.hidden_units.num_states**machine.num_hidden <= MOST_EXACT_STATES


@double_precision
def rows_above(machine: Machine, rows: VisibleRows, passing: Passing | None, *, key: jax.Array) -> VisibleRows:
    """The training rows of the next machine, from the hidden units of this one.

    Args:
        machine: The machine.
        rows: Its own training rows: votes, or the hidden units of the layer below.
        passing: `exact`: every hidden state with its probability under the rows; `sampled`: one hidden state for each
            item. By default exact unless the layer is large.
        key: Random key, for sampling.
    """
    if passing is None:
        passing = "exact" if is_exact(machine) else "sampled"
    if passing == "exact":
        return hidden_distribution(machine, rows)
    row_of_items = rows.row_of_items()
    states = hidden_sample(machine, rows, row_of_items, key=key)
    votes = Votes.from_matrix(states, num_classes=machine.hidden_units.num_states)
    return rows_from_votes(votes, None if rows.label is None else rows.label[row_of_items])


@double_precision
def hidden_sample(
    machine: Machine, rows: VisibleRows, row_of_items: Int[np.ndarray, " item"], *, key: jax.Array
) -> Int[np.ndarray, "item unit"]:
    """One state of each hidden unit for each item, given the row of each."""
    gap_key, key = jax.random.split(key)
    probs = fetch(marginal_hidden_probs(machine, rows, gap_key))[row_of_items]
    return fetch(machine.hidden_units.codes(machine.hidden_units.draw(key, probs)))


def marginal_hidden_probs(machine: Machine, rows: VisibleRows, key: jax.Array) -> Float[AnyArray, "row hidden"]:
    """`p(h_j = s | observed part of x)`; the key serves where gaps in a large machine have to be sampled."""
    if rows.observed is None:
        return hidden_probs(machine, rows.visible)
    if is_exact(machine):
        return expected_given_rows(machine, rows, hidden_states(machine))
    rows.refuse_repeats("a machine too large to enumerate")
    draws = [fill_gaps(machine, rows.visible, rows.observed, draw_key) for draw_key in jax.random.split(key, 20)]
    return jnp.mean(jnp.stack([hidden_probs(machine, draw) for draw in draws]), axis=0)


def top_probs(
    machines: Sequence[Machine], rows: VisibleRows, prediction: Prediction, num_samples: int, key: jax.Array
) -> Float[AnyArray, "row state"]:
    """Probability of each state of the one unit at the top of the stack, but for state 0.

    Args:
        machines: The machines from the votes up; the last has one hidden unit.
        rows: The votes.
        prediction: `exact`: expectation over all hidden states; `map`: every layer passes on its most probable
            state; `sample`: the mean over random states.
        num_samples: Number of states for `sample`.
        key: Random key, for `sample` and for gaps in a large machine.
    """
    first, *others = machines
    if prediction == "exact" and (others or rows.observed is not None):
        return expected_given_rows(first, rows, _top_table(machines))
    probs = marginal_hidden_probs(first, rows, key)
    if not others:
        return probs
    if prediction == "map":
        return _climb(others, first.hidden_units.most_probable(probs))
    return _mean_climb(tuple(others), probs, jax.random.split(key, num_samples))


@double_precision
def hidden_representations(
    machines: Sequence[Machine], votes: Votes, *, key: jax.Array
) -> list[Float[np.ndarray, "item hidden"]]:
    """Each layer's `p(h_j = s)` for every item, given the most probable state of the layer below."""
    probs = [marginal_hidden_probs(machines[0], rows_from_votes(votes), key)]
    for machine in machines[1:]:
        probs.append(hidden_probs(machine, machine.visible_units.most_probable(probs[-1])))
    return [fetch(layer)[votes.patterns.inverse] for layer in probs]


def permute_hidden(machine: Machine, order: Sequence[int] | Int[np.ndarray, " state"]) -> Machine:
    """A machine with the same distribution of the visible units and the hidden states in another order.

    Args:
        machine: The machine.
        order: The present states that become states 0, 1, ….
    """
    tables = [
        np.insert(machine.hidden_units.by_unit(np.asarray(part)), 0, 0.0, axis=-1)[..., list(order)]
        for part in (machine.weights, machine.hidden_bias)
    ]
    shift = tables[0][..., 0].sum(axis=-1)  # of the new state 0, over all units
    weights, bias = (table[..., 1:] - table[..., :1] for table in tables)
    return machine._replace(
        weights=weights.reshape(machine.weights.shape),
        visible_bias=machine.visible_bias + shift,
        hidden_bias=bias.reshape(machine.hidden_bias.shape),
    )


def _top_table(machines: Sequence[Machine]) -> Float[np.ndarray, "state top"]:
    """Probability of the top unit given each state of the first hidden layer."""
    table = hidden_states(machines[-1])
    for below, machine in zip(machines[-2::-1], machines[:0:-1], strict=True):
        table = expected_given_rows(machine, rows_of(machine, hidden_states(below)), table)
    return table


def _climb(
    machines: Sequence[Machine], states: Float[Array, "row unit"], key: jax.Array | None = None
) -> Float[Array, "row top"]:
    """Pass states up, the most probable ones or, with a key, random ones; the probabilities at the top."""
    for layer, machine in enumerate(machines):
        probs = hidden_probs(machine, states)
        units = machine.hidden_units
        states = units.most_probable(probs) if key is None else units.draw(jax.random.fold_in(key, layer), probs)
    return probs


@jax.jit
def _mean_climb(
    machines: tuple[Machine, ...], probs: Float[Array, "row unit"], keys: Key[Array, " sample"]
) -> Float[Array, "row top"]:
    """The mean over random states of the first hidden layer, and of those above, of the probabilities at the top."""

    def add_draw(total: Float[Array, "row top"], key: jax.Array) -> tuple[Float[Array, "row top"], None]:
        first_key, climb_key = jax.random.split(key)
        states = machines[0].visible_units.draw(first_key, probs)
        return total + _climb(machines, states, climb_key), None

    total = jnp.zeros((len(probs), machines[-1].hidden_units.width))
    return jax.lax.scan(add_draw, total, keys)[0] / len(keys)
