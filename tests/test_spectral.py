import jax
import numpy as np
import pytest

from latentens.inference.independent import lean_to_score
from latentens.methods import SpectralMetaLearner
from latentens.models import DawidSkene
from latentens.votes import Votes
from tests.reference import KEY, independent_votes, largest_standard_score, percent, two_class

SENSITIVITY = np.array([0.9, 0.8, 0.7, 0.65, 0.85, 0.6])
SPECIFICITY = np.array([0.6, 0.75, 0.9, 0.7, 0.8, 0.7])
TRUTH = two_class(0.6, SENSITIVITY, SPECIFICITY)


def all_params(fit):
    return np.concatenate([np.ravel(fit.params[name]) for name in TRUTH])


@pytest.mark.parametrize(("name", "expected"), [("S1", 97.30), ("S3", 96.08), ("magic/1", 77.11), ("magic/2", 76.88)])
def test_published_accuracy(name, expected):
    assert percent(SpectralMetaLearner(), name) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("family", "mean", "deviation"),
    [("condInd", 93.43, 0.3), ("Tree", 92.68, 0.3), ("LG", 77.38, 0.3), ("TG", 81.15, 0.5)],
)
def test_accuracy_scatters_around_the_published_mean(family, mean, deviation):
    assert percent(SpectralMetaLearner(), f"{family}/1") == pytest.approx(mean, abs=deviation)


def test_recovers_the_parameters_of_independent_voters():
    model = DawidSkene(num_voters=6)
    truth = np.concatenate([np.ravel(value) for value in TRUTH.values()])
    assert largest_standard_score(SpectralMetaLearner(), model, TRUTH, all_params, truth) < 3


def test_labels_are_the_sign_of_the_score():
    votes, _ = independent_votes(500, SENSITIVITY, SPECIFICITY, prevalence=0.9)
    fit = SpectralMetaLearner().fit(votes, key=KEY)
    score = (2.0 * votes.matrix - 1) @ fit.params["spectral_vector"]
    np.testing.assert_allclose(score, fit.diagnostics["score"], atol=1e-12)
    assert np.array_equal(fit.codes, score > 0)


def test_leaning_moves_no_further_than_needed():
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
    leaned = lean_to_score(probs, np.array([1.0, -1.0, 0.0, -2.0]))
    assert np.array_equal(leaned.argmax(axis=1), [1, 0, 1, 0])
    np.testing.assert_allclose(leaned, [[0.5, 0.5], [0.5, 0.5], [0.3, 0.7], [0.6, 0.4]], atol=1e-15)


def test_a_voter_worse_than_chance_counts_against():
    sensitivity, specificity = np.append(SENSITIVITY, 0.2), np.append(SPECIFICITY, 0.2)
    votes, labels = independent_votes(2000, sensitivity, specificity)
    fit = SpectralMetaLearner().fit(votes, key=KEY)
    assert fit.params["spectral_vector"][-1] < 0
    assert np.mean(fit.codes == labels) > np.mean((votes.tally[:, 1] > 3) == labels)


def test_votes_without_structure_fall_back_to_vote_shares_and_say_so():
    votes = Votes.from_matrix([[0, 1], [1, 0], [0, 0], [1, 1]], num_classes=2)
    fit = SpectralMetaLearner().fit(votes, key=jax.random.key(0))
    assert "no rank-one structure" in fit.diagnostics.fallback
    np.testing.assert_allclose(fit.label_probs[:, 1], [0.5, 0.5, 0.0, 1.0])
