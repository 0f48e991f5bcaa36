"""The stack: fits, architecture, gaps and hopeless data."""

import jax
import numpy as np
import pytest

from latentens import simulate
from latentens.errors import VotesError
from latentens.methods import RBMStack
from latentens.methods.rbm_stack import stack_machines
from latentens.models import DawidSkene, Tree
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    SingularValueRule,
    dawid_skene_to_rbm,
    hidden_representations,
    mean_log_likelihood,
    rows_from_votes,
    train_machine,
)
from latentens.rbm.exact import LogLikelihood
from latentens.rbm.sampled import annealed_mean
from latentens.rbm.width import held_out_items
from latentens.runtime.numerics import double_precision
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes
from tests.reference import load_or_skip, two_class, two_class_tree

KEY = jax.random.key(0)
QUICK = ExactTraining(restarts=3, batches=1)


@pytest.fixture(scope="module")
def tree():
    model = Tree((0, 0, 0, 1, 1, 1, 2, 2, 2))
    params = two_class_tree(0.5, np.full(3, 0.85), np.full(3, 0.85), np.full(9, 0.85), np.full(9, 0.85))
    return simulate(model, 4_000, key=jax.random.key(1), params=params)


@pytest.fixture(scope="module")
def tree_fit(tree):
    return RBMStack(training=QUICK).fit(tree.votes, key=KEY)


def test_the_svd_rule_finds_the_groups_of_a_tree(tree, tree_fit):
    assert tree_fit.diagnostics["architecture"] == (9, 3, 1)
    curve = tree_fit.diagnostics["singular_value_curves"][0]
    assert (np.diff(curve) >= 0).all()
    np.testing.assert_allclose(curve[-1], 1)
    bayes = balanced_accuracy(tree.labels, tree.bayes_posterior().argmax(1))
    assert balanced_accuracy(tree.labels, tree_fit.codes) > bayes - 0.01


def test_the_svd_rule_hands_on_its_machines_as_starts(tree):
    rows = rows_from_votes(tree.votes)
    width = SingularValueRule().choose(rows, key=KEY)
    starts = width.starts
    assert width.num_hidden == 3
    assert all(gain.supported for gain in width.gains[:2])
    assert width.effective_rank > 2
    assert len(starts) == 1
    trained = ExactTraining(restarts=1).train(rows, 3, key=KEY, starts=starts)
    random = QUICK.train(rows, 3, key=KEY)
    assert len(trained.ends) == 1
    np.testing.assert_allclose(trained.curve[-1], random.curve[-1], atol=1e-4)


def test_one_unit_where_held_out_items_support_no_more():
    params = two_class(0.5, np.full(9, 0.8), np.full(9, 0.75))
    votes = simulate(DawidSkene(9), 4_000, key=jax.random.key(4), params=params).votes
    width = SingularValueRule().choose(rows_from_votes(votes), key=KEY)
    assert width.num_hidden == 1
    assert [gain.supported for gain in width.gains] == [True, False]


def test_votes_without_a_label_are_warned_of():
    votes = Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (300, 6)), num_classes=2)
    fit = RBMStack().fit(votes, key=KEY)
    assert fit.diagnostics["architecture"] == (6, 1)
    assert "hardly support a label" in fit.diagnostics.all_warnings[0]
    assert "the votes do not support three, with which held-out items gain" in fit.diagnostics.notes[0]


@double_precision
def test_held_out_items_are_the_others():
    matrix = np.repeat([[0, 1], [1, 1], [0, 0]], [50, 30, 20], axis=0)
    rows = rows_from_votes(Votes.from_matrix(matrix, num_classes=2))
    training, held_out = rows.split(held_out_items(100, 0.2))
    assert (training.num_items, held_out.num_items) == (80, 20)
    together = 80 * training.weight @ training.visible + 20 * held_out.weight @ held_out.visible
    np.testing.assert_allclose(together, 100 * rows.weight @ rows.visible)
    np.testing.assert_allclose(sorted(held_out.weight * 20), [4, 6, 10])  # spread evenly over the rows


@pytest.mark.parametrize("num_items", [1, 2, 3, 7, 100])
def test_some_items_are_held_out_and_some_are_not(num_items):
    held_out = held_out_items(num_items, 0.2)
    assert len(held_out) == num_items
    assert 0 < held_out.sum() < num_items or num_items == 1
    assert abs(held_out.sum() - 0.2 * num_items) < 1


@double_precision
def test_voters_with_few_votes_are_penalised_by_vote():
    generator = np.random.default_rng(0)
    matrix = np.where(generator.random((40, 3)) < [1.0, 0.5, 0.2], generator.integers(0, 2, (40, 3)), -1)
    rows = rows_from_votes(Votes.from_matrix(matrix, num_classes=2))
    machine = Machine(generator.normal(size=(3, 1)), generator.normal(size=3), np.zeros(1))
    plain, penalised = (LogLikelihood(rows, 1, penalty).loss(LogLikelihood.flat(machine))[0] for penalty in (0.0, 0.1))
    shares = (matrix >= 0).mean(axis=0)
    np.testing.assert_allclose(penalised - plain, 0.05 * shares @ machine.weights[:, 0] ** 2, rtol=1e-9)


def test_starts_that_disagree_are_joined_by_random_ones(tree):
    rows = rows_from_votes(tree.votes)
    poor = Machine(np.zeros((9, 3)), np.zeros(9), np.zeros(3))  # a saddle point: training cannot leave it
    alone = ExactTraining(restarts=1).train(rows, 3, key=KEY, starts=[poor])
    joined = ExactTraining(restarts=4, batches=1).train(rows, 3, key=KEY, starts=[poor])
    assert len(alone.ends) == 1
    assert len(joined.ends) == 4
    assert joined.curve[-1] > alone.curve[-1] + 0.1


