"""Pairs that may explain the votes: likelihood by loops, and results where votes decide and where they do not."""

from itertools import product

import jax
import numpy as np
import pytest

from analyses.guide.jury_data import jury
from latentens import Votes, check_independence
from latentens.checks import candidate_pairs
from latentens.checks.dependence import joint_log_likelihood
from latentens.methods import DawidSkeneEM

KEY = jax.random.key(0)


def copied(accuracy, pairs, num_items=1500, num_classes=2, seed=0):
    """Votes with gaps of judges of whom some copy others on six of ten items."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(num_classes, size=(num_items, 1))
    shape = num_items, len(accuracy)
    wrong = (truth + rng.integers(1, num_classes, size=shape)) % num_classes
    matrix = np.where(rng.random(shape) < accuracy, truth, wrong)
    for one, other in pairs:
        matrix[:, other] = np.where(rng.random(num_items) < 0.6, matrix[:, one], matrix[:, other])
    matrix[rng.random(shape) < 0.1] = -1
    return Votes.from_matrix(matrix, num_classes=num_classes)


def test_likelihood_sums_over_missing_votes():
    """After one iteration, with tables from the first posterior: by loops over labels and joint votes."""
    votes = copied((0.8, 0.7, 0.7, 0.8), (), num_items=30)
    matrix = votes.matrix
    _, place = np.unique(matrix, axis=0, return_inverse=True)  # equal rows have equal posteriors
    probs = np.random.default_rng(1).dirichlet([1, 1], 30)[place.ravel()]
    blocks = [(0, 1), (2,), (3,)]
    found = joint_log_likelihood(votes, [(0, 1)], probs, max_iterations=1)
    # EM has two starts
    assert found == pytest.approx(max(by_loops(matrix, blocks, start) for start in (probs, (probs + 0.5) / 2)))


def by_loops(matrix, blocks, probs):
    expected, tables = 0.0, []
    for block in blocks:
        table = {}
        for label in range(2):
            for vote in product(range(2), repeat=len(block)):
                total = 0.01
                for item in range(30):
                    seen = matrix[item, list(block)]
                    agrees = all(s in (-1, v) for s, v in zip(seen, vote, strict=True))
                    total += agrees * probs[item, label] / 2 ** np.sum(seen < 0)
                table[label, vote] = total
        for label in range(2):
            whole = sum(value for (k, _), value in table.items() if k == label)
            table |= {place: value / whole for place, value in table.items() if place[0] == label}
        tables.append(table)
    for item in range(30):
        likelihood = 0.0
        for label in range(2):
            term = probs[:, label].mean()
            for block, table in zip(blocks, tables, strict=True):
                seen = matrix[item, list(block)]
                term *= sum(
                    value
                    for (k, vote), value in table.items()
                    if k == label and all(s in (-1, v) for s, v in zip(seen, vote, strict=True))
                )
            likelihood += term
        expected += np.log(likelihood)
    return expected


def test_without_blocks_it_is_the_likelihood_of_independent_voters():
    votes = copied((0.8, 0.7, 0.7, 0.8, 0.75), ())
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY)
    found = joint_log_likelihood(votes, [], fit.label_probs)
    assert found == pytest.approx(fit.diagnostics["log_likelihood"], abs=0.05)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_copying_pair_is_found_where_enough_others_vote(num_classes):
    votes = copied((0.8, 0.75, 0.8, 0.75, 0.7, 0.75), [(1, 4)], num_classes=num_classes)
    check = check_independence(votes, key=KEY)
    assert check.candidate_pairs == check.groups == ((1, 4),)
    assert "explains this: 1 and 4" in check.summary


def test_where_the_others_are_too_few_both_pairs_are_named():
    """The fifth judge guesses: four judges in two pairs, and the label may lie anywhere between the pairs."""
    check = check_independence(Votes.from_matrix(jury(1000, seed=2)[0]), key=KEY)
    assert check.rejected
    assert set(check.candidate_pairs) == {(0, 1), (2, 3)}
    assert check.groups == ()
    assert "cannot tell which" in check.summary
    assert "atlas and atlas-mini" in check.summary


def test_two_pairs_are_not_one():
    votes = copied((0.8, 0.75, 0.8, 0.75, 0.7, 0.75, 0.7), [(0, 1), (2, 3)], num_items=3000)
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY)
    assert candidate_pairs(votes, fit.label_probs) == ()
