"""Shrinkage that the votes choose: evidence by products, the M-step by numerical maximisation, and what it is for."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from latentens.inference.independent import Estimates, Expected, VotePrior, maximisation
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.methods.dawid_skene_em import STRENGTHS, Shrinkage, choose_shrinkage, log_evidence
from latentens.votes import Triplets, Votes
from tests.reference import KEY, votes_of_classes


def drawn_counts(generator, accuracy, cast, num_classes=3):
    """Counts (label, voter, vote) of voters with one accuracy each and even mistakes."""
    counts = np.empty((num_classes, len(accuracy), num_classes))
    for k in range(num_classes):
        for j, right in enumerate(accuracy):
            shares = np.where(np.arange(num_classes) == k, right, (1 - right) / (num_classes - 1))
            counts[k, j] = generator.multinomial(cast, shares)
    return counts


def test_evidence_is_the_probability_of_one_vote_after_the_other():
    votes, prior = [0, 2, 2, 1, 2], np.array([0.5, 1.0, 2.5])
    expected, urn = 0.0, prior.copy()
    for vote in votes:
        expected += np.log(urn[vote] / urn.sum())
        urn[vote] += 1
    counts = np.bincount(votes, minlength=3)
    assert log_evidence(np.stack([counts, counts]), prior) == pytest.approx(2 * expected)
    without = log_evidence(np.array([1, 0, 4]), np.array([0.5, 0.0, 2.5]))  # an impossible category is left out
    assert without == pytest.approx(log_evidence(np.array([1, 4]), np.array([0.5, 2.5])))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_maximisation_has_the_highest_expected_log_likelihood_and_prior(num_classes):
    generator = np.random.default_rng(0)
    counts = drawn_counts(generator, [0.9, 0.5], 12, num_classes)
    expected = Expected(counts.sum(axis=(1, 2))[:, None], counts[:, None], np.zeros(1))
    prior = choose_shrinkage(counts).given(expected)
    found = maximisation(expected, prior)

    def height(confusion):
        logs = Estimates(np.log(found.shares), np.log(confusion)[:, None])
        return float(np.sum(counts * np.log(confusion)) + prior.log_density(logs)[0])

    best = height(found.confusion[:, 0])
    climbed = minimize(
        lambda x: -height(softmax(x.reshape(counts.shape), axis=2)), generator.normal(size=counts.size), tol=1e-10
    )
    assert -climbed.fun == pytest.approx(best, abs=1e-5)
    assert -climbed.fun <= best + 1e-9


def test_what_is_added_is_what_changes_a_voter_without_votes():
    counts = drawn_counts(np.random.default_rng(1), [0.9, 0.6, 0.7], 20)
    counts[:, 2] = 0
    expected = Expected(counts.sum(axis=(1, 2))[:, None], counts[:, None], np.zeros(1))
    prior = choose_shrinkage(counts).given(expected)
    silent = maximisation(expected, prior).confusion[:, 0, 2]
    added = prior.added(3)[2]
    np.testing.assert_allclose(silent, added / added.sum(axis=1, keepdims=True))
    overall = np.einsum("kjk->", counts) / counts.sum()
    np.testing.assert_allclose(np.diag(silent), overall, atol=0.02)


def test_pseudo_counts_of_ones_own_are_added_as_they_are():
    pseudo_counts = 0.5 + 2 * np.eye(3)
    counts = drawn_counts(np.random.default_rng(2), [0.9, 0.6], 20)
    expected = Expected(counts.sum(axis=(1, 2))[:, None], counts[:, None], np.zeros(1))
    found = maximisation(expected, VotePrior.of_counts(pseudo_counts))
    by_hand = counts + pseudo_counts[:, None]
    np.testing.assert_allclose(found.confusion[:, 0], by_hand / by_hand.sum(axis=2, keepdims=True))


def test_the_density_is_that_of_divergences_from_the_simple_forms():
    counts = drawn_counts(np.random.default_rng(6), [0.9, 0.6, 0.7], 20)
    expected = Expected(counts.sum(axis=(1, 2))[:, None], counts[:, None], np.zeros(1))
    rule = Shrinkage(4, 5, 6)
    confusion = np.random.default_rng(7).dirichlet(np.ones(3), (3, 1, 3))
    found = rule.given(expected).log_density(Estimates(np.zeros((3, 1)), np.log(confusion)))
    voter, voter_class, mistakes = rule.strengths
    right = np.einsum("kjk->j", counts)
    overall = (right.sum() + 1) / (counts.sum() + 2)
    accuracy = (right + voter * overall) / (counts.sum(axis=(0, 2)) + voter)
    total = 0.0
    for j in range(3):
        total -= voter * divergence([overall, 1 - overall], [accuracy[j], 1 - accuracy[j]])
        for k in range(3):
            own = confusion[k, 0, j, k]
            total -= voter_class * divergence([accuracy[j], 1 - accuracy[j]], [own, 1 - own])
            total -= mistakes * divergence([0.5, 0.5], np.delete(confusion[k, 0, j], k) / (1 - own))
    assert found[0] == pytest.approx(total)


def divergence(first, second):
    return sum(p * np.log(p / q) for p, q in zip(first, second, strict=True))


def test_voters_who_are_alike_are_drawn_together_and_others_are_not():
    generator = np.random.default_rng(3)
    alike = choose_shrinkage(drawn_counts(generator, np.full(40, 0.7), 50)).strengths
    different = choose_shrinkage(drawn_counts(generator, generator.uniform(0.2, 0.95, 40), 50)).strengths
    assert alike[0] >= 16 * different[0]
    assert min(alike[1], different[1], alike[2]) >= 128  # no voter is better on one class than on another
    by_class = drawn_counts(generator, np.full(40, 0.7), 50)
    by_class[0] = drawn_counts(generator, np.full(40, 0.3), 50)[0]
    assert choose_shrinkage(by_class).strengths[1] <= 32


def test_strengths_move_by_one_place_and_settle():
    counts = drawn_counts(np.random.default_rng(4), [0.9, 0.5, 0.7, 0.8], 100)
    at_once, places = choose_shrinkage(counts), Shrinkage(0, 0, 0)
    for _ in range(len(STRENGTHS)):
        moved = choose_shrinkage(counts, places)
        assert max(abs(new - old) for new, old in zip(moved, places, strict=True)) <= 1
        places = moved
    assert places == at_once


def test_scarce_votes_of_many_voters_do_not_cost_accuracy():
    """Three votes per item, ten per voter, five classes: the plain likelihood falls far below the majority."""
    generator = np.random.default_rng(5)
    right, labels = generator.uniform(0.4, 0.95, 120), generator.integers(5, size=400)
    item = np.repeat(np.arange(400), 3)
    voter = np.concatenate([generator.permutation(120)[:3] for _ in range(400)])
    vote = (labels[item] + np.where(generator.random(1200) < right[voter], 0, generator.integers(1, 5, 1200))) % 5
    order = np.lexsort((voter, item))
    votes = Votes(Triplets(item[order], voter[order], vote[order].astype(np.int8)), 400, 120, 5)
    majority, shrunken, plain = (
        np.mean(method.fit(votes, key=KEY).codes == labels)
        for method in (MajorityVote(), DawidSkeneEM(random_starts=2), DawidSkeneEM(0.01, 0.01, random_starts=2))
    )
    assert shrunken > majority - 0.01
    assert shrunken > plain + 0.05


def test_many_votes_are_hardly_shrunken():
    votes, _ = votes_of_classes(3, num_items=3000)
    plain, shrunken = (method.fit(votes, key=KEY) for method in (DawidSkeneEM(0.0, 0.0), DawidSkeneEM()))
    np.testing.assert_allclose(plain.params["confusion"], shrunken.params["confusion"], atol=0.03)
    assert len(shrunken.diagnostics["shrinkage"]) == 3
    assert "shrinkage" not in plain.diagnostics


def test_forms_with_fewer_parameters():
    votes, _ = votes_of_classes(3, num_items=300)
    by_class, coin = (DawidSkeneEM(form=form, random_starts=1).fit(votes, key=KEY) for form in ("class", "coin"))
    for fit in (by_class, coin):
        confusion = fit.params["confusion"]
        wrong = confusion[:, ~np.eye(3, dtype=bool)].reshape(-1, 3, 2)
        np.testing.assert_allclose(wrong[..., 0], wrong[..., 1], rtol=1e-3)
    right = np.diagonal(coin.params["confusion"], axis1=1, axis2=2)
    np.testing.assert_allclose(right, right[:, :1].repeat(3, axis=1), rtol=1e-3)
    assert np.ptp(np.diagonal(by_class.params["confusion"], axis1=1, axis2=2), axis=1).max() > 0.01
