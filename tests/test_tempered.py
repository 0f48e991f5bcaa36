"""Tempering: the score of hidden votes by loops, what never changes, and what it is for."""

import numpy as np
import pytest

from latentens import Votes
from latentens.errors import LatentensError, VotesError
from latentens.methods import DawidSkeneEM, MajorityVote, Tempered
from latentens.methods.tempered import (
    best_temperature,
    hold_out,
    temper,
    vote_scores,
    without_voter,
)
from latentens.scores.scores import evaluate
from tests.reference import KEY, as_triplets, independent_votes, votes_of_classes

RATES = np.linspace(0.65, 0.85, 8)
EM = DawidSkeneEM(random_starts=0)
MOST_ROUNDS, TOLERANCE = 20, 1e-5
POOLING, RIGHT, WRONG = 3.0, 0.6, 0.1  # of confusion matrices that are learnt from hidden votes


def copied(num_items=2000, copies=4, seed=0):
    """Three independent opinions, each of them repeated by several voters who rarely slip."""
    opinions, labels = independent_votes(num_items, np.full(3, 0.75), np.full(3, 0.75), seed=seed)
    slips = np.random.default_rng(seed).random((num_items, 3 * copies)) < 0.05
    return Votes.from_matrix(np.repeat(opinions.matrix, copies, axis=1) ^ slips, num_classes=2), labels


def tempered_by_hand(hidden, temperature):
    probs = hidden.label_probs**temperature
    return probs / probs.sum(axis=1, keepdims=True)


def confusion_by_loops(hidden, temperature):
    """The confusion matrices that predict hidden votes best, written out."""
    num_classes, probs = hidden.label_probs.shape[1], tempered_by_hand(hidden, temperature)

    def counted(weights):
        counts = np.zeros((hidden.shape[0], num_classes, num_classes))
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
    theta = counted(own)
    return theta / theta.sum(axis=2, keepdims=True)


def score_by_loops(hidden, learnt, temperature):
    """The log-probability of each item's hidden votes, by confusion matrices learnt from other votes."""
    theta, scores = confusion_by_loops(learnt, temperature), {}
    probs = tempered_by_hand(hidden, temperature)
    for i, j, x, prior in zip(hidden.item, hidden.voter, hidden.vote, probs, strict=True):
        scores[i] = scores.get(i, 0.0) + np.log(np.sum(prior * theta[j, :, x]))
    return np.array([scores[i] for i in sorted(scores)])


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_score_of_hidden_votes_is_that_of_loops(num_classes, temperature):
    votes, _ = votes_of_classes(num_classes, num_items=25, num_voters=4, missing=0.3)
    held = hold_out(EM, votes, 2, KEY, None)
    expected = [
        (score_by_loops(part, seen, temperature) + score_by_loops(part, other, temperature)) / 2
        for part, seen, other in zip(held.votes, held.seen, held.votes[::-1], strict=True)
    ]
    np.testing.assert_allclose(vote_scores(held, None, temperature), np.concatenate(expected), rtol=1e-9)


def test_a_fit_is_asked_about_items_that_it_has_not_seen_and_about_its_own():
    votes, _ = independent_votes(40, RATES, RATES, missing=0.2)
    held = hold_out(EM, votes, 3, KEY, None)
    for asked, seen in zip(held.votes, held.seen, strict=True):
        assert not set(asked.item) & set(seen.item)
        assert len(asked.item) + len(seen.item) == len(votes.triplets.item)
    assert len(set().union(*(asked.item for asked in held.votes))) == 40


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
    for temperature in (0.0, 0.1, 0.5, 3.0):
        np.testing.assert_array_equal(temper(probs, temperature).argmax(axis=1), probs.argmax(axis=1))


def test_tempering_leaves_the_usual_shares_and_keeps_the_label():
    probs, base = np.random.default_rng(0).dirichlet(np.ones(3), 50), np.array([0.7, 0.2, 0.1])
    np.testing.assert_allclose(temper(probs, 1.0, base), probs, rtol=1e-12)
    for temperature in (0.0, 0.1, 0.5, 3.0):
        tempered = temper(probs, temperature, base)
        np.testing.assert_array_equal(tempered.argmax(axis=1), probs.argmax(axis=1))
        np.testing.assert_allclose(tempered.sum(axis=1), 1.0)
    nothing = temper(probs, 0.0, base)
    usual = probs.argmax(axis=1) == 0
    np.testing.assert_allclose(nothing[usual], np.tile(base, (usual.sum(), 1)), atol=1e-4)
    second = probs.argmax(axis=1) == 1  # as probable as the usual label, and not more
    np.testing.assert_allclose(nothing[second], np.tile([0.45, 0.45, 0.1], (second.sum(), 1)), atol=1e-4)
    half = probs**0.5 * base**0.5
    half /= half.sum(axis=1, keepdims=True)
    same = half.argmax(axis=1) == probs.argmax(axis=1)
    np.testing.assert_allclose(temper(probs, 0.5, base)[same], half[same])


