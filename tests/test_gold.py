"""What gold labels and anchors mean, the same for every method; and how sure the order of the labels is."""

from itertools import combinations

import jax
import numpy as np
import pytest

from latentens import Votes
from latentens.errors import VotesError
from latentens.inference.orient import orient, orientation, vote_shares
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    LatentSpectral,
    MajorityVote,
    MaximumLikelihood,
    RestrictedLikelihood,
    SpectralMetaLearner,
    Tempered,
)
from latentens.methods.base import posterior_of
from latentens.models import DawidSkene
from latentens.votes import CountedVotes
from tests.reference import KEY, as_triplets, independent_votes, votes_of_classes

METHODS = {
    "vote": MajorityVote(),
    "SML": SpectralMetaLearner(),
    "RL": RestrictedLikelihood(),
    "iMLE": IterativeMaximumLikelihood(),
    "EM": DawidSkeneEM(),
    "L-SML": LatentSpectral(restarts=2),
    "CUBAM": Cubam(),
    "GLAD": Glad(),
    "EBCC": Ebcc(restarts=1),
    "tempered": Tempered(DawidSkeneEM(random_starts=1), folds=2),
    "likelihood": MaximumLikelihood(DawidSkene(6), starts=1),
}
RATES = np.array([0.9, 0.85, 0.8, 0.75, 0.7, 0.65])


def some_gold(labels, number, seed=0):
    gold = np.full(len(labels), -1)
    chosen = np.random.default_rng(seed).choice(len(labels), number, replace=False)
    gold[chosen] = labels[chosen]
    return gold


def split_panel(num_items=400):
    """Two good voters, named, among four who are as far below chance: the majority is of no use."""
    rates = np.array([0.9, 0.85, 0.2, 0.25, 0.25, 0.2])
    votes, labels = independent_votes(num_items, rates, rates, seed=5)
    return Votes.from_matrix(votes.to_frame().set_axis(list("abcdef"), axis=1).astype(int)), labels


@pytest.mark.parametrize("name", METHODS)
def test_gold_items_are_certain_and_the_others_no_worse(name):
    votes, labels = independent_votes(400, RATES, RATES, seed=1)
    gold = some_gold(labels, 40)
    gold[np.flatnonzero(gold >= 0)[:2]] ^= 1  # even those that contradict the votes
    fit, without = (METHODS[name].fit(votes, key=KEY, gold=known) for known in (gold, None))
    known = gold >= 0
    np.testing.assert_array_equal(fit.label_probs[known], np.eye(2)[gold[known]])
    assert np.mean(fit.codes[~known] == labels[~known]) >= np.mean(without.codes[~known] == labels[~known]) - 0.02


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"vote"}))
def test_gold_labels_turn_round_what_the_majority_gets_wrong(name):
    votes, labels = split_panel()
    gold = some_gold(labels, 40)
    fit, without = (METHODS[name].fit(votes, key=KEY, gold=known) for known in (gold, None))
    unknown = gold < 0
    assert np.mean(without.codes == labels) < 0.2
    assert np.mean(fit.codes[unknown] == labels[unknown]) > 0.8
    assert np.mean(fit.predict(votes).argmax(axis=1) == labels) > 0.8


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"vote"}))
def test_an_anchor_decides_which_label_is_which(name):
    votes, labels = split_panel()
    fit = METHODS[name].fit(votes, key=KEY, anchor=["a", "b"])
    assert np.mean(fit.codes == labels) > 0.8
    assert np.mean(fit.predict(votes).argmax(axis=1) == labels) > 0.8
    if name not in ("CUBAM", "GLAD"):
        balanced = (fit.sensitivity + fit.specificity) / 2
        assert balanced[:2].min() > 0.7 > 0.4 > balanced[2:].max()


def test_an_anchor_counts_for_counted_rows_too():
    votes, labels = split_panel()
    rows, counts, inverse = votes.patterns
    fit = DawidSkeneEM().fit(CountedVotes(rows, counts), key=KEY, anchor=["a", "b"])
    assert np.mean(fit.codes[inverse] == labels) > 0.8


