"""From layer to layer: what a machine passes on to the next, and what the stack says of the label."""

import itertools
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from latentens.methods import RBMStack
from latentens.rbm import Machine, Trained, Training, mean_log_likelihood, rows_from_votes
from latentens.rbm.exact import expected_given_rows, hidden_distribution
from latentens.rbm.stack import permute_hidden, rows_above, top_probs
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes

KEY = jax.random.key(0)


def machine_of(num_visible, num_hidden, seed):
    draw = np.random.default_rng(seed).normal
    return Machine(*(2 * draw(size=s) for s in ((num_visible, num_hidden), num_visible, num_hidden)))


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


@pytest.fixture(scope="module")
def machines():
    return [machine_of(5, 3, 0), machine_of(3, 2, 1), machine_of(2, 1, 2)]


@pytest.fixture(scope="module")
def all_rows():
    return Votes.from_matrix(np.array(list(itertools.product((0, 1), repeat=5))), num_classes=2)


def brute_top(machines, row):
    """P(top = 1 | row) by summing over every hidden state of every layer."""
    if not machines:
        return row[0]
    total, probs = 0.0, sigmoid(machines[0].hidden_bias + row @ machines[0].weights)
    for state in itertools.product((0, 1), repeat=len(probs)):
        state = np.array(state)
        total += np.prod(np.where(state == 1, probs, 1 - probs)) * brute_top(machines[1:], state)
    return total


@double_precision
def test_exact_prediction_sums_over_all_hidden_states(machines, all_rows):
    rows = rows_from_votes(all_rows)
    for depth in (1, 2, 3):
        stack = [*machines[: depth - 1], machines[-1] if depth == 3 else machine_of((5, 3)[depth - 1], 1, 7)]
        wanted = [brute_top(stack, row) for row in np.asarray(rows.visible)]
        np.testing.assert_allclose(top_probs(stack, rows, "exact", 1, KEY)[:, 0], wanted, rtol=1e-10)


@double_precision
def test_sampled_prediction_tends_to_the_exact_one(machines, all_rows):
    rows = rows_from_votes(all_rows)
    exact, sampled = (np.asarray(top_probs(machines, rows, how, 4000, KEY)[:, 0]) for how in ("exact", "sample"))
    np.testing.assert_allclose(sampled, exact, atol=4 * 0.5 / np.sqrt(4000))
    first, second, last = machines
    states = np.asarray(rows.visible)
    for machine in (first, second):
        states = (sigmoid(machine.hidden_bias + states @ machine.weights) > 0.5).astype(float)
    wanted = sigmoid(last.hidden_bias + states @ last.weights)[:, 0]
    np.testing.assert_allclose(top_probs(machines, rows, "map", 1, KEY)[:, 0], wanted, rtol=1e-10)


@double_precision
def test_the_next_layer_is_the_distribution_of_hidden_states(machines, all_rows):
    passed_on = hidden_distribution(machines[0], rows_from_votes(all_rows))
    probs = sigmoid(machines[0].hidden_bias + all_rows.matrix @ machines[0].weights)
    wanted = [
        np.mean(np.prod(np.where(np.array(state) == 1, probs, 1 - probs), axis=1))
        for state in itertools.product((0, 1), repeat=3)
    ]
    np.testing.assert_allclose(passed_on.weight, wanted, rtol=1e-10)
    assert int(passed_on.num_items) == 32
    many = all_rows.take(np.repeat(np.arange(32), 1000))
    sampled = rows_above(machines[0], rows_from_votes(many), "sampled", key=KEY)
    assert sampled.num_items == 32_000
    np.testing.assert_allclose(sampled.weight @ sampled.visible, probs.mean(0), atol=4 * 0.5 / np.sqrt(32_000))


@double_precision
def test_blocks_of_rows_change_nothing(machines, all_rows):
    rows, table = rows_from_votes(all_rows), np.arange(16.0).reshape(8, 2)
    whole, blocks = (hidden_distribution(machines[0], rows, block_elements=size) for size in (2**20, 4 * 8))
    np.testing.assert_allclose(blocks.weight, whole.weight, rtol=1e-12)
    whole, blocks = (expected_given_rows(machines[0], rows, table, block_elements=size) for size in (2**20, 4 * 8))
    np.testing.assert_allclose(blocks, whole, rtol=1e-12)


@dataclass(frozen=True)
class Given(Training):
    """Hands out given machines by the number of their hidden units, and remembers what it was given."""

    penalty: float = 0.0
    machines: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)

    def _train(self, rows, num_hidden, key, starts):
        self.seen.append(rows)
        return Trained((self.machines[num_hidden],), np.zeros(1), {"iterations": 0})


@pytest.mark.parametrize("num_voters", [3, 5])  # with three the bottom votes would fit the second machine as well
@pytest.mark.parametrize("passing", [None, "exact", "sampled"])
def test_each_machine_of_a_mixed_stack_is_trained_on_the_states_of_the_one_below(num_voters, passing):
    machines = [machine_of(num_voters, 3, 0), machine_of(3, 13, 1), machine_of(13, 1, 2)]
    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (20_000, num_voters)), num_classes=2)
    training = Given(machines={len(machine.hidden_bias): machine for machine in machines})
    RBMStack(hidden=(3, 13, 1), training=training, next_layer=passing, num_samples=2).fit(votes, key=KEY)
    mean, moments = np.zeros(13), np.zeros((13, 13))
    for row, count in zip(votes.patterns.rows, votes.patterns.counts, strict=True):
        lower = sigmoid(machines[0].hidden_bias + row @ machines[0].weights)
        for state in itertools.product((0, 1), repeat=3):
            share = count / 20_000 * np.prod(np.where(np.array(state) == 1, lower, 1 - lower))
            upper = sigmoid(machines[1].hidden_bias + np.array(state) @ machines[1].weights)
            mean += share * upper
            moments += share * np.where(np.eye(13), upper, np.outer(upper, upper))
    top = training.seen[2]
    weight, visible = np.asarray(top.weight), np.asarray(top.visible)
    assert int(top.num_items) == 20_000
    tolerance = 1e-9 if passing == "exact" else 5 * 0.5 / np.sqrt(20_000)
    np.testing.assert_allclose(weight @ visible, mean, atol=tolerance)
    np.testing.assert_allclose(visible.T @ (weight[:, None] * visible), moments, atol=tolerance)


@double_precision
def test_flipping_the_hidden_units_keeps_the_votes_and_turns_the_label(all_rows):
    machine = machine_of(5, 1, 3)
    rows = rows_from_votes(all_rows)
    turned = permute_hidden(machine, [1, 0])
    likelihoods = [mean_log_likelihood(m, rows, key=KEY).mean for m in (machine, turned)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-12)
    plain, flipped = (np.asarray(top_probs([m], rows, "exact", 1, KEY)) for m in (machine, turned))
    np.testing.assert_allclose(plain, 1 - flipped, atol=1e-12)


def test_complete_rows_score_the_same_with_and_without_a_mask(all_rows):
    machine = machine_of(5, 3, 0)
    rows = rows_from_votes(all_rows)
    masked = rows._replace(observed=np.ones(rows.visible.shape, bool))
    plain, with_mask = (mean_log_likelihood(machine, r, key=KEY).mean for r in (rows, masked))
    np.testing.assert_allclose(plain, with_mask, rtol=1e-12)