def test_the_best_temperature_of_a_known_curve():
    centre = np.log(0.4) + np.random.default_rng(1).normal(0, 0.2, 400)
    found = best_temperature(lambda t: -((np.log(max(t, 1e-3)) - centre) ** 2))
    assert found.value == pytest.approx(np.exp(centre.mean()), rel=0.02)
    assert found.standard_error == pytest.approx(found.value * 0.2 / 20, rel=0.15)
    assert best_temperature(lambda t: np.zeros(5)).value == 1.0
    assert best_temperature(lambda t: np.full(5, -t)).value == 0.0


def noisy(mean, noise, peak, num_items=100):
    """Scores with a peak; the noise is that of what the temperatures gain over 1."""
    errors = noise * np.resize([-1.0, 1.0], num_items)
    return lambda t: 1.0 * (t > 0) + (mean + errors) * (1 - abs(t - peak)) - (mean + errors) * (1 - abs(1 - peak))


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (noisy(0.1, 0.01, 2.0), 2.0),
        (noisy(0.1, 0.01, 2.0, num_items=40), 1.0),
        (noisy(0.1, 0.7, 2.0), 1.0),
        (noisy(0.1, 0.7, 0.5), 0.5),
        (noisy(0.1, 2.0, 0.5), 1.0),
    ],
    ids=["more", "few items", "not enough for more", "enough for less", "noise"],
)
def test_a_change_of_confidence_needs_evidence(score, expected):
    assert best_temperature(score, by_labels=True).value == pytest.approx(expected, rel=0.05)
    assert best_temperature(score).value == pytest.approx(min(expected, 1.0), rel=0.05)  # votes never make it surer


@pytest.mark.parametrize("missing", [0.0, 0.6], ids=["dense", "sparse"])
def test_of_coin_tosses_nothing_is_known(missing):
    """The log score of a fair guess is log 2; without tempering it is far worse."""
    for seed in range(3):
        votes, _ = independent_votes(800, np.full(10, 0.5), np.full(10, 0.5), missing=missing, seed=seed)
        labels = np.random.default_rng(seed).integers(2, size=800)
        fit = Tempered(EM).fit(votes, key=KEY)
        assert evaluate(labels, fit.label_probs, None)["log_score"] < np.log(2) + 0.05


def test_labels_that_mean_something_else_in_other_fits_are_not_believed():
    """Each fit may take another group of copyists for the label; the two halves then contradict each other."""
    votes, labels = copied()
    raw, tempered = EM.fit(votes, key=KEY), Tempered(EM).fit(votes, key=KEY)
    scores = [evaluate(labels, fit.label_probs, None)["log_score"] for fit in (raw, tempered)]
    assert scores[1] < min(0.7, scores[0])


def test_an_item_without_votes_keeps_its_posterior():
    votes, _ = copied(num_items=300)
    matrix = votes.matrix.copy()
    matrix[:5] = -1
    raw, fit = (method.fit(Votes.from_matrix(matrix, num_classes=2), key=KEY) for method in (EM, Tempered(EM)))
    np.testing.assert_allclose(fit.label_probs[:5], raw.label_probs[:5])
    np.testing.assert_allclose(fit.predict(Votes.from_matrix(matrix, num_classes=2)), fit.label_probs, atol=1e-9)


def test_copies_are_believed_less_and_independent_voters_as_before():
    votes, labels = copied()
    raw, tempered = EM.fit(votes, key=KEY), Tempered(EM).fit(votes, key=KEY)
    assert tempered.diagnostics["temperature"] + 2 * tempered.diagnostics["temperature_error"] < 0.7
    np.testing.assert_array_equal(tempered.codes, raw.codes)
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
    np.testing.assert_array_equal(fit.codes[:500], labels[:500])


def test_what_cannot_be_tempered():
    with pytest.raises(VotesError, match="no item has votes from two voters"):
        Tempered(EM).fit(Votes.from_matrix(np.where(np.eye(6, dtype=bool), 1, -1), num_classes=2), key=KEY)
    with pytest.raises(VotesError, match="only one item"):
        Tempered(EM).fit(Votes.from_matrix([[1, 1, 0], [1, -1, -1], [-1, 0, -1]], num_classes=2), key=KEY)
    with pytest.raises(LatentensError, match="tempered already"):
        Tempered(Tempered(EM))
    with pytest.raises(LatentensError, match="folds must be None or at least 2"):
        Tempered(EM, folds=1)
