from itertools import combinations

import numpy as np
import pytest

from latentens.methods.moments import (
    complete_blocks,
    leading_vector,
    rates_at,
    scale_of,
    third_moment_imbalance,
    vote_moments,
)
from latentens.votes import Triplets, Votes
from tests.reference import independent_votes

RATES = np.array([0.9, 0.8, 0.7, 0.65, 0.85]), np.array([0.6, 0.75, 0.9, 0.7, 0.8])


def covariance_by_loops(matrix):
    num_voters = matrix.shape[1]
    covariance = np.zeros((num_voters, num_voters))
    for i in range(num_voters):
        for j in range(num_voters):
            both = (matrix[:, i] >= 0) & (matrix[:, j] >= 0)
            if both.sum() > 1:
                covariance[i, j] = np.cov(2.0 * matrix[both, i] - 1, 2.0 * matrix[both, j] - 1)[0, 1]
    return covariance


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_moments_are_those_of_the_items_that_two_voters_share(missing):
    votes, _ = independent_votes(60, *RATES, missing=missing)
    moments = vote_moments(votes)
    np.testing.assert_allclose(moments.covariance, covariance_by_loops(votes.matrix), atol=1e-12)
    means = [2 * column[column >= 0].mean() - 1 for column in votes.matrix.T]
    np.testing.assert_allclose(moments.mean, means, atol=1e-12)


def test_moments_of_triplets_and_of_voters_without_common_items():
    matrix = np.array([[1, -1, 0], [0, -1, 1], [-1, 1, 1], [1, -1, 0]])
    dense = Votes.from_matrix(matrix, num_classes=2)
    sparse = Votes(Triplets(*dense.triplets), *matrix.shape, 2)
    assert vote_moments(dense).covariance[0, 1] == 0
    np.testing.assert_allclose(vote_moments(sparse).covariance, vote_moments(dense).covariance, atol=1e-15)


@pytest.mark.parametrize("groups", [range(6), [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 3]])
def test_completion_is_the_least_squares_solution(groups):
    groups = np.array(groups)
    noise = np.random.default_rng(1).normal(size=(6, 6))
    covariance = noise + noise.T
    expected = covariance.copy()
    for i in range(6):
        for j in np.flatnonzero(groups == groups[i]):
            outside = [
                (k, m)
                for k in range(6)
                for m in range(6)
                if groups[i] not in (groups[k], groups[m]) and groups[k] != groups[m]
            ]
            above = sum(covariance[i, k] * covariance[k, m] * covariance[m, j] for k, m in outside)
            expected[i, j] = above / sum(covariance[k, m] ** 2 for k, m in outside)
    np.testing.assert_allclose(complete_blocks(covariance, groups), expected, rtol=1e-10)


def test_completion_without_pairs_is_zero():
    assert np.array_equal(np.diag(complete_blocks(np.ones((2, 2)), np.arange(2))), [0, 0])


def test_exact_moments_give_back_the_parameters():
    sensitivity, specificity = RATES
    imbalance = 0.4
    strength = sensitivity + specificity - 1
    vector = strength * np.sqrt(1 - imbalance**2)
    covariance = np.outer(vector, vector) + np.diag([0.3, 0.1, 0.5, 0.2, 0.4])
    mean = (1 + imbalance) / 2 * (2 * sensitivity - 1) + (1 - imbalance) / 2 * (1 - 2 * specificity)
    found = leading_vector(complete_blocks(covariance, np.arange(5)))
    found = found * np.sign(found[0]) * np.sqrt(scale_of(found, covariance, np.arange(5)))
    np.testing.assert_allclose(found, vector, rtol=1e-10)
    rates = rates_at(imbalance, mean, found)
    np.testing.assert_allclose(rates.sensitivity, sensitivity, rtol=1e-10)
    np.testing.assert_allclose(rates.specificity, specificity, rtol=1e-10)


@pytest.mark.parametrize("groups", [range(5), [0, 0, 1, 2, 2]])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_third_moments_are_summed_over_triples_of_groups(groups, missing):
    votes, _ = independent_votes(80, *RATES, prevalence=0.7, missing=missing)
    mean, vector = vote_moments(votes).mean, np.array([0.5, -0.3, 0.4, 0.6, 0.2])
    signed, cast, above, below = 2.0 * votes.matrix - 1, votes.matrix >= 0, 0.0, 0.0
    for triple in map(list, combinations(range(5), 3)):
        if len({groups[i] for i in triple}) == 3:
            rows = cast[:, triple].all(axis=1)
            above += np.sum(np.prod((signed[rows][:, triple] - mean[triple]) * vector[triple], axis=1))
            below += rows.sum() * np.prod(vector[triple] ** 2)
    slope = 80**2 / (79 * 78) * above / below
    found = third_moment_imbalance(votes.patterns, mean, vector, np.array(groups))
    assert found == pytest.approx(np.clip(-slope / np.sqrt(4 + slope**2), -0.99, 0.99))


def test_third_moments_find_the_imbalance():
    votes, _ = independent_votes(100_000, *RATES, prevalence=0.8)
    moments = vote_moments(votes)
    vector = (RATES[0] + RATES[1] - 1) * np.sqrt(1 - 0.6**2)
    assert third_moment_imbalance(votes.patterns, moments.mean, vector, np.arange(5)) == pytest.approx(0.6, abs=0.02)
