import numpy as np
import pytest

from latentens.methods import IterativeMaximumLikelihood, MajorityVote, RestrictedLikelihood
from latentens.methods.rank_one import hard_confusion
from latentens.votes.layout import vote_indicator
from tests.reference import KEY, independent_votes, percent
from tests.test_spectral import SENSITIVITY, SPECIFICITY

PUBLISHED = IterativeMaximumLikelihood(start=RestrictedLikelihood(grid="published"))


@pytest.mark.parametrize(("name", "expected"), [("S1", 98.30), ("S3", 97.66)])
def test_published_accuracy(name, expected):
    assert percent(PUBLISHED, name) == pytest.approx(expected, abs=0.05)


def by_loops(matrix, labels):
    """Hard EM, one item at a time."""
    num_items = len(matrix)
    for _ in range(100):
        rates = np.full((2, matrix.shape[1]), 0.5)
        for label in (0, 1):
            for voter in range(matrix.shape[1]):
                cast = matrix[(labels == label) & (matrix[:, voter] >= 0), voter]
                if len(cast):
                    rates[label, voter] = ((1 - num_items**-2) * (2 * np.mean(cast == label) - 1) + 1) / 2
        relabelled = []
        for row, label in zip(matrix, labels, strict=True):
            odds = 0.0
            for vote, specificity, sensitivity in zip(row, *rates, strict=True):
                if vote == 1:
                    odds += np.log(sensitivity) - np.log(1 - specificity)
                elif vote == 0:
                    odds += np.log(1 - sensitivity) - np.log(specificity)
            relabelled.append(label if odds == 0 else odds > 0)
        if np.array_equal(relabelled, labels):
            break
        labels = np.array(relabelled)
    return labels, rates


def test_equals_hard_expectation_maximisation_by_loops():
    votes, _ = independent_votes(150, SENSITIVITY, SPECIFICITY, prevalence=0.7, missing=0.1)
    started = MajorityVote().fit(votes, key=KEY).codes
    labels, (specificity, sensitivity) = by_loops(votes.matrix, started)
    fit = IterativeMaximumLikelihood(start=MajorityVote()).fit(votes, key=KEY)
    assert fit.diagnostics.converged
    assert np.array_equal(fit.codes, labels)
    np.testing.assert_allclose(fit.sensitivity, sensitivity, rtol=1e-10)
    np.testing.assert_allclose(fit.specificity, specificity, rtol=1e-10)


def test_an_empty_class_gives_even_rates():
    votes, _ = independent_votes(20, SENSITIVITY, SPECIFICITY)
    confusion = hard_confusion(vote_indicator(votes, 2), np.ones(20, dtype=int), np.zeros(20, dtype=int))
    np.testing.assert_allclose(confusion[:, 1], 0.5)
