"""Stacks that know some labels, against brute force; the order of labels; when a stack is kept; threads."""

import itertools
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from latentens import simulate
from latentens.methods import DawidSkeneEM, RBMStack
from latentens.methods.base import posterior_of
from latentens.methods.rbm_stack import LabelChange, stack_machines
from latentens.models import Tree
from latentens.rbm import ExactTraining, Machine, Units, VisibleRows, rows_from_votes
from latentens.rbm.exact import LogLikelihood, hidden_distribution
from latentens.rbm.width import SingularValueRule
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from tests.reference import two_class_tree

KEY = jax.random.key(0)
K, VOTERS = 3, 4
UNITS = Units(K)
ROWS = np.array(list(itertools.product(range(K), repeat=VOTERS)))
QUICK = ExactTraining(restarts=4)


def indicators(codes):
    return (np.asarray(codes)[..., None] == np.arange(1, K)).reshape(*np.shape(codes)[:-1], -1).astype(float)


def machine_of(num_visible, num_hidden, seed):
    draw = np.random.default_rng(seed).normal
    sizes = num_visible * UNITS.width, num_hidden * UNITS.width
    return Machine(*(draw(size=size) for size in (sizes, sizes[0], sizes[1])), UNITS, UNITS)


def joint(machine, rows, num_hidden=1):
    """p(x, h) of rows of states and all hidden states, one entry at a time, by the energy."""
    weights, visible_bias, hidden_bias = (np.asarray(part) for part in machine[:3])
    states = list(itertools.product(range(K), repeat=num_hidden))

    def mass(row, state):
        x, h = indicators(row), indicators(np.array(state))
        return np.exp(x @ visible_bias + h @ hidden_bias + x @ weights @ h)

    every = itertools.product(itertools.product(range(K), repeat=len(rows[0])), states)
    total = sum(mass(np.array(row), state) for row, state in every)
    return np.array([[mass(row, state) for state in states] for row in rows]) / total


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_known_labels_clamp_the_unit_at_the_top(gaps):
    generator = np.random.default_rng(0)
    machine, weight = machine_of(VOTERS, 1, 1), generator.dirichlet(np.ones(len(ROWS)))
    label = generator.integers(-1, K, len(ROWS))
    known = generator.random(ROWS.shape) < 0.7 if gaps else None
    rows = VisibleRows(
        indicators(ROWS) * (1 if known is None else known.repeat(K - 1, 1)), weight, 90, known, UNITS, label
    )
    likelihood = LogLikelihood(rows, 1, 0.0)

    def by_brute_force(flat):
        table = joint(likelihood.machine(flat), ROWS)
        if gaps:
            table = np.array([table[(r == ROWS)[:, o].all(1)].sum(0) for r, o in zip(ROWS, known, strict=True)])
        of_label = np.where(label < 0, table.sum(1), table[np.arange(len(ROWS)), label])
        return -weight @ np.log(of_label)

    flat = likelihood.flat(machine)
    value, gradient = likelihood.loss(flat)
    np.testing.assert_allclose(value, by_brute_force(flat), rtol=1e-10)
    for place in (0, 7, 15, 17, 23, 25):
        step = 1e-5 * np.eye(len(flat))[place]
        slope = (by_brute_force(flat + step) - by_brute_force(flat - step)) / 2e-5
        np.testing.assert_allclose(gradient[place], slope, atol=1e-8)


def test_hidden_states_are_passed_on_with_the_label():
    generator = np.random.default_rng(0)
    gold = generator.integers(-1, K, len(ROWS))
    rows = rows_from_votes(Votes.from_matrix(ROWS, num_classes=K), gold)
    machine = machine_of(VOTERS, 2, 3)
    passed_on = hidden_distribution(machine, rows)
    table = joint(machine, ROWS, 2)
    posterior = table / table.sum(1, keepdims=True)
    for label in range(-1, K):
        wanted = posterior[gold == label].sum(0) / len(ROWS)
        np.testing.assert_allclose(passed_on.weight[passed_on.label == label], wanted, atol=1e-12)
    np.testing.assert_allclose(passed_on.weight.sum(), 1)


@pytest.fixture(scope="module")
def tree():
    model = Tree((0, 0, 0, 1, 1, 1, 2, 2, 2))
    params = two_class_tree(0.4, np.full(3, 0.85), np.full(3, 0.85), np.full(9, 0.85), np.full(9, 0.85))
    return simulate(model, 1_500, key=jax.random.key(1), params=params)


def test_the_top_machine_counts_where_all_labels_are_known(tree):
    """Without a penalty the maximum is then in closed form: shares of labels, and of hidden states given the label."""
    training = ExactTraining(restarts=4, penalty=0.0, tolerance=1e-9)
    fit = RBMStack(hidden=(3, 1), training=training).fit(tree.votes, key=KEY, gold=np.asarray(tree.labels))
    lower, upper = stack_machines(fit.params)
    passed_on = hidden_distribution(lower, rows_from_votes(tree.votes, tree.labels))
    of_label = [passed_on.weight * (passed_on.label == label) for label in (0, 1)]
    means = np.array([weight @ passed_on.visible / weight.sum() for weight in of_label])
    logits = np.log(means / (1 - means))
    np.testing.assert_allclose(upper.visible_bias, logits[0], atol=1e-4)
    np.testing.assert_allclose(upper.weights[:, 0], logits[1] - logits[0], atol=1e-4)
    np.testing.assert_array_equal(fit.codes, tree.labels)


