from itertools import combinations, product

import jax
import numpy as np
import pytest

from latentens import simulate
from latentens.checks.effective_voters import (
    effective_number,
    effective_voters,
    panel_curve,
    panel_information,
    subset_information,
)
from latentens.models import DawidSkene, Tree
from tests import oracles
from tests.reference import two_class, two_class_tree

KEY = jax.random.key(0)


def information(joint):
    """I(label; votes) of a table p(label, votes) with one row for each value of the votes."""
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return np.sum(joint * np.log(np.maximum(joint, 1e-300) / independent))


def all_rows(num_voters):
    return oracles.count_votes(np.array(list(product((0, 1), repeat=num_voters))), 2)


def test_independent_voters_are_worth_themselves():
    params = two_class(0.4, np.full(5, 0.75), np.full(5, 0.8))
    worth = effective_number(DawidSkene(5), params, key=KEY)
    exact = information(oracles.dawid_skene(DawidSkene(5), params, all_rows(5)))
    assert worth.information == pytest.approx(exact, rel=1e-9)
    assert worth.by_information == pytest.approx(5, abs=1e-6)
    assert worth.by_correlation == pytest.approx(5)


def test_unequal_independent_voters_are_worth_themselves():
    rates = np.array([0.95, 0.7, 0.65, 0.6, 0.55])
    worth = effective_number(DawidSkene(5), two_class(0.4, rates, rates), key=KEY)
    assert worth.by_information == pytest.approx(5, abs=1e-6)


def worth_of_a_group(num_voters, rate):
    """Voters whose common opinion is the label itself, which the program does not know."""
    rates, sure = np.full(num_voters, rate), np.full(1, 1 - 1e-9)
    params = two_class_tree(0.5, sure, sure, rates, rates)
    return effective_number(Tree((0,) * num_voters), params, key=KEY).by_information


def test_many_voters_are_worth_themselves_up_to_the_chance_of_simulated_rows():
    assert worth_of_a_group(17, 0.6) == pytest.approx(17, abs=1)
    assert worth_of_a_group(17, 0.6) != 17


def test_voters_who_leave_nothing_open_are_worth_no_more_than_they_are():
    """Panels of twenty and of a hundred know the label as well."""
    assert 10 < worth_of_a_group(60, 0.9) <= 60
    rates = np.full(60, 0.9)
    params = two_class(0.5, rates, rates)
    assert effective_number(DawidSkene(60), params, key=KEY).by_information == 60


def test_voters_who_copy_a_hidden_opinion_are_worth_one():
    tree = Tree((0, 0, 0, 1, 1, 2))
    hidden, voter = np.full(3, 0.8), np.full(6, 1 - 1e-9)
    params = two_class_tree(0.5, hidden, hidden, voter, voter)
    worth = effective_number(tree, params, key=KEY)
    assert worth.information == pytest.approx(information(oracles.tree(tree, params, all_rows(6))), rel=1e-6)
    assert worth.by_information == pytest.approx(3, abs=0.1)
    # of fifteen pairs four are copies: ρ̄ = 4 / 15
    assert worth.by_correlation == pytest.approx(6 / (1 + 5 * 4 / 15))


def test_panel_of_drawn_voters():
    """Information of two voters of three: the mean over all pairs, by enumeration."""
    shares = np.array([0.3, 0.7])
    sensitivity, specificity = np.array([0.98, 0.6, 0.5]), np.array([0.95, 0.6, 0.5])
    confusion = np.array([[[b, 1 - b], [1 - a, a]] for a, b in zip(sensitivity, specificity, strict=True)])
    pairs = []
    for chosen in combinations(range(3), 2):
        index = list(chosen)
        params = two_class(0.7, sensitivity[index], specificity[index])
        pairs.append(information(oracles.dawid_skene(DawidSkene(2), params, all_rows(2))))
    curve = panel_information(shares, confusion, 4, KEY)
    assert curve[0] == 0
    assert curve[2] == pytest.approx(np.mean(pairs), rel=0.03)
    assert np.all(np.diff(curve) > 0)


def test_panels_of_few_voters_are_means_over_all_subsets():
    generator = np.random.default_rng(3)
    rates = generator.uniform(0.5, 0.95, (7, 2))
    confusion = np.stack([np.stack([rates[:, 0], 1 - rates[:, 0]], 1), np.stack([1 - rates[:, 1], rates[:, 1]], 1)], 1)
    found = subset_information(np.array([0.4, 0.6]), confusion, KEY)
    for size in range(1, 8):
        of_subsets = []
        for chosen in map(list, combinations(range(7), size)):
            params = two_class(0.6, rates[chosen, 1], rates[chosen, 0])
            of_subsets.append(information(oracles.dawid_skene(DawidSkene(size), params, all_rows(size))))
        exact = size == 7 or size == 1
        assert found[size] == pytest.approx(np.mean(of_subsets), rel=1e-9 if exact else 0.01)
    assert found[0] == 0


def test_the_panel_of_all_voters_has_their_information_exactly():
    for seed in range(120):
        generator = np.random.default_rng(seed)
        shares, confusion = generator.dirichlet([2, 2]), generator.dirichlet([1, 1], (5, 2))
        params = {"prevalence": shares, "confusion": confusion}
        exact = information(oracles.dawid_skene(DawidSkene(5), params, all_rows(5)))
        assert subset_information(shares, confusion, KEY)[-1] == pytest.approx(exact, rel=1e-9), seed


def test_the_curve_goes_on_beyond_all_voters_only_where_it_is_wanted():
    shares, confusion = np.array([0.5, 0.5]), np.tile([[0.7, 0.3], [0.3, 0.7]], (5, 1, 1))
    short = panel_curve(shares, confusion, 0.1, KEY)
    long = panel_curve(shares, confusion, 0.69, KEY)
    assert (len(short), len(long)) == (6, 11)
    np.testing.assert_array_equal(long[:6], short)
    np.testing.assert_allclose(long[5] - long[4], long[6] - long[5], rtol=0.4)  # no jump where it is only simulated
    assert (np.diff(long) > 0).all()


@pytest.mark.slow
def test_estimate_from_votes():
    params = two_class(0.5, np.full(4, 0.8), np.full(4, 0.8))
    votes = simulate(DawidSkene(4), 400, key=KEY, params=params).votes
    found = effective_voters(votes, [DawidSkene(4)], key=KEY, resamples=4)
    assert found.low <= found.high
    assert found.number.by_information == 4
    assert found.summary == "The 4 voters err independently in the best-fitting model, DawidSkene: each counts fully."
