"""What is estimated by sampling against what is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentens.datasets import simulate
from latentens.errors import LatentensError
from latentens.models import Tree
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    VisibleRows,
    estimate_log_partition,
    free_energy,
    hidden_probs,
    log_partition,
    mean_log_likelihood,
    rows_from_votes,
    state_posterior,
    train_machine,
)
from latentens.rbm.exact import LogLikelihood
from latentens.rbm.machine import hidden_states
from latentens.rbm.sampled import contrastive_loss
from latentens.rbm.sampling import fill_gaps, jump, run_chains
from latentens.runtime.numerics import double_precision
from tests.reference import two_class_tree


def machine_of(num_visible, num_hidden, seed, scale):
    draw = np.random.default_rng(seed).normal
    parts = draw(size=(num_visible, num_hidden)), draw(size=num_visible), draw(size=num_hidden)
    return Machine(*(scale * part for part in parts))


@pytest.mark.parametrize(
    ("shape", "scale"),
    [((8, 5), 0.2), ((8, 5), 0.7), ((16, 16), 0.7), pytest.param((16, 16), 0.2, marks=pytest.mark.slow)],
)
def test_annealing_agrees_with_the_exact_log_partition(shape, scale):
    for seed in range(3):
        machine = machine_of(*shape, seed, scale)
        base = machine_of(shape[0], 1, seed + 10, 0.2)
        estimate = estimate_log_partition(machine, base, key=jax.random.key(seed))
        assert abs(estimate.log_partition - log_partition(machine)) < 4 * estimate.standard_error
        assert 0 < estimate.standard_error < 0.2
        assert estimate.effective_chains > 30


@pytest.fixture(scope="module")
def rows():
    with jax.enable_x64(True):
        visible = jax.random.bernoulli(jax.random.key(5), jnp.linspace(0.2, 0.8, 5), (64, 5)).astype(float)
        return VisibleRows(visible, jnp.full(64, 1 / 64), 64)


@double_precision
@pytest.mark.parametrize("start", ["data", "persistent"])
@pytest.mark.slow
def test_contrastive_gradients_agree_with_the_exact_one_in_expectation(rows, start):
    machine = machine_of(5, 3, 1, 0.7)
    num_chains = 64 * 1000
    chains = jnp.tile(rows.visible, (1000, 1)) if start == "data" else jnp.zeros((num_chains, 5))
    chains = jax.jit(run_chains, static_argnames="num_sweeps")(machine, chains, jax.random.key(0), num_sweeps=60)
    found = jax.grad(contrastive_loss)(machine, rows.visible, chains, 0.1, 0.0)
    likelihood = LogLikelihood(rows, 3, 0.1)
    exact = likelihood.machine(likelihood.loss(likelihood.flat(machine))[1])
    # an entry is a mean over independent chains of something between 0 and 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=4 * 0.5 / np.sqrt(num_chains)), found, exact)


@double_precision
def test_the_sparsity_penalty_pulls_weights_by_their_sign(rows):
    machine = machine_of(5, 3, 1, 0.7)
    with_penalty, without = (
        jax.grad(contrastive_loss)(machine, rows.visible, rows.visible, 0.0, s).weights for s in (0.3, 0.0)
    )
    np.testing.assert_allclose(with_penalty - without, 0.3 * np.sign(machine.weights), atol=1e-12)


@double_precision
@pytest.mark.slow
def test_jumps_keep_the_law_of_the_machine_and_reach_all_of_it():
    machine, base = machine_of(4, 2, 3, 1.5), machine_of(4, 1, 4, 0.5)
    log_mass = -free_energy(machine, hidden_states(machine_of(1, 4, 0, 1.0)))
    expected = jax.nn.softmax(log_mass) @ hidden_states(machine_of(1, 4, 0, 1.0))
    chains = jnp.zeros((40_000, 4))
    step = jax.jit(jump)
    for key in jax.random.split(jax.random.key(0), 60):
        chains = step(machine, base, chains, key)
    np.testing.assert_allclose(chains.mean(0), expected, atol=4 * 0.5 / np.sqrt(40_000))


@double_precision
def test_gaps_are_filled_from_the_conditional_distribution():
    machine = machine_of(4, 3, 2, 1.0)
    observed = np.array([True, False, True, False])
    row = np.array([1.0, 0.0, 0.0, 0.0])
    posterior = state_posterior(machine, row[None], observed[None])[0]
    expected = posterior @ hidden_probs(machine.transposed, hidden_states(machine))
    count = 40_000
    filled = fill_gaps(machine, jnp.tile(row, (count, 1)), jnp.tile(observed, (count, 1)), jax.random.key(0), 50)
    np.testing.assert_array_equal(filled[:, observed], np.tile(row[observed], (count, 1)))
    np.testing.assert_allclose(filled.mean(0)[~observed], expected[~observed], atol=4 * 0.5 / np.sqrt(count))


@pytest.fixture(scope="module")
def tree():
    model = Tree((0, 0, 0, 1, 1, 1))
    hidden, voter = np.full(2, 0.9), np.full(6, 0.8)
    params = two_class_tree(0.5, hidden, hidden, voter, voter)
    return simulate(model, 4_000, key=jax.random.key(0), params=params).votes


@pytest.mark.parametrize("persistent", [pytest.param(True, marks=pytest.mark.slow), False])
def test_sampled_training_comes_close_to_the_exact_maximum(tree, persistent):
    shared = {"penalty": 0.0, "informed": False, "gibbs_steps": 5, "epochs": 40, "patience": 40, "batch_size": 64}
    options = SampledTraining(persistent=persistent, learning_rate=1.0, **shared)
    exact = train_machine(tree, 2, key=jax.random.key(0), training=ExactTraining(penalty=0.0)).machine
    sampled = train_machine(tree, 2, key=jax.random.key(0), training=options).machine
    again = train_machine(tree, 2, key=jax.random.key(0), training=options).machine
    np.testing.assert_array_equal(again.weights, sampled.weights)
    data = rows_from_votes(tree)
    means = tree.matrix.mean(axis=0)
    independent = Machine(np.zeros((6, 2)), np.log(means / (1 - means)), np.zeros(2))
    best, found, worst = (
        mean_log_likelihood(machine, data, key=jax.random.key(0)).mean for machine in (exact, sampled, independent)
    )
    assert found > best - 0.15 * (best - worst)


def test_sampled_training_starts_where_it_is_told_to(tree):
    data, start = rows_from_votes(tree), machine_of(6, 2, 5, 1.0)
    still = SampledTraining(learning_rate=1e-300, epochs=1, held_out=0.0)
    trained = still.train(data, 2, key=jax.random.key(0), starts=[start, machine_of(6, 2, 6, 1.0)])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), trained.machine, start)
    expected = mean_log_likelihood(start, data, key=jax.random.key(0)).mean
    np.testing.assert_allclose(trained.curve, expected, rtol=1e-12)


def test_early_stopping_keeps_the_best_machine(tree):
    options = SampledTraining(learning_rate=2.0, schedule="constant", epochs=200, patience=3)
    trained = train_machine(tree, 2, key=jax.random.key(0), training=options)
    best = trained.diagnostics["best_epoch"]
    assert best == trained.curve.argmax()
    assert len(trained.curve) - 1 == min(best + 3, 200)


def test_divergence_is_reported(tree):
    options = SampledTraining(learning_rate=1e5, schedule="constant", momentum=0.9, penalty=1.0)
    with pytest.raises(LatentensError, match=r"diverged.*lower the learning rate"):
        train_machine(tree, 2, key=jax.random.key(0), training=options)
