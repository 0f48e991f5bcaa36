"""The stack: layers, prediction, architecture, gaps and hopeless data."""

import itertools
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from latentens import simulate
from latentens.errors import LatentensError, VotesError
from latentens.evaluation.scores import balanced_accuracy
from latentens.methods import RBMStack
from latentens.methods.rbm_stack import stack_machines
from latentens.models import DawidSkene, Tree
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    SingularValueRule,
    Trained,
    Training,
    dawid_skene_to_rbm,
    hidden_representations,
    mean_log_likelihood,
    rows_from_votes,
    train_machine,
)
from latentens.rbm.likelihood import annealed_mean
from latentens.rbm.stack import expected_given_rows, flip_hidden, hidden_distribution, rows_above, top_probs
from latentens.rbm.training.width_rule import narrowed
from latentens.runtime.precision import double_precision
from latentens.votes import Votes
from tests.reference import load_or_skip

KEY = jax.random.key(0)
QUICK = ExactTraining(restarts=3)


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
        np.testing.assert_allclose(top_probs(stack, rows, "exact", 1, KEY), wanted, rtol=1e-10)


@double_precision
def test_sampled_prediction_tends_to_the_exact_one(machines, all_rows):
    rows = rows_from_votes(all_rows)
    exact, sampled = (np.asarray(top_probs(machines, rows, how, 4000, KEY)) for how in ("exact", "sample"))
    np.testing.assert_allclose(sampled, exact, atol=4 * 0.5 / np.sqrt(4000))
    first, second, last = machines
    states = np.asarray(rows.visible)
    for machine in (first, second):
        states = (sigmoid(machine.hidden_bias + states @ machine.weights) > 0.5).astype(float)
    wanted = sigmoid(last.hidden_bias + states @ last.weights)[:, 0]
    np.testing.assert_allclose(top_probs(machines, rows, "map", 1, KEY), wanted, rtol=1e-10)


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
    turned = flip_hidden(machine)
    likelihoods = [mean_log_likelihood(m, rows, key=KEY).mean for m in (machine, turned)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-12)
    plain, flipped = (np.asarray(top_probs([m], rows, "exact", 1, KEY)) for m in (machine, turned))
    np.testing.assert_allclose(plain, 1 - flipped, atol=1e-12)


@pytest.fixture(scope="module")
def tree():
    model = Tree((0, 0, 0, 1, 1, 1, 2, 2, 2))
    params = {
        "prevalence": np.array(0.5),
        "hidden_sensitivity": np.full(3, 0.85),
        "hidden_specificity": np.full(3, 0.85),
        "voter_sensitivity": np.full(9, 0.85),
        "voter_specificity": np.full(9, 0.85),
    }
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
    assert balanced_accuracy(tree.labels, tree_fit.labels) > bayes - 0.01


def test_the_svd_rule_hands_on_its_machines_as_starts(tree):
    rows = rows_from_votes(tree.votes)
    choice = SingularValueRule().choose(rows, key=KEY)
    starts = [narrowed(machine, choice.num_hidden) for machine in choice.machines]
    trained = QUICK.train(rows, 3, key=KEY, starts=starts)
    random = QUICK.train(rows, 3, key=KEY)
    assert len(trained.diagnostics["objectives"]) == len(starts) == 2  # they agree: no random start was needed
    assert trained.diagnostics["iterations"] < random.diagnostics["iterations"]
    np.testing.assert_allclose(trained.curve[-1], random.curve[-1], atol=1e-4)


def test_narrowing_keeps_the_longest_and_most_independent_units():
    long, short = np.array([3.0, 0.0, 0.0]), np.array([0.0, 1.0, 1.0])
    weights = np.column_stack([0.9 * long, short, long, np.zeros(3)])
    kept = narrowed(Machine(weights, np.zeros(3), np.arange(4.0)), 2)
    np.testing.assert_array_equal(kept.weights, weights[:, [2, 1]])
    np.testing.assert_array_equal(kept.hidden_bias, [2, 1])


def test_starts_that_disagree_are_joined_by_random_ones(tree):
    rows = rows_from_votes(tree.votes)
    poor = Machine(np.zeros((9, 3)), np.zeros(9), np.zeros(3))  # a saddle point: training cannot leave it
    alone = ExactTraining(restarts=1).train(rows, 3, key=KEY, starts=[poor])
    joined = ExactTraining(restarts=4).train(rows, 3, key=KEY, starts=[poor])
    assert len(alone.ends) == 1
    assert len(joined.ends) == 3
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
    agreement = np.mean(sampled.labels == tree_fit.labels)
    assert agreement > 0.98