def test_an_anchor_that_does_not_exist_is_refused():
    votes, _ = split_panel()
    with pytest.raises(VotesError, match="the anchor 'g' is not one of the voters: the voters are"):
        DawidSkeneEM().fit(votes, key=KEY, anchor="g")


def test_an_anchor_keeps_its_place_among_some_of_the_items():
    votes, _ = split_panel()
    for stored in (votes.anchored(["b"]), as_triplets(votes).anchored([1])):
        for part in (stored.take(np.arange(5, 20)), stored.between(5, 20), stored.patterns.votes):
            assert part.anchor == (1,)
        np.testing.assert_array_equal(np.unique(stored.of_anchor.triplets.voter), [1])
        assert stored.of_anchor.num_voters == 6


@pytest.mark.parametrize("name", METHODS)
def test_relabelled_estimates_say_the_same_in_another_order(name):
    votes, _ = independent_votes(300, RATES, RATES[::-1], prevalence=0.3, seed=2)
    fit = METHODS[name].fit(votes, key=KEY)
    moved = fit.method.relabel(fit, np.array([1, 0]))
    np.testing.assert_allclose(posterior_of(fit.method, moved, votes), fit.label_probs[:, ::-1], atol=1e-9)
    again = fit.method.relabel(moved, np.array([1, 0]))
    np.testing.assert_allclose(posterior_of(fit.method, again, votes), fit.label_probs, atol=1e-9)


@pytest.mark.parametrize("method", [DawidSkeneEM(), Ebcc(restarts=1)])
def test_relabelled_estimates_of_three_classes(method):
    votes, _ = votes_of_classes(3, num_items=200, num_voters=5)
    fit, order = method.fit(votes, key=KEY), np.array([2, 0, 1])
    moved = method.relabel(fit, order)
    np.testing.assert_allclose(posterior_of(method, moved, votes), fit.label_probs[:, order], atol=1e-12)
    np.testing.assert_allclose(moved.params["confusion"], fit.params["confusion"][:, order], atol=1e-12)


def test_votes_count_as_ten_gold_labels_whatever_their_number():
    """Five gold labels that contradict a clear majority do not turn it round; twenty do."""
    for num_items in (300, 10_000):
        votes, labels = independent_votes(num_items, np.full(6, 0.97), np.full(6, 0.97), seed=3)
        probs = 0.98 * np.eye(2)[labels] + 0.01
        for number, order in ((0, [0, 1]), (5, [0, 1]), (20, [1, 0])):
            np.testing.assert_array_equal(orientation(probs, votes, some_gold(1 - labels, number)), order)


def test_a_few_gold_labels_do_not_reorder_many_classes():
    """Of thirty classes each has one or two gold labels, and a third of the posterior's labels are wrong."""
    votes, labels = votes_of_classes(30, num_items=900, num_voters=5, right=0.5)
    for seed in range(10):
        generator = np.random.default_rng(seed)
        seen = np.where(generator.random(900) < 0.67, labels, generator.integers(0, 30, 900))
        probs = 0.9 * np.eye(30)[seen] + 0.1 / 30
        np.testing.assert_array_equal(orientation(probs, votes, some_gold(labels, 50, seed)), np.arange(30))


def test_contradicting_gold_labels_are_reported():
    votes, labels = independent_votes(1000, np.full(6, 0.9), np.full(6, 0.9), seed=3)
    few, many = (
        DawidSkeneEM().fit(votes, key=KEY, gold=some_gold(1 - labels, n)).diagnostics.all_warnings for n in (8, 60)
    )
    assert "votes and gold labels contradict each other" in few[-1]
    assert "the votes were followed (the votes count as 10 gold labels, and there are 8)" in few[-1]
    assert "the gold labels were followed" in many[-1]


def log_odds_ratio(evidence, probs, k, other):
    """Of votes and classes, for two labels, with one more item in each class whose votes are divided evenly."""
    total = evidence.T @ probs + 1 / probs.shape[1]
    return np.log(total[k, k] * total[other, other] / (total[k, other] * total[other, k]))


