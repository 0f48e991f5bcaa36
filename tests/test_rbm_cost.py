import itertools

import jax
import numpy as np
import pytest

from latentens import Votes
from latentens.errors import LimitError
from latentens.methods import DawidSkeneEM, RBMStack
from latentens.rbm import (
    ExactTraining,
    Machine,
    SampledTraining,
    SingularValueRule,
    VisibleRows,
    choose_training,
    exact,
    log_partition,
    log_probs,
    mean_log_likelihood,
)
from latentens.rbm.rows import RowSizes, rows_from_votes, sizes_from_votes
from latentens.rbm.stack import announce
from latentens.runtime.limits import MEMORY_VARIABLE
from latentens.votes import Triplets


def rows(num_rows=50, num_visible=12, gaps=False):
    observed = np.ones((num_rows, num_visible), dtype=bool) if gaps else None
    return VisibleRows(np.zeros((num_rows, num_visible)), np.full(num_rows, 1 / num_rows), num_rows, observed)


def random_machine(num_visible, num_hidden):
    generator = np.random.default_rng(0)
    shapes = (num_visible, num_hidden), num_visible, num_hidden
    return Machine(*(generator.normal(size=shape) for shape in shapes))


def brute_force(machine, visible, observed):
    """log Σ exp(−E) over the hidden units and the unobserved visible units, one state after the other."""
    weights, visible_bias, hidden_bias = map(np.asarray, machine[:3])
    total = 0.0
    for hidden in itertools.product((0, 1), repeat=len(hidden_bias)):
        field = visible_bias + weights @ hidden
        factors = np.where(observed, np.exp(field * visible), 1 + np.exp(field))
        total += np.exp(hidden_bias @ np.array(hidden)) * factors.prod()
    return np.log(total)


def test_enumeration_in_blocks():
    machine = random_machine(6, 5)
    generator = np.random.default_rng(1)
    visible, observed = generator.integers(0, 2, (9, 6)).astype(float), generator.random((9, 6)) < 0.6
    expected = [brute_force(machine, *row) for row in zip(visible, observed, strict=True)]
    nothing = brute_force(machine, np.zeros(6), np.zeros(6, dtype=bool))
    np.testing.assert_allclose(log_probs(machine, visible, observed) + nothing, expected, rtol=1e-12)
    assert float(log_partition(machine)) == pytest.approx(nothing, rel=1e-12)
    whole, blocks = (exact.log_partition_slopes(machine, block_elements=size) for size in (2**20, 12))
    assert blocks[0] == pytest.approx(nothing, rel=1e-12)
    for one, other in zip(whole[1], blocks[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_cost_decides_between_exact_and_sampled():
    assert isinstance(choose_training(rows(), 4), ExactTraining)
    assert isinstance(choose_training(rows(num_visible=300), 30), SampledTraining)
    assert isinstance(choose_training(rows(num_visible=300), 12), ExactTraining)
    assert isinstance(choose_training(rows(num_rows=10**5, gaps=True), 12), SampledTraining)


def test_cost_grows_with_states_and_with_rows_that_have_gaps():
    assert rows().sizes.entries(8) == 2**8 * 12
    assert rows(num_visible=5).sizes.entries(8) == 2**5 * 8  # the visible layer is the smaller one
    assert rows(num_visible=5, gaps=True).sizes.entries(8) == 2**8 * (8 + 5 * 50)
    assert rows(num_visible=40).sizes.entries(30) == float("inf")


def test_a_costly_choice_is_announced_once(capfd):
    announce.cache_clear()
    for _ in range(2):
        choose_training(rows(num_visible=300), 30)
        choose_training(rows(), 4)
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 1
    assert "300 × 30 units of 2 states, 50 rows: sampled training" in told[0]


def test_scoring_announces_no_training(capfd):
    announce.cache_clear()
    machine = Machine(np.zeros((40, 22)), np.zeros(40), np.zeros(22))
    data = rows(num_rows=4, num_visible=40)
    assert isinstance(choose_training(data, 22), SampledTraining)
    assert "training" in capfd.readouterr().err
    announce.cache_clear()
    assert mean_log_likelihood(machine, data, key=jax.random.key(0)).standard_error > 0
    assert capfd.readouterr().err == ""


def test_a_fit_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setenv("LATENTENS_SECONDS", "0.01")
    with pytest.raises(LimitError, match=r"RBMStack did not finish within the limit of 0\.01 seconds"):
        RBMStack(hidden=(3, 1)).fit(sparse_crowd(), key=jax.random.key(0))


def sparse_crowd(num_items=400, num_voters=60, num_classes=3, votes_an_item=4):
    """Votes stored as triplets, of voters who are right on seven items of ten."""
    generator = np.random.default_rng(5)
    labels = generator.integers(num_classes, size=num_items)
    voter = np.sort([generator.choice(num_voters, votes_an_item, replace=False) for _ in labels], axis=1).ravel()
    item = np.repeat(np.arange(num_items), votes_an_item)
    wrong = (labels[item] + generator.integers(1, num_classes, len(item))) % num_classes
    vote = np.where(generator.random(len(item)) < 0.7, labels[item], wrong)
    triplets = Triplets(item.astype(np.int32), voter.astype(np.int32), vote.astype(np.int8))
    return Votes(triplets, num_items, num_voters, num_classes)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("hidden", [None, (1,)])
def test_one_unit_is_fitted_by_the_lemma(num_classes, hidden):
    votes = sparse_crowd(num_items=100, num_classes=num_classes)  # fewer items than three units have parameters
    key = jax.random.key(0)
    fit, independent = (method.fit(votes, key=key) for method in (RBMStack(hidden=hidden), DawidSkeneEM()))
    assert fit.diagnostics["architecture"] == (60, 1)
    if hidden is None:
        assert "fewer items than parameters" in fit.diagnostics.notes[0]
    np.testing.assert_allclose(fit.label_probs, independent.label_probs, atol=1e-6)
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-10)
    np.testing.assert_allclose(fit.log_likelihood(votes), independent.log_likelihood(votes), rtol=1e-6)
    dense = Votes.from_matrix(votes.matrix, num_classes=num_classes)
    np.testing.assert_allclose(fit.predict(dense), fit.label_probs, atol=1e-9)


def test_sizes_decide_what_is_tried():
    crowd = RowSizes(20_000, 766, 4, 4, gaps=True, num_votes=97_000)
    assert not SingularValueRule().has_room(crowd, 20_000, 3)  # too many states for each vote
    few = RowSizes(300, 10, 2, 2, gaps=False, num_votes=3_000)
    assert SingularValueRule().has_room(few, 300, 3)
    assert not SingularValueRule().has_room(few, 42, 3)  # 43 parameters
    assert not SingularValueRule().has_room(few._replace(num_units=3), 300, 3)
    assert not SingularValueRule().has_room(few._replace(num_states=30, num_classes=30), 10**6, 3)
    assert sizes_from_votes(sparse_crowd()) == RowSizes(400, 60, 3, 3, gaps=True, num_votes=1_600)
    whole = Votes.from_matrix(np.repeat([[0, 1], [1, 1]], 5, axis=0), num_classes=2)
    assert sizes_from_votes(whole) == RowSizes(2, 2, 2, 2, gaps=False, num_votes=4)


def test_a_layout_too_large_is_refused_with_the_estimate_and_the_remedy(monkeypatch):
    monkeypatch.setenv(MEMORY_VARIABLE, "100KiB")
    with pytest.raises(LimitError, match=r"400 distinct rows of 60 voters, .* 1.0 MiB .*; use DawidSkeneEM"):
        rows_from_votes(sparse_crowd())
