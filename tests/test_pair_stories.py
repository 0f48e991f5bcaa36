"""Stories of pairs: their likelihood by loops, and what is told where votes decide and where they do not."""

from itertools import product

import jax
import numpy as np
import pytest

from analyses.guide.jury_data import jury
from latentens import Votes, check_independence
from latentens.checks.pairs import Rows, _climb, _possible_votes, log_likelihood, pair_stories
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


def test_likelihood_is_that_of_a_sum_over_what_was_not_seen(monkeypatch):
    """After one round, with tables from the first posterior: by loops over labels and joint votes."""
    votes = copied((0.8, 0.7, 0.7, 0.8), (), num_items=30)
    matrix = votes.matrix
    probs = np.random.default_rng(1).dirichlet([1, 1], 30)
    blocks = [(0, 1), (2,), (3,)]
    possible = [_possible_votes(votes, block) for block in blocks]
    monkeypatch.setattr("latentens.checks.pairs.MAX_ITERATIONS", 1)
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
    assert _climb(np.ones((30, 1)), possible, probs) == pytest.approx(expected)


def test_without_blocks_it_is_the_likelihood_of_independent_voters():
    votes = copied((0.8, 0.7, 0.7, 0.8, 0.75), ())
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY)
    rows, counts, inverse = votes.patterns
    start = np.zeros((rows.num_items, 2))
    start[inverse] = fit.label_probs
    data = Rows(rows, counts.astype(float), (start,))
    assert log_likelihood(data, []) == pytest.approx(fit.diagnostics.log_likelihood, abs=0.05)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_who_copies_is_told_where_enough_others_vote(num_classes):
    votes = copied((0.8, 0.75, 0.8, 0.75, 0.7, 0.75), [(1, 4)], num_classes=num_classes)
    check = check_independence(votes, key=KEY)
    assert check.stories == check.groups == ((1, 4),)
    assert "explains this, 1 and 4" in check.summary


def test_where_the_others_are_too_few_both_stories_are_told():
    """The fifth judge guesses: four judges in two pairs, and the label may lie anywhere between the pairs."""
    check = check_independence(Votes.from_matrix(jury(1000, seed=2)[0]), key=KEY)
    assert check.rejected
    assert set(check.stories) == {(0, 1), (2, 3)}
    assert check.groups == ()
    assert "do not tell which" in check.summary
    assert "atlas and atlas-mini" in check.summary


def test_two_pairs_are_not_one():
    votes = copied((0.8, 0.75, 0.8, 0.75, 0.7, 0.75, 0.7), [(0, 1), (2, 3)], num_items=3000)
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY)
    assert pair_stories(votes, fit.label_probs) == ()
