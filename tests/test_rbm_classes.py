"""Machines of three classes against brute force over all states, the lemma for K classes, and stacks of them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentens import bayes_posterior, load_fit, log_likelihood, simulate
from latentens.errors import LatentensError, VotesError
from latentens.methods import RBMStack
from latentens.methods.rbm_stack import stack_machines, stack_params
from latentens.models import DawidSkene, Tree
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    Units,
    VisibleRows,
    dawid_skene_to_rbm,
    energy,
    estimate_log_partition,
    free_energy,
    hidden_probs,
    log_partition,
    log_probs,
    rbm_to_dawid_skene,
    rows_from_votes,
    state_posterior,
    visible_probs,
)
from latentens.rbm.exact import LogLikelihood, hidden_distribution, stacked_log_likelihoods
from latentens.rbm.sampled import contrastive_loss
from latentens.rbm.sampling import fill_gaps, run_chains
from latentens.rbm.stack import permute_hidden, rows_above, top_probs
from latentens.rbm.training import centred_weights, squared_weights
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from tests.reference import votes_from, votes_of_classes

K, VOTERS, HIDDEN = 3, 4, 2
KEY = jax.random.key(0)
UNITS = Units(K)
ROWS = np.array(list(itertools.product(range(K), repeat=VOTERS)))
STATES = np.array(list(itertools.product(range(K), repeat=HIDDEN)))


def machine_of(num_visible=VOTERS, num_hidden=HIDDEN, seed=0, scale=1.0):
    draw = np.random.default_rng(seed).normal
    sizes = num_visible * UNITS.width, num_hidden * UNITS.width
    return Machine(*(scale * draw(size=s) for s in (sizes, sizes[0], sizes[1])), UNITS, UNITS)


def full_tables(machine):
    """a[i, v], b[j, s] and W[i, v, j, s] over all states, zero at state 0."""
    visible, hidden = machine.num_visible, machine.num_hidden
    weights, visible_bias, hidden_bias = (
        np.zeros((visible, K, hidden, K)),
        np.zeros((visible, K)),
        np.zeros((hidden, K)),
    )
    weights[:, 1:, :, 1:] = np.asarray(machine.weights).reshape(visible, K - 1, hidden, K - 1)
    visible_bias[:, 1:] = np.asarray(machine.visible_bias).reshape(visible, K - 1)
    hidden_bias[:, 1:] = np.asarray(machine.hidden_bias).reshape(hidden, K - 1)
    return weights, visible_bias, hidden_bias


def brute_joint(machine):
    """exp(−E(x, h)) as a table, one entry at a time."""
    weights, visible_bias, hidden_bias = full_tables(machine)
    table = np.empty((len(ROWS), len(STATES)))
    for (r, x), (t, h) in itertools.product(enumerate(ROWS), enumerate(STATES)):
        total = sum(visible_bias[i, v] for i, v in enumerate(x)) + sum(hidden_bias[j, s] for j, s in enumerate(h))
        table[r, t] = np.exp(total + sum(weights[i, v, j, s] for i, v in enumerate(x) for j, s in enumerate(h)))
    return table


@pytest.fixture(scope="module")
def machine():
    return machine_of()


@pytest.fixture(scope="module")
def joint(machine):
    return brute_joint(machine)


def indicators(codes):
    return (np.asarray(codes)[..., None] == np.arange(1, K)).reshape(*np.shape(codes)[:-1], -1).astype(float)


def test_energies_and_log_partition(machine, joint):
    grid = energy(machine, indicators(ROWS)[:, None, :], indicators(STATES)[None])
    np.testing.assert_allclose(np.exp(-grid), joint, rtol=1e-12)
    np.testing.assert_allclose(-free_energy(machine, indicators(ROWS)), np.log(joint.sum(1)), atol=1e-12)
    np.testing.assert_allclose(log_partition(machine), np.log(joint.sum()), rtol=1e-13)
    np.testing.assert_allclose(log_partition(machine.transposed), np.log(joint.sum()), rtol=1e-13)


def test_conditionals(machine, joint):
    given_visible, given_hidden = joint / joint.sum(1, keepdims=True), (joint / joint.sum(0)).T
    np.testing.assert_allclose(hidden_probs(machine, indicators(ROWS)), given_visible @ indicators(STATES), rtol=1e-10)
    np.testing.assert_allclose(visible_probs(machine, indicators(STATES)), given_hidden @ indicators(ROWS), rtol=1e-10)
    np.testing.assert_allclose(state_posterior(machine, indicators(ROWS)), given_visible, rtol=1e-10)


@pytest.mark.parametrize("observed", [(1, 1, 1, 1), (0, 1, 1, 0), (0, 0, 0, 0)])
def test_missing_votes_are_summed_out(machine, joint, observed):
    row, observed = np.array([2, 0, 1, 2]), np.array(observed, bool)
    mass = joint[(row == ROWS)[:, observed].all(1)].sum(0)
    spoilt = indicators(row[None]) + 7.0 * ~np.repeat(observed, K - 1)  # what stands in a gap must not matter
    np.testing.assert_allclose(
        log_probs(machine, spoilt, observed[None])[0], np.log(mass.sum() / joint.sum()), atol=1e-10
    )
    np.testing.assert_allclose(state_posterior(machine, spoilt, observed[None])[0], mass / mass.sum(), rtol=1e-10)


def test_repeated_votes_are_drawn_anew_given_the_hidden_units(machine, joint):
    counts = np.zeros((1, VOTERS, K), dtype=int)
    counts[0, 0], counts[0, 3] = (1, 0, 2), (0, 1, 0)
    rows = rows_from_votes(votes_from(counts))
    shares = joint.sum(0) / joint.sum()
    given = np.stack([[joint[ROWS[:, i] == v].sum(0) / joint.sum(0) for v in range(K)] for i in range(VOTERS)])
    mass = shares * given[0, 0] * given[0, 2] ** 2 * given[3, 1]
    np.testing.assert_allclose(log_probs(machine, rows.visible, rows.observed)[0], np.log(mass.sum()), atol=1e-10)
    np.testing.assert_allclose(state_posterior(machine, rows.visible, rows.observed)[0], mass / mass.sum(), rtol=1e-10)
    with pytest.raises(VotesError, match="sampled training needs one vote"):
        SampledTraining().train(rows, 2, key=KEY)


@double_precision
def test_gradients_of_the_penalised_likelihood(machine):
    generator = np.random.default_rng(0)
    known = generator.random(ROWS.shape) < 0.7
    weight = jnp.asarray(generator.dirichlet(np.ones(len(ROWS))))
    rows = VisibleRows(jnp.asarray(indicators(ROWS)), weight, 100, jnp.asarray(known), UNITS)

    def brute_loss(flat):
        candidate = unflatten(machine, flat)
        table = brute_joint(candidate)
        seen = [np.log(table[(row == ROWS)[:, o].all(1)].sum()) for row, o in zip(ROWS, known, strict=True)]
        weights, *_ = full_tables(candidate)
        centred = weights - weights.mean(axis=1, keepdims=True)
        centred = centred - centred.mean(axis=3, keepdims=True)
        squares = 4 * np.sum(centred**2, axis=(1, 2, 3)) @ (np.asarray(weight) @ known)  # less for voters with gaps
        return 0.5 * 0.1 * squares - np.asarray(weight) @ seen + np.log(table.sum())

    flat = np.concatenate([np.ravel(part) for part in machine[:3]])
    loss, found = LogLikelihood(rows, HIDDEN, 0.1).loss(flat)
    np.testing.assert_allclose(loss, brute_loss(flat), rtol=1e-12)
    for place in (0, 5, 31, 33, 41, 43):
        step = 1e-5 * np.eye(len(flat))[place]
        slope = (brute_loss(flat + step) - brute_loss(flat - step)) / 2e-5
        np.testing.assert_allclose(found[place], slope, atol=1e-9)


def unflatten(machine, flat):
    parts = np.split(flat, np.cumsum([np.size(part) for part in machine[:2]]))
    weights = parts[0].reshape(machine.weights.shape)
    return machine._replace(weights=weights, visible_bias=parts[1], hidden_bias=parts[2])


@double_precision
def test_the_penalty_does_not_depend_on_the_order_of_the_states(machine):
    visible_turned = permute_hidden(machine.transposed, [2, 0, 1]).transposed
    for turned in (visible_turned, permute_hidden(machine, [1, 2, 0])):
        assert np.abs(turned.weights - machine.weights).max() > 0.1
        np.testing.assert_allclose(squared_weights(turned), squared_weights(machine), rtol=1e-12)
    binary = np.random.default_rng(0).normal(size=(5, 3))
    plain = Machine(binary, np.zeros(5), np.zeros(3))
    np.testing.assert_allclose(centred_weights(plain), binary)


def test_orders_of_the_hidden_states_keep_the_votes(machine, joint):
    order = [2, 0, 1]
    turned = permute_hidden(machine, order)
    renamed = [int(np.flatnonzero((np.array(order)[state] == STATES).all(1))[0]) for state in STATES]
    np.testing.assert_allclose(
        state_posterior(turned, indicators(ROWS)), (joint / joint.sum(1, keepdims=True))[:, renamed], rtol=1e-10
    )
    np.testing.assert_allclose(log_probs(turned, indicators(ROWS)), np.log(joint.sum(1) / joint.sum()), atol=1e-10)


@pytest.fixture(scope="module")
def dawid_skene():
    generator = np.random.default_rng(3)
    return {"prevalence": generator.dirichlet(np.ones(K)), "confusion": generator.dirichlet(np.ones(K), (VOTERS, K))}


def test_one_hidden_unit_is_dawid_skene_of_any_number_of_classes(dawid_skene):
    single = dawid_skene_to_rbm(**dawid_skene)
    for found, truth in zip(rbm_to_dawid_skene(single), dawid_skene.values(), strict=True):
        np.testing.assert_allclose(found, truth, atol=1e-9)
    gaps = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.3, -1, ROWS)
    votes = Votes.from_matrix(gaps, num_classes=K)
    rows = rows_from_votes(votes)
    posteriors = state_posterior(single, rows.visible, rows.observed)[votes.patterns.inverse]
    np.testing.assert_allclose(posteriors, bayes_posterior(DawidSkene(VOTERS, K), dawid_skene, votes), atol=1e-6)
    total = log_probs(single, rows.visible, rows.observed)[votes.patterns.inverse].sum()
    np.testing.assert_allclose(total, log_likelihood(DawidSkene(VOTERS, K), dawid_skene, votes), rtol=1e-9)
    with pytest.raises(LatentensError, match="one hidden unit"):
        rbm_to_dawid_skene(machine_of())


@double_precision
def test_layers_and_prediction_sum_over_all_hidden_states(machine, joint):
    votes = Votes.from_matrix(ROWS, num_classes=K)
    top = machine_of(HIDDEN, 1, seed=5)
    given_rows = joint / joint.sum(1, keepdims=True)
    passed_on = hidden_distribution(machine, rows_from_votes(votes))
    np.testing.assert_allclose(passed_on.weight, given_rows.mean(0), rtol=1e-10)
    wanted = given_rows @ hidden_probs(top, indicators(STATES))
    rows = rows_from_votes(votes)
    exact, sampled = (np.asarray(top_probs([machine, top], rows, how, 3000, KEY)) for how in ("exact", "sample"))
    np.testing.assert_allclose(exact[: len(ROWS)], wanted, rtol=1e-10)
    np.testing.assert_allclose(sampled[: len(ROWS)], wanted, atol=4.5 * 0.5 / np.sqrt(3000))
    many = rows_above(machine, rows_from_votes(votes.take(np.repeat(np.arange(len(ROWS)), 200))), "sampled", key=KEY)
    mean = given_rows.mean(0) @ indicators(STATES)
    np.testing.assert_allclose(many.weight @ many.visible, mean, atol=4.5 * 0.5 / np.sqrt(200 * len(ROWS)))


@double_precision
def test_likelihood_under_two_machines_sums_over_all_hidden_states(machine, joint):
    """Votes given hidden states by the lower machine, hidden states by the upper; gaps and repeats by products."""
    upper = machine_of(HIDDEN, 1, seed=5)
    of_states = np.exp([log_probs(upper, indicators(state)[None])[0] for state in STATES])
    given_states = joint / joint.sum(0)  # p(row | state)
    rows = rows_from_votes(Votes.from_matrix(ROWS, num_classes=K))
    found = stacked_log_likelihoods(machine, upper, rows)[: len(ROWS)]
    np.testing.assert_allclose(np.exp(found), given_states @ of_states, rtol=1e-10)
    first = np.stack([given_states[ROWS[:, 0] == vote].sum(0) for vote in range(K)])  # p(first vote | state)
    second = np.stack([given_states[ROWS[:, 1] == vote].sum(0) for vote in range(K)])
    cast = {"item": [0, 0, 0, 1, 2, 2], "voter": [0, 0, 1, 1, 2, 3], "vote": [2, 2, 1, 0, 0, 0]}
    votes = Votes.from_long(cast, classes=list(range(K)), duplicates="keep")
    found = stacked_log_likelihoods(machine, upper, rows_from_votes(votes))[votes.patterns.inverse[:2]]
    wanted = [(first[2] ** 2 * second[1]) @ of_states, second[0] @ of_states]
    np.testing.assert_allclose(np.exp(found), wanted, rtol=1e-10)


@double_precision
@pytest.mark.slow
def test_sampling_agrees_with_the_exact_values(machine, joint):
    rows = VisibleRows(jnp.asarray(indicators(ROWS)), jnp.full(len(ROWS), 1 / len(ROWS)), len(ROWS), None, UNITS)
    chains = jnp.tile(rows.visible, (200, 1))
    chains = jax.jit(run_chains, static_argnames="num_sweeps")(machine, chains, KEY, num_sweeps=25)
    found = jax.grad(contrastive_loss)(machine, rows.visible, chains, 0.1, 0.0)
    likelihood = LogLikelihood(rows, HIDDEN, 0.1)
    exact = likelihood.machine(likelihood.loss(likelihood.flat(machine))[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=4.5 * 0.5 / np.sqrt(len(chains))), found, exact)
    estimate = estimate_log_partition(machine, machine_of(VOTERS, 1, seed=9, scale=0.3), key=KEY)
    assert abs(estimate.log_partition - np.log(joint.sum())) < 4 * estimate.standard_error
    row, observed = np.array([2, 0, 1, 2]), np.array([True, False, True, False])
    filled = fill_gaps(machine, jnp.tile(indicators(row), (20_000, 1)), jnp.tile(observed, (20_000, 1)), KEY, 25)
    mass = joint[(row == ROWS)[:, observed].all(1)].sum(1)
    expected = mass / mass.sum() @ indicators(ROWS[(row == ROWS)[:, observed].all(1)])
    np.testing.assert_allclose(filled.mean(0), expected, atol=4.5 * 0.5 / np.sqrt(20_000))


QUICK = ExactTraining(restarts=2, max_iterations=200)


def test_a_stack_of_three_classes_labels_predicts_and_is_saved(tmp_path):
    votes, labels = votes_of_classes(K, num_items=400, num_voters=6, missing=0.2)
    for hidden in ((1,), (2, 1)):
        fit = RBMStack(hidden=hidden, training=QUICK).fit(votes, key=KEY)
        assert np.mean(fit.codes == labels) > (0.9 if hidden == (1,) else 0.5)
        np.testing.assert_allclose(fit.label_probs.sum(1), 1)
        np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-9)
        again = stack_params(stack_machines(fit.params))
        assert all(np.array_equal(again[name], fit.params[name]) for name in again)
        fit.save(tmp_path / "fit.nc")
        np.testing.assert_allclose(load_fit(tmp_path / "fit.nc").predict(votes), fit.label_probs, atol=1e-9)
    assert fit.params["weights_1"].shape == (6, K - 1, 2, K - 1)


@pytest.mark.slow
def test_the_stack_finds_the_groups_of_a_tree_of_four_classes():
    """With a unit more, or with two units in between, it would have fewer labels right than Dawid & Skene's model."""
    model = Tree((0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2), 4)
    params = model.example_params(jax.random.key(3))
    drawn = simulate(model, 5_000, key=KEY, params=params)
    fit = RBMStack().fit(drawn.votes, key=KEY)
    assert fit.diagnostics["architecture"] == (12, 3, 1)
    exact = np.mean(drawn.bayes_posterior().argmax(1) == drawn.labels)
    assert np.mean(fit.codes == drawn.labels) > exact - 0.01
