import numpy as np
import pytest

from latentens.methods import RestrictedLikelihood
from latentens.methods.moments import GRID, RATE_BOUNDS, independent_imbalance, published_rates_at, rates_at
from latentens.models import DawidSkene
from tests.reference import KEY, independent_votes, largest_standard_score, percent
from tests.test_spectral import SENSITIVITY, SPECIFICITY, TRUTH, all_params

PUBLISHED = RestrictedLikelihood(grid="published")


@pytest.mark.parametrize(("name", "expected"), [("S1", 98.39), ("S3", 98.23), ("magic/1", 78.24), ("magic/2", 78.84)])
def test_published_accuracy(name, expected):
    assert percent(PUBLISHED, name) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("family", "mean", "deviation"),
    [("condInd", 94.78, 0.3), ("Tree", 91.90, 0.5), ("LG", 86.36, 0.4), ("TG", 82.03, 0.54)],
)
def test_accuracy_scatters_around_the_published_mean(family, mean, deviation):
    assert percent(PUBLISHED, f"{family}/1") == pytest.approx(mean, abs=deviation)


@pytest.mark.parametrize("imbalance", ["likelihood", "tensor"])
def test_recovers_the_parameters_of_independent_voters(imbalance):
    truth = np.concatenate([np.ravel(value) for value in TRUTH.values()])
    method = RestrictedLikelihood(imbalance=imbalance)
    assert largest_standard_score(method, DawidSkene(num_voters=6), TRUTH, all_params, truth) < 3


def test_labels_are_of_maximum_likelihood_without_a_prior():
    votes, _ = independent_votes(400, SENSITIVITY, SPECIFICITY, prevalence=0.85)
    fit = RestrictedLikelihood().fit(votes, key=KEY)
    sensitivity, specificity = fit.sensitivity, fit.specificity
    given_one = np.prod(np.where(votes.matrix == 1, sensitivity, 1 - sensitivity), axis=1)
    given_zero = np.prod(np.where(votes.matrix == 1, 1 - specificity, specificity), axis=1)
    assert np.array_equal(fit.codes, given_one > given_zero)
    prevalence = fit.params["prevalence"][1]
    posterior = prevalence * given_one / (prevalence * given_one + (1 - prevalence) * given_zero)
    agree = (posterior > 0.5) == (given_one > given_zero)
    assert 0 < np.mean(~agree) < 0.5
    np.testing.assert_allclose(fit.label_probs[agree, 1], posterior[agree], rtol=1e-10)
    np.testing.assert_allclose(fit.label_probs[~agree, 1], 0.5, atol=1e-15)


@pytest.mark.parametrize("published", [False, True])
def test_the_grid_search_finds_the_best_point_of_the_grid(published):
    votes, _ = independent_votes(300, SENSITIVITY, SPECIFICITY, prevalence=0.7, missing=0.2)
    mean, vector = np.linspace(0.1, 0.3, 6), np.linspace(0.3, 0.5, 6)
    heights = []
    for b in GRID:
        rates = (published_rates_at if published else rates_at)(b, mean, vector)
        total = 0.0
        for row in votes.matrix:
            sensitivity, specificity = (rate[row >= 0] for rate in rates)
            cast = row[row >= 0]
            given_one = np.prod(np.where(cast == 1, sensitivity, 1 - sensitivity))
            given_zero = np.prod(np.where(cast == 1, 1 - specificity, specificity))
            total += np.log((1 + b) / 2 * given_one + (1 - b) / 2 * given_zero)
        heights.append(total)
    best = GRID[int(np.argmax(heights))]
    found = independent_imbalance(votes.patterns, mean, vector, published=published)
    assert found == best if published else abs(found - best) <= 0.01


def test_published_rates_are_exact_only_for_balanced_classes():
    mean, vector = np.array([0.1, -0.2]), np.array([0.5, 0.3])
    sensitivity, specificity = published_rates_at(0.0, mean, vector)
    np.testing.assert_allclose(sensitivity, (1 + mean + vector) / 2)
    np.testing.assert_allclose(specificity, (1 - mean + vector) / 2)
    assert np.all(published_rates_at(0.9, mean, vector).sensitivity <= RATE_BOUNDS[1])
    accuracy = vector / (1 - 0.5**2)
    np.testing.assert_allclose(
        published_rates_at(0.5, mean, vector).sensitivity, (1 + accuracy + mean - accuracy * 0.5) / 2
    )
