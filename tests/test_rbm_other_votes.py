"""Machines whose votes have more categories than there are classes: against brute force over all states."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from latentens import bayes_posterior, load_fit, log_likelihood, simulate
from latentens.methods import DawidSkeneEM, RBMStack
from latentens.methods.rbm_stack import stack_machines, stack_params
from latentens.models import DawidSkene, Tree
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    Units,
    dawid_skene_to_rbm,
    hidden_probs,
    log_partition,
    log_probs,
    mean_log_likelihood,
    rbm_to_dawid_skene,
    rows_from_votes,
    state_posterior,
)
from latentens.rbm.exact import LogLikelihood, hidden_distribution, stacked_log_likelihoods
from latentens.rbm.rows import RowSizes
from latentens.rbm.sampled import annealed_mean
from latentens.rbm.stack import top_probs
from latentens.rbm.training import centred_weights, from_vote_shares
from latentens.rbm.width import SingularValueRule
from latentens.runtime.numerics import double_precision
from tests.reference import random_counts, votes_from

KEY = jax.random.key(0)
VOTERS, HIDDEN = 4, 2


@pytest.fixture(params=[(3, 2), (4, 3)], ids=["3-votes-2-classes", "4-votes-3-classes"], scope="module")
def sizes(request):
    """Number of different votes, and of classes."""
    return request.param


def machine_of(num_visible, num_hidden, sizes, seed=0):
    draw, (visible, hidden) = np.random.default_rng(seed).normal, map(Units, sizes)
    shape = num_visible * visible.width, num_hidden * hidden.width
    return Machine(draw(size=shape), draw(size=shape[0]), draw(size=shape[1]), visible, hidden)


@pytest.fixture(scope="module")
def machine(sizes):
    return machine_of(VOTERS, HIDDEN, sizes)


def states(num_units, num_states):
    return np.array(list(itertools.product(range(num_states), repeat=num_units)))


def indicators(codes, num_states):
    return (np.asarray(codes)[..., None] == np.arange(1, num_states)).reshape(*np.shape(codes)[:-1], -1).astype(float)


def brute_joint(machine, num_visible=VOTERS, num_hidden=HIDDEN):
    """p(x, h) of all states, one entry at a time."""
    weights, visible_bias, hidden_bias = (np.asarray(part) for part in machine[:3])
    sizes = machine.visible_units.num_states, machine.hidden_units.num_states
    rows, hidden = (states(*shape) for shape in zip((num_visible, num_hidden), sizes, strict=True))
    table = np.empty((len(rows), len(hidden)))
    for (r, row), (t, state) in itertools.product(enumerate(rows), enumerate(hidden)):
        x, h = indicators(row, sizes[0]), indicators(state, sizes[1])
        table[r, t] = np.exp(x @ visible_bias + h @ hidden_bias + x @ weights @ h)
    return table / table.sum()


def given_hidden(joint, num_votes):
    """p(x_i = v | h), (voter, vote, state)."""
    rows = states(VOTERS, num_votes)
    of_votes = [[joint[rows[:, i] == v].sum(0) for v in range(num_votes)] for i in range(VOTERS)]
    return np.array(of_votes) / joint.sum(0)


def votes_of(counts, sizes):
    """Votes from counts (item, voter, vote), of which the last are for categories that are not labels."""
    names = {"class_names": range(sizes[1]), "other_names": tuple(range(sizes[1], sizes[0]))}
    return dataclasses.replace(votes_from(counts), num_classes=sizes[1], **names)


@pytest.fixture(params=["complete", "missing", "repeated"], scope="module")
def counts(request, sizes):
    """Counts (item, voter, vote)."""
    if request.param == "repeated":
        return random_counts(40, VOTERS, sizes[0])
    generator = np.random.default_rng(1)
    drawn = np.eye(sizes[0], dtype=int)[generator.integers(sizes[0], size=(40, VOTERS))]
    return drawn * (generator.random((40, VOTERS, 1)) > (0.4 if request.param == "missing" else 0.0))


def given_rows(joint, counts):
    """p(x, h) of the observed votes of each item, (item, state)."""
    of_votes = given_hidden(joint, counts.shape[2])[None] ** counts[..., None]
    return of_votes.prod(axis=(1, 2)) * joint.sum(0)


def test_likelihood_and_posterior_are_those_of_brute_force(machine, sizes, counts):
    votes, joint = votes_of(counts, sizes), brute_joint(machine)
    rows, mass = rows_from_votes(votes), given_rows(joint, counts)
    found = state_posterior(machine, rows.visible, rows.observed)[votes.patterns.inverse]
    np.testing.assert_allclose(found, mass / mass.sum(1, keepdims=True), atol=1e-10)
    found = log_probs(machine, rows.visible, rows.observed)[votes.patterns.inverse]
    if (counts.sum(axis=2) == 1).all():  # a product over voters given the hidden units, or one entry of the table
        places = np.ravel_multi_index(tuple(counts.argmax(axis=2).T), (sizes[0],) * VOTERS)
        np.testing.assert_allclose(mass, joint[places], rtol=1e-10)
    np.testing.assert_allclose(found, np.log(mass.sum(1)), atol=1e-10)
    np.testing.assert_allclose(log_partition(machine.transposed), log_partition(machine), rtol=1e-13)
    wanted = joint / joint.sum(1, keepdims=True) @ indicators(states(HIDDEN, sizes[1]), sizes[1])
    np.testing.assert_allclose(
        hidden_probs(machine, indicators(states(VOTERS, sizes[0]), sizes[0])), wanted, rtol=1e-10
    )


@pytest.mark.parametrize("num_hidden", [1, HIDDEN])
def test_gradients_of_the_penalised_likelihood_with_known_labels(sizes, counts, num_hidden):
    start, generator = machine_of(VOTERS, num_hidden, sizes, seed=2), np.random.default_rng(0)
    gold = generator.integers(-1, sizes[1], len(counts))
    rows = rows_from_votes(votes_of(counts, sizes), gold)
    likelihood = LogLikelihood(rows, num_hidden, 0.1)

    def by_brute_force(flat):
        candidate = likelihood.machine(flat)
        mass = given_rows(brute_joint(candidate, num_hidden=num_hidden), counts)
        of_label = mass.sum(1)
        if num_hidden == 1:
            of_label = np.where(gold < 0, of_label, mass[np.arange(len(gold)), gold])
        squares = (centred_weights(candidate).reshape(VOTERS, -1) ** 2).sum(axis=1)
        return 0.05 * squares @ counts.sum(axis=2).mean(axis=0) - np.log(of_label).mean()

    flat = likelihood.flat(start)
    value, gradient = likelihood.loss(flat)
    np.testing.assert_allclose(value, by_brute_force(flat), rtol=1e-10)
    for place in range(0, len(flat), 5):
        step = 1e-5 * np.eye(len(flat))[place]
        slope = (by_brute_force(flat + step) - by_brute_force(flat - step)) / 2e-5
        np.testing.assert_allclose(gradient[place], slope, atol=1e-8)


def test_a_category_that_nobody_uses_costs_nothing():
    """The least penalty of a table with one more row is that of the table without it."""
    small = machine_of(VOTERS, HIDDEN, (2, 2))
    between = np.stack([small.weights, small.weights / 2], axis=1).reshape(-1, HIDDEN)
    wide = Machine(between, np.repeat(small.visible_bias, 2), small.hidden_bias, Units(3), Units(2))
    penalties = [float(np.sum(centred_weights(machine) ** 2)) for machine in (small, wide)]
    np.testing.assert_allclose(*penalties, rtol=1e-12)


@pytest.fixture(scope="module")
def dawid_skene(sizes):
    draw = np.random.default_rng(3).dirichlet
    return {"prevalence": draw(np.ones(sizes[1])), "confusion": draw(np.ones(sizes[0]), (VOTERS, sizes[1]))}


def test_one_hidden_unit_is_dawid_skene_with_other_votes(sizes, counts, dawid_skene):
    single = dawid_skene_to_rbm(**dawid_skene)
    assert (single.visible_units, single.hidden_units) == tuple(map(Units, sizes))
    for found, truth in zip(rbm_to_dawid_skene(single), dawid_skene.values(), strict=True):
        np.testing.assert_allclose(found, truth, atol=1e-10)
    back = dawid_skene_to_rbm(**rbm_to_dawid_skene(machine_of(VOTERS, 1, sizes))._asdict())
    for found, truth in zip(back[:3], machine_of(VOTERS, 1, sizes)[:3], strict=True):
        np.testing.assert_allclose(found, truth, atol=1e-10)
    votes, model = votes_of(counts, sizes), DawidSkene(VOTERS, sizes[1], num_categories=sizes[0])
    rows, inverse = rows_from_votes(votes), votes.patterns.inverse
    posterior = state_posterior(single, rows.visible, rows.observed)[inverse]
    np.testing.assert_allclose(posterior, bayes_posterior(model, dawid_skene, votes), atol=1e-10)
    total = log_probs(single, rows.visible, rows.observed)[inverse].sum()
    np.testing.assert_allclose(total, log_likelihood(model, dawid_skene, votes), rtol=1e-10)


@double_precision
def test_layers_and_prediction_sum_over_all_hidden_states(machine, sizes, counts):
    """Votes with V states below, K states everywhere above."""
    top, votes, joint = (
        machine_of(HIDDEN, 1, (sizes[1], sizes[1]), seed=5),
        votes_of(counts, sizes),
        brute_joint(machine),
    )
    rows, inverse, mass = rows_from_votes(votes), votes.patterns.inverse, given_rows(joint, counts)
    posterior = mass / mass.sum(1, keepdims=True)
    above = hidden_distribution(machine, rows)
    assert (above.units, above.hidden_units) == (Units(sizes[1]), Units(sizes[1]))
    np.testing.assert_allclose(above.weight, posterior.mean(0), rtol=1e-10)
    wanted = posterior @ hidden_probs(top, indicators(states(HIDDEN, sizes[1]), sizes[1]))
    np.testing.assert_allclose(top_probs([machine, top], rows, "exact", 1, KEY)[inverse], wanted, atol=1e-10)
    of_states = brute_joint(top, HIDDEN, 1).sum(axis=1)
    wanted = np.log(mass / joint.sum(0) @ of_states)
    np.testing.assert_allclose(stacked_log_likelihoods(machine, top, rows)[inverse], wanted, atol=1e-10)


def test_the_cost_counts_states_of_votes_and_of_hidden_units():
    assert RowSizes(50, 12, 4, 3, gaps=False, num_votes=600).entries(2) == 3**2 * 3 * 12
    assert RowSizes(50, 2, 4, 3, gaps=False, num_votes=100).entries(8) == 4**2 * 2 * 8  # the visible layer is smaller
    assert RowSizes(50, 12, 4, 3, gaps=True, num_votes=500).entries(2) == 3**2 * (3 * 12 + 500)
    assert not SingularValueRule().has_room(RowSizes(50, 9, 3, 2, gaps=False, num_votes=450), 50, 3)


def test_labels_start_as_shares_of_the_votes_for_classes():
    """Three voters are sure; the tie of the fourth goes with label 1."""
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 2]] * 30)
    start = rbm_to_dawid_skene(from_vote_shares(rows_from_votes(votes_of(np.eye(3, dtype=int)[codes], (3, 2)))))
    np.testing.assert_allclose(start.prevalence, 0.5, atol=1e-3)
    np.testing.assert_allclose(start.confusion[3], [[1, 0, 0], [0, 0, 1]], atol=1e-2)


@pytest.fixture(scope="module")
def tree():
    """Three groups of voters, who say "tie" most often where their opinion is 1."""
    model = Tree((0, 0, 0, 1, 1, 1, 2, 2, 2), num_categories=3)
    opinion, voter = np.array([[0.85, 0.15], [0.15, 0.85]]), np.array([[0.75, 0.2, 0.05], [0.15, 0.4, 0.45]])
    shares = {"prevalence": np.array([0.5, 0.5])}
    params = shares | {"hidden_confusion": np.array([opinion] * 3), "voter_confusion": np.array([voter] * 9)}
    return simulate(model, 1_500, key=jax.random.key(1), params=params)


def test_the_stack_learns_from_ties(tree, tmp_path):
    fit = RBMStack().fit(tree.votes, key=KEY)
    assert fit.diagnostics["architecture"] == (9, 3, 1)
    accuracy = np.mean(fit.codes == tree.labels)
    assert accuracy > np.mean(tree.bayes_posterior().argmax(1) == tree.labels) - 0.02
    missing = RBMStack(hidden=(3, 1)).fit(tree.votes.without_other_votes(), key=KEY)
    assert accuracy > np.mean(missing.codes == tree.labels) + 0.02
    assert not any("count as missing" in note for note in fit.diagnostics.notes)
    assert "says_2_if_1" in fit.voters
    assert [fit.params[name].shape for name in ("weights_1", "visible_bias_1", "weights_2")] == [
        (9, 2, 3),
        (9, 2),
        (3, 1),
    ]
    again = stack_params(stack_machines(fit.params))
    assert all(np.array_equal(again[name], fit.params[name]) for name in again)
    fit.save(tmp_path / "fit.nc")
    loaded = load_fit(tmp_path / "fit.nc")
    for one in (fit, loaded):
        np.testing.assert_allclose(one.predict(tree.votes), fit.label_probs, atol=1e-12)
        np.testing.assert_allclose(one.log_likelihood(tree.votes), fit.log_likelihood(tree.votes), atol=1e-10)
    assert list(loaded.voters) == list(fit.voters)
    assert fit.to_datatree()["params"]["visible_bias_1"].dims[0] == "voter"


def test_gold_labels_clamp_the_label_above_ties(tree):
    gold = np.where(np.arange(1_500) < 400, 1 - tree.labels, -1)
    fit = RBMStack(hidden=(3, 1)).fit(tree.votes, key=KEY, gold=gold)
    assert np.mean(fit.codes[400:] == 1 - tree.labels[400:]) > 0.85
    np.testing.assert_array_equal(fit.codes[:400], gold[:400])


def test_one_unit_is_dawid_skene_em(tree):
    fits = [method.fit(tree.votes, key=KEY) for method in (RBMStack(hidden=(1,)), DawidSkeneEM())]
    np.testing.assert_allclose(fits[0].label_probs, fits[1].label_probs, atol=1e-9)
    np.testing.assert_allclose(fits[0].params["confusion"], fits[1].params["confusion"], rtol=1e-9)
    np.testing.assert_allclose(fits[0].predict(tree.votes), fits[0].label_probs, atol=1e-9)
    trained = RBMStack(hidden=(1,), training=ExactTraining(penalty=0.0, restarts=2, tolerance=1e-8))
    machine, plain = trained.fit(tree.votes, key=KEY), DawidSkeneEM(0.0, 0.0).fit(tree.votes, key=KEY)
    np.testing.assert_allclose(machine.label_probs, plain.label_probs, atol=1e-3)
    assert machine.diagnostics.log_likelihood > plain.diagnostics.log_likelihood - 1e-3


@double_precision
def test_sampled_training_and_annealing_know_both_numbers_of_states(tree):
    rows = rows_from_votes(tree.votes)
    machine = SampledTraining(epochs=3).train(rows, 3, key=KEY).machine
    exact = mean_log_likelihood(machine, rows, key=KEY).mean
    annealed = annealed_mean(machine, rows, KEY)
    assert abs(annealed.mean - exact) < 5 * annealed.standard_error + 1e-3
    passed = RBMStack(hidden=(3, 1), training=SampledTraining(epochs=2), next_layer="sampled", prediction="sample")
    assert np.mean(passed.fit(tree.votes, key=KEY).codes == tree.labels) > 0.8


def test_repeated_ties_and_gaps_through_the_whole_stack(sizes):
    """The posterior of a fit is that of its machines, by enumeration."""
    counts = random_counts(150, VOTERS, sizes[0], seed=4)
    fit = RBMStack(hidden=(HIDDEN, 1), training=ExactTraining(restarts=2, batches=1)).fit(
        votes_of(counts, sizes), key=KEY
    )
    lower, upper = stack_machines(fit.params)
    mass = given_rows(brute_joint(lower), counts)
    above = brute_joint(upper, HIDDEN, 1)
    wanted = mass / mass.sum(1, keepdims=True) @ (above / above.sum(1, keepdims=True))
    np.testing.assert_allclose(fit.label_probs, wanted, atol=1e-10)