def test_missing_votes_are_summed_out_in_training_and_prediction():
    truth = {
        "prevalence": 0.4,
        "sensitivity": np.array([0.9, 0.8, 0.75, 0.85, 0.7]),
        "specificity": np.array([0.75, 0.8, 0.9, 0.7, 0.75]),
    }
    drawn = simulate(DawidSkene(5), 6_000, key=jax.random.key(2), params=truth)
    gaps = np.random.default_rng(0).random(drawn.votes.shape) < 0.3
    votes = Votes.from_matrix(np.where(gaps, -1, drawn.votes.matrix), num_classes=2)
    fit = RBMStack(hidden=(1,), training=ExactTraining(penalty=0.0, restarts=3)).fit(votes, key=KEY)
    for name, value in truth.items():
        np.testing.assert_allclose(fit.params[name], value, atol=0.06)
    probs = fit.predict(Votes.from_matrix([[1, -1, -1, -1, -1], [-1] * 5], num_classes=2))[:, 1]
    estimate = {name: fit.params[name] for name in truth}
    one = estimate["prevalence"] * estimate["sensitivity"][0]
    zero = (1 - estimate["prevalence"]) * (1 - estimate["specificity"][0])
    np.testing.assert_allclose(probs, [one / (one + zero), estimate["prevalence"]], rtol=1e-6)


def test_complete_rows_score_the_same_with_and_without_a_mask(all_rows):
    machine = machine_of(5, 3, 0)
    rows = rows_from_votes(all_rows)
    masked = rows._replace(observed=np.ones(rows.visible.shape, bool))
    plain, with_mask = (mean_log_likelihood(machine, r, key=KEY).mean for r in (rows, masked))
    np.testing.assert_allclose(plain, with_mask, rtol=1e-12)


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
    assert np.isfinite(fit.diagnostics["log_likelihood"])
    assert all(np.isfinite(value).all() for value in fit.params.values())


def test_identical_voters_decide_by_their_vote():
    votes = Votes.from_matrix(HOPELESS["identical voters"], num_classes=2)
    np.testing.assert_array_equal(RBMStack(training=QUICK).fit(votes, key=KEY).labels, votes.matrix[:, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBMStack(hidden=(3, 2)), "last is 1"),
        (lambda: SingularValueRule(threshold=1.5), "threshold"),
        (lambda: RBMStack().fit(Votes.from_matrix([[0, 1, 2]]), key=KEY), "3 classes"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(LatentensError, match=message):
        make()


@pytest.mark.slow
def test_a_large_machine_is_trained_and_scored_by_sampling():
    params = {"prevalence": 0.5, "sensitivity": np.full(20, 0.8), "specificity": np.full(20, 0.8)}
    drawn = simulate(DawidSkene(20), 1_000, key=KEY, params=params)
    trained = train_machine(drawn.votes, 16, key=KEY, training=SampledTraining(epochs=4))
    assert trained.diagnostics["training"] == "sampled"
    rows = rows_from_votes(drawn.votes)
    best = mean_log_likelihood(dawid_skene_to_rbm(**params), rows, key=KEY).mean
    found = double_precision(annealed_mean)(trained.machine, rows, KEY)
    assert found.standard_error > 0
    assert best - 0.5 < found.mean < best + 0.5


PAPER_TARGETS = {"condInd": 94.6, "Tree": 95.1, "LG": 86.6, "TG": 87.5}
PAPER_SIZES = {"condInd": (15, 1), "Tree": (15, 3, 1), "LG": (15, 4, 1), "TG": (15, 3, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("family", PAPER_TARGETS)
def test_the_papers_figures(family):
    accuracies = []
    for number in (1, 2):
        dataset = load_or_skip(f"{family}/{number}")
        fit = RBMStack().fit(dataset.votes, key=KEY)
        assert fit.diagnostics["architecture"] == PAPER_SIZES[family]
        accuracies.append(100 * balanced_accuracy(dataset.labels, fit.labels))
    assert np.mean(accuracies) >= PAPER_TARGETS[family]
