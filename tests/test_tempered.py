"""Tempering: the score of hidden votes by loops, what never changes, and what it is for."""

import numpy as np
import pytest

from latentens import Votes
from latentens.errors import LatentensError, VotesError
from latentens.evaluation.scores import evaluate
from latentens.methods import DawidSkeneEM, MajorityVote, Tempered
from latentens.methods.tempering.held_out import HiddenVotes, hold_out, without_voter
from latentens.methods.tempering.temperature import best_temperature, temper
from latentens.methods.tempering.vote_score import MOST_ROUNDS, POOLING, RIGHT, TOLERANCE, WRONG, VoteScore
from latentens.votes import Triplets
from tests.reference import KEY, independent_votes, votes_of_classes

RATES = np.linspace(0.65, 0.85, 8)
EM = DawidSkeneEM(random_starts=0)


def as_triplets(votes):
    return Votes(Triplets(*votes.triplets), *votes.shape, votes.num_classes)


def copied(num_items=2000, copies=4, seed=0):
    """Three independent opinions, each of them repeated by several voters who rarely slip."""
    opinions, labels = independent_votes(num_items, np.full(3, 0.75), np.full(3, 0.75), seed=seed)
    slips = np.random.default_rng(seed).random((num_items, 3 * copies)) < 0.05
    return Votes.from_matrix(np.repeat(opinions.matrix, copies, axis=1) ^ slips, num_classes=2), labels


def score_by_loops(hidden, temperature):
    """The log-probability of hidden votes, item by item, written out."""
    num_classes = hidden.label_probs.shape[1]
    probs = hidden.label_probs**temperature
    probs /= probs.sum(axis=1, keepdims=True)

    def counted(weights):
        counts = np.zeros((hidden.num_voters, num_classes, num_classes))
        for j, x, weight in zip(hidden.voter, hidden.vote, weights, strict=True):
            counts[j, :, x] += weight
        shared = counts.sum(axis=0) + np.where(np.eye(num_classes, dtype=bool), RIGHT, WRONG)
        return counts + POOLING * shared / shared.sum(axis=1, keepdims=True)

    own, before = probs, -np.inf
    for _ in range(MOST_ROUNDS):
        theta = counted(own)
        theta /= theta.sum(axis=2, keepdims=True)
        joint = probs * theta[hidden.voter, :, hidden.vote]
        own, score = joint / joint.sum(axis=1, keepdims=True), np.log(joint.sum(axis=1)).mean()
        if score - before < TOLERANCE:
            break
        before = score
    counts, scores = counted(own), {}
    for i, j, x, weight, prior in zip(hidden.item, hidden.voter, hidden.vote, own, probs, strict=True):
        without = counts[j].copy()
        without[:, x] -= weight
        predicted = np.sum(prior * without[:, x] / without.sum(axis=1))
        scores[i] = scores.get(i, 0.0) + np.log(predicted)
    return np.array([scores[i] for i in sorted(scores)])


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_score_of_hidden_votes_is_that_of_loops(num_classes, temperature):
    votes, _ = votes_of_classes(num_classes, num_items=25, num_voters=4, missing=0.3)
    (hidden, *_) = hold_out(EM, votes, 2, KEY, None).votes
    assert isinstance(hidden, HiddenVotes)
    np.testing.assert_allclose(VoteScore(hidden)(temperature), score_by_loops(hidden, temperature), rtol=1e-9)


@pytest.mark.parametrize("storage", [lambda votes: votes, as_triplets], ids=["matrix", "triplets"])
def test_hidden_votes_are_asked_about_without_their_voter(storage):
    votes, _ = independent_votes(10, RATES, RATES, missing=0.2)
    item, voter, _ = votes.triplets
    rows = without_voter(storage(votes), item, voter)
    expected = votes.matrix[item].copy()
    expected[np.arange(len(item)), voter] = -1
    np.testing.assert_array_equal(rows.matrix, expected)


def test_a_temperature_of_one_changes_nothing_and_none_changes_the_label():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    np.testing.assert_allclose(temper(probs, 1.0), probs, rtol=1e-12)
    for temperature in (0.1, 0.5, 3.0):
        np.testing.assert_array_equal(temper(probs, temperature).argmax(axis=1), probs.argmax(axis=1))


def test_the_best_temperature_of_a_known_curve():
    centre = np.log(0.4) + np.random.default_rng(1).normal(0, 0.2, 400)
    found = best_temperature(lambda t: -((np.log(t) - centre) ** 2))
    assert found.value == pytest.approx(np.exp(centre.mean()), rel=0.02)
    assert found.standard_error == pytest.approx(found.value * 0.2 / 20, rel=0.15)
    assert best_temperature(lambda t: np.zeros(5)).value == 1.0


def test_copies_are_believed_less_and_independent_voters_as_before():
    votes, labels = copied()
    raw, tempered = EM.fit(votes, key=KEY), Tempered(EM).fit(votes, key=KEY)
    assert tempered.diagnostics["temperature"] + 2 * tempered.diagnostics["temperature_error"] < 0.7
    np.testing.assert_array_equal(tempered.labels, raw.labels)
    before, after = (evaluate(labels, fit.label_probs, None)["log_score"] for fit in (raw, tempered))
    assert after < 0.7 * before
    votes, labels = independent_votes(4000, RATES, RATES)
    raw, tempered = EM.fit(votes, key=KEY), Tempered(EM).fit(votes, key=KEY)
    assert tempered.diagnostics["temperature"] == pytest.approx(1.0, abs=0.15)
    before, after = (evaluate(labels, fit.label_probs, None)["log_score"] for fit in (raw, tempered))
    assert after < before + 0.002


@pytest.mark.parametrize("num_classes", [2, 3])
def test_predictions_are_tempered_too(num_classes):
    votes, _ = votes_of_classes(num_classes, num_items=300, num_voters=6, missing=0.3)
    fit = Tempered(EM).fit(as_triplets(votes), key=KEY)
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-9)


def test_known_labels_choose_the_temperature():
    votes, labels = copied()
    gold = np.where(np.arange(len(labels)) < 500, labels, -1)
    fit = Tempered(MajorityVote()).fit(votes, key=KEY, gold=gold)
    assert "temperature_by_votes" in fit.diagnostics
    np.testing.assert_array_equal(fit.labels[:500], labels[:500])


def test_what_cannot_be_tempered():
    with pytest.raises(VotesError, match="no item has votes of two voters"):
        Tempered(EM).fit(Votes.from_matrix(np.where(np.eye(6, dtype=bool), 1, -1), num_classes=2), key=KEY)
    with pytest.raises(LatentensError, match="tempered already"):
        Tempered(Tempered(EM))
    with pytest.raises(LatentensError, match="folds must be at least 2"):
        Tempered(EM, folds=1)