def influences(evidence, parts, probs, pair, step=1e-5):
    """What the log odds ratio gains by a little more of each part of the evidence."""
    ratio = log_odds_ratio(evidence, probs, *pair)
    return np.array([(log_odds_ratio(evidence + step * part, probs, *pair) - ratio) / step for part in parts])


def margin_of_items(evidence, probs, pair):
    """In standard errors of the infinitesimal jackknife; the added items vary, too."""
    parts = [np.where(np.arange(len(probs))[:, None] == item, evidence, 0) for item in range(len(probs))]
    total = evidence.T @ probs + 1 / probs.shape[1]
    added = sum(1 / probs.shape[1] / total[row, column] ** 2 for row in pair for column in pair)
    squares = np.sum(influences(evidence, parts, probs, pair) ** 2)
    return log_odds_ratio(evidence, probs, *pair) / np.sqrt(squares + added)


def margin_of_voters(votes, probs, pair):
    evidence, matrix = vote_shares(votes), votes.matrix
    of_voter = np.equal.outer(matrix.T, np.arange(votes.num_classes)) / (matrix >= 0).sum(axis=1)[:, None]
    found = influences(evidence, of_voter, probs, pair)
    return log_odds_ratio(evidence, probs, *pair) / (np.std(found, ddof=1) * np.sqrt(len(found)))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_margins_against_brute_force(num_classes):
    votes, labels = votes_of_classes(num_classes, num_items=60, num_voters=5, missing=0.2)
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(num_classes), 60) * 0.5 + 0.5 * np.eye(num_classes)[labels]
    expected = {
        pair: (margin_of_items(vote_shares(votes), probs, pair), margin_of_voters(votes, probs, pair))
        for pair in combinations(range(num_classes), 2)
    }
    for stored in (votes, as_triplets(votes)):
        found = orient(probs, stored)
        assert (found.by_items, found.by_voters) == pytest.approx(expected[found.labels], rel=1e-3)
        assert found.margin == pytest.approx(min(min(pair) for pair in expected.values()), rel=1e-3)


def test_the_margin_of_gold_labels_is_that_of_their_items():
    votes, labels = votes_of_classes(2, num_items=60, num_voters=5)
    probs = np.random.default_rng(0).dirichlet(np.ones(2), 60)
    gold = some_gold(labels, 15)
    oriented = orient(probs, votes, gold)
    expected = margin_of_items(np.equal.outer(gold, np.arange(2)), probs[:, oriented.order], (0, 1))
    assert oriented.by_gold == pytest.approx(expected, rel=1e-3)
    assert np.isnan(orient(probs, votes).by_gold)


def test_a_near_tie_is_reported_and_a_clear_order_is_not():
    """Half of the voters say the opposite of the others: nothing tells which half is right."""
    rates = np.array([0.85, 0.85, 0.85, 0.15, 0.15, 0.16])
    votes, labels = independent_votes(2000, rates, rates, seed=4)
    fit = DawidSkeneEM().fit(votes, key=KEY)
    assert fit.diagnostics.orientation["by_voters"] < 2
    assert "the order of the labels '0' and '1' is nearly tied" in fit.diagnostics.all_warnings[-1]
    assert "nearly tied" in repr(fit)
    settled = DawidSkeneEM().fit(votes, key=KEY, gold=some_gold(labels, 20))
    assert settled.diagnostics.all_warnings == []
    assert np.mean(settled.codes == labels) > 0.95
    votes, _ = independent_votes(300, RATES, RATES)
    assert DawidSkeneEM().fit(votes, key=jax.random.key(1)).diagnostics.all_warnings == []


def test_labels_of_fewer_classes_than_votes_have():
    """Votes no, yes and unsure for labels no and yes."""
    votes, labels = votes_of_classes(3, num_items=300, num_voters=5)
    labels = np.minimum(labels, 1)
    probs = 0.9 * np.eye(2)[labels] + 0.05
    for order in ([0, 1], [1, 0]):
        found = orient(probs[:, order], votes)
        np.testing.assert_array_equal(probs[:, order][:, found.order], probs)
        assert found.labels == (0, 1)
        assert found.margin > 2