def test_fit_is_reproducible_predicts_and_reports(tree, tree_fit):
    again = RBMStack(training=QUICK).fit(tree.votes, key=KEY)
    np.testing.assert_array_equal(again.label_probs, tree_fit.label_probs)
    np.testing.assert_allclose(tree_fit.predict(tree.votes.take(np.arange(64))), tree_fit.label_probs[:64], atol=1e-9)
    curve = tree_fit.diagnostics["training_curves"][0]
    assert curve[-1] > curve[0]
    layers = hidden_representations(stack_machines(tree_fit.params), tree.votes, key=KEY)
    assert [layer.shape for layer in layers] == [(4_000, 3), (4_000, 1)]
    with pytest.raises(VotesError, match="9"):
        tree_fit.predict(Votes.from_matrix([[0, 1]]))


def test_layers_passed_on_by_sampling_give_nearly_the_same(tree, tree_fit):
    sampled = RBMStack(hidden=(3, 1), training=QUICK, next_layer="sampled").fit(tree.votes, key=KEY)
    agreement = np.mean(sampled.codes == tree_fit.codes)
    assert agreement > 0.98


def test_missing_votes_are_summed_out_in_training_and_prediction():
    truth = two_class(0.4, np.array([0.9, 0.8, 0.75, 0.85, 0.7]), np.array([0.75, 0.8, 0.9, 0.7, 0.75]))
    drawn = simulate(DawidSkene(5), 6_000, key=jax.random.key(2), params=truth)
    gaps = np.random.default_rng(0).random(drawn.votes.shape) < 0.3
    votes = Votes.from_matrix(np.where(gaps, -1, drawn.votes.matrix), num_classes=2)
    fit = RBMStack(hidden=(1,), training=ExactTraining(penalty=0.0, restarts=3)).fit(votes, key=KEY)
    for name, value in truth.items():
        np.testing.assert_allclose(fit.params[name], value, atol=0.06)
    probs = fit.predict(Votes.from_matrix([[1, -1, -1, -1, -1], [-1] * 5], num_classes=2))[:, 1]
    estimate = {name: fit.params[name] for name in truth}
    zero, one = estimate["prevalence"] * estimate["confusion"][0, :, 1]
    np.testing.assert_allclose(probs, [one / (one + zero), estimate["prevalence"][1]], rtol=1e-6)


HOPELESS = {
    "constant voters": np.column_stack([np.zeros(50), np.ones(50), np.arange(50) % 2, np.arange(50) // 3 % 2]),
    "identical voters": np.repeat(np.arange(50)[:, None] % 2, 4, axis=1),
    "fewer items than voters": np.array([[0, 1, 1, 0], [1, 1, 0, 0]]),
    "all items equal": np.tile([0, 1, 1, 1], (30, 1)),
    "one item": np.array([[1, 0, 1, 1]]),
    "no votes at all": np.full((6, 4), -1),
}


@pytest.mark.parametrize("matrix", HOPELESS.values(), ids=HOPELESS)
def test_hopeless_data_give_a_sensible_fit(matrix):
    votes = Votes.from_matrix(matrix, num_classes=2)
    fit = RBMStack(training=QUICK).fit(votes, key=KEY)
    assert np.isfinite(fit.label_probs).all()
    np.testing.assert_allclose(fit.label_probs.sum(1), 1)
    assert np.isfinite(fit.diagnostics.log_likelihood)
    assert all(np.isfinite(value).all() for value in fit.params.values())


def test_identical_voters_decide_by_their_vote():
    votes = Votes.from_matrix(HOPELESS["identical voters"], num_classes=2)
    np.testing.assert_array_equal(RBMStack(training=QUICK).fit(votes, key=KEY).codes, votes.matrix[:, 0])


@pytest.mark.slow
def test_a_large_machine_is_trained_and_scored_by_sampling():
    params = two_class(0.5, np.full(20, 0.8), np.full(20, 0.8))
    drawn = simulate(DawidSkene(20), 1_000, key=KEY, params=params)
    trained = train_machine(drawn.votes, 16, key=KEY, training=SampledTraining(epochs=4))
    assert trained.diagnostics["training"] == "sampled"
    rows = rows_from_votes(drawn.votes)
    best = mean_log_likelihood(dawid_skene_to_rbm(**params), rows, key=KEY).mean
    found = double_precision(annealed_mean)(trained.machine, rows, KEY)
    assert found.standard_error > 0
    assert best - 0.5 < found.mean < best + 0.5


PAPER_TARGETS = {"condInd": 94.6, "Tree": 95.1, "LG": 86.6, "TG": 87.5}
FIRST_SIZES = {"condInd": 1, "Tree": 3, "LG": 5, "TG": 3}


@pytest.mark.slow
@pytest.mark.parametrize("family", PAPER_TARGETS)
def test_the_papers_figures(family):
    accuracies = []
    for number in (1, 2):
        dataset = load_or_skip(f"{family}/{number}")
        fit = RBMStack().fit(dataset.votes, key=KEY)
        assert fit.diagnostics["architecture"][1] == FIRST_SIZES[family]
        accuracies.append(100 * balanced_accuracy(dataset.labels, fit.codes))
    assert np.mean(accuracies) >= PAPER_TARGETS[family]