@pytest.mark.parametrize("hidden", [(3, 1), None])
def test_labels_follow_the_gold_labels_whatever_the_votes_say(tree, hidden):
    """Votes and labels exchanged: nobody but the gold labels knows."""
    gold = np.where(np.arange(1_500) < 400, 1 - tree.labels, -1)
    fit = RBMStack(hidden=hidden).fit(tree.votes, key=KEY, gold=gold)
    assert np.mean(fit.codes[400:] == 1 - tree.labels[400:]) > 0.85
    np.testing.assert_array_equal(fit.codes[:400], gold[:400])


def test_one_unit_with_gold_labels_is_dawid_skene(tree):
    gold = np.where(np.arange(1_500) < 100, tree.labels, -1)
    fits = [method.fit(tree.votes, key=KEY, gold=gold) for method in (RBMStack(hidden=(1,)), DawidSkeneEM())]
    np.testing.assert_allclose(fits[0].label_probs, fits[1].label_probs, atol=1e-9)
    for name in ("prevalence", "confusion"):
        np.testing.assert_allclose(fits[0].params[name], fits[1].params[name], rtol=1e-9)


@double_precision
def test_relabelling_permutes_the_states_at_the_top(tree):
    stack = RBMStack(hidden=(3, 1), training=QUICK)
    fit = stack.fit(tree.votes, key=KEY)
    turned = stack.relabel(fit, np.array([1, 0]))
    np.testing.assert_allclose(posterior_of(stack, turned, tree.votes), fit.label_probs[:, ::-1], atol=1e-10)
    np.testing.assert_allclose(
        stack.log_likelihood_of(turned, tree.votes.patterns.votes),
        stack.log_likelihood_of(fit, tree.votes.patterns.votes),
    )


@pytest.fixture(scope="module")
def tree_fit(tree):
    return RBMStack().fit(tree.votes, key=KEY)


def test_starts_and_what_changed_are_told(tree, tree_fit):
    told = tree_fit.diagnostics
    assert told["architecture"] == (9, 3, 1)
    assert len(told["start_log_likelihoods"]) % ExactTraining().restarts == 0
    assert told["start_log_likelihoods"].max() == told["start_log_likelihoods"][0]
    one = DawidSkeneEM().fit(tree.votes, key=KEY)
    assert told["label_change"] == pytest.approx(np.mean(one.codes != tree_fit.codes))
    assert told["changed_to_runner_up"] == 1.0  # there are two classes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_keys_find_the_same_labels(tree, tree_fit, seed):
    again = RBMStack().fit(tree.votes, key=jax.random.key(seed))
    np.testing.assert_allclose(again.label_probs, tree_fit.label_probs, atol=0.02)


def test_a_label_that_hardly_anyone_said_is_no_reason_for_a_change():
    sure = np.repeat(np.arange(3), 3)
    votes = Votes.from_matrix([*np.repeat(sure[:, None], 5, axis=1), [0, 0, 0, 1, 1]], num_classes=3)
    before, runner_up, unheard = (np.eye(3)[[*sure, last]] for last in (0, 1, 2))
    assert LabelChange.between(before, before, votes) == (0.0, 1.0)
    changed = LabelChange.between(before, runner_up[:, [1, 2, 0]], votes)  # in whatever order the labels come
    assert changed == (0.1, 1.0)
    assert changed.among_votes
    changed = LabelChange.between(before, unheard, votes)
    assert changed == (0.1, 0.0)
    assert not changed.among_votes


def test_a_stack_that_goes_against_the_votes_is_given_up(tree, monkeypatch):
    monkeypatch.setattr(LabelChange, "among_votes", property(lambda self: False))
    fit, one = (method.fit(tree.votes, key=KEY) for method in (RBMStack(), DawidSkeneEM()))
    assert fit.diagnostics["architecture"] == (9, 1)
    assert "3 units predict held-out votes better, but they change" in fit.diagnostics.notes[0]
    np.testing.assert_allclose(fit.label_probs, one.label_probs, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_cores_do_not_matter(tree, tree_fit, threads, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", str(threads))
    with threadpool_limits(threads, "blas"):
        fit = RBMStack().fit(tree.votes, key=KEY)
    np.testing.assert_array_equal(fit.label_probs, tree_fit.label_probs)


ON_SOME_CORES = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])
import jax, numpy as np
from latentens.methods import RBMStack
from latentens.votes import Votes
matrix = np.random.default_rng(0).integers(0, 3, (300, 6)) // 2
matrix[:, 1:3] = np.where(np.random.default_rng(1).random((300, 2)) < 0.7, matrix[:, :1], matrix[:, 1:3])
fit = RBMStack(hidden=(3, 1)).fit(Votes.from_matrix(matrix, num_classes=2), key=jax.random.key(0))
print(fit.label_probs.tobytes().hex())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_one_core_and_two_give_the_same_bytes():
    runs = [
        subprocess.run([sys.executable, "-c", ON_SOME_CORES, cores], capture_output=True, text=True, check=True).stdout
        for cores in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_the_rule_compares_with_the_unit_it_is_given(tree):
    asked = []

    def single(items):
        asked.append(items)
        return QUICK.train(rows_from_votes(tree.votes), 1, key=KEY).machine

    width = SingularValueRule(training=QUICK).choose(rows_from_votes(tree.votes), key=KEY, single=single)
    assert width.num_hidden == 3
    assert [items.sum() for items in asked] == [1_200]
