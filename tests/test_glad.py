import numpy as np
import pytest

from latentens.methods import Glad, glad
from latentens.methods.glad import VotedRows, _log_likelihoods, expect, rows_log_posterior
from latentens.votes import Votes
from tests.reference import KEY, independent_votes, percent, votes_of_classes


@pytest.mark.parametrize(("name", "expected"), [("TG/1", 82.81), ("TG/2", 82.81), ("Tree/1", 90.55), ("Tree/2", 90.55)])
def test_accuracy_scatters_around_the_reference_mean(name, expected):
    assert percent(Glad(), name) == pytest.approx(expected, abs=0.6)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_posterior_is_the_product_over_votes(num_classes, missing):
    votes, _ = votes_of_classes(num_classes, num_items=30, missing=missing)
    generator = np.random.default_rng(1)
    ability, ease = generator.normal(1, 1, 5), generator.normal(0, 0.5, 30)
    joint = np.full((30, num_classes), 1 / num_classes)
    for item, voter in np.argwhere(votes.matrix >= 0):
        right = 1 / (1 + np.exp(-ability[voter] * np.exp(ease[item])))
        for label in range(num_classes):
            joint[item, label] *= right if votes.matrix[item, voter] == label else (1 - right) / (num_classes - 1)
    voted = VotedRows.of(votes)
    expected = expect(voted, ability, ease)
    np.testing.assert_allclose(expected.label_probs, joint / joint.sum(axis=1, keepdims=True), rtol=1e-9)
    found = _log_likelihoods(voted, expected, ability, ease)
    np.testing.assert_allclose(found, np.log(joint.sum(axis=1)), rtol=1e-9)


def test_the_fit_is_a_maximum_in_the_abilities():
    votes, _ = independent_votes(400, np.linspace(0.6, 0.9, 6), np.linspace(0.6, 0.9, 6))
    fit = Glad(tolerance=1e-12).fit(votes, key=KEY)
    assert fit.diagnostics.converged
    voted, counts = VotedRows.of(votes), np.ones(400)

    def height(ability, ease):
        prior_of_abilities = -np.sum((ability - 1) ** 2) / 2
        return rows_log_posterior(voted, expect(voted, ability, ease), counts, ability, ease) + prior_of_abilities

    ability, ease = fit.params["ability"], fit.params["ease"]
    best = height(ability, ease)
    for voter in range(6):
        for move in (-0.01, 0.01):
            assert height(ability + move * (np.arange(6) == voter), ease) < best
    for item in range(5):
        for move in (-0.01, 0.01):
            assert height(ability, ease + move * (np.arange(400) == item)) < best


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_steps_follow_the_slope(missing):
    votes, _ = votes_of_classes(3, num_items=20, missing=missing)
    voted, counts = VotedRows.of(votes), np.arange(1, 21)
    generator = np.random.default_rng(2)
    ability, ease = generator.normal(0, 1, 5), generator.normal(0, 0.5, 20)

    def height(ability, ease, counts=counts):
        return rows_log_posterior(voted, expect(voted, ability, ease), counts, ability, ease)

    def slopes(function, point):
        return np.array([(function(point + h) - function(point - h)) / 2e-5 for h in 1e-5 * np.eye(len(point))])

    expected = expect(voted, ability, ease)
    doubt = expected.sure * (1 - expected.sure)
    gradient, information = glad._ability_information(voted, expected, counts, ability, ease)
    np.testing.assert_allclose(gradient, slopes(lambda a: height(a, ease), ability), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(information, voted.cells.sum_by_voter(doubt, counts * np.exp(2 * ease)))
    of_ease = glad._ease_step(voted, expected, ability, ease)
    information = voted.cells.sum_by_row(doubt, ability**2) * np.exp(2 * ease) + 1
    uphill = slopes(lambda e: height(ability, e, np.ones(20)), ease)
    np.testing.assert_allclose(of_ease, np.clip(uphill / information, -1, 1), rtol=1e-4, atol=1e-6)


def test_better_voters_are_abler_and_disputed_items_harder():
    votes, _ = independent_votes(2000, np.linspace(0.55, 0.95, 6), np.linspace(0.55, 0.95, 6))
    fit = Glad().fit(votes, key=KEY)
    assert np.all(np.diff(fit.params["ability"]) > 0)
    agreement = votes.tally.max(axis=1)
    assert fit.params["ease"][agreement == 6].mean() > fit.params["ease"][agreement == 3].mean()


def test_items_without_votes_keep_the_ease_of_the_prior():
    votes = Votes.from_matrix([[1, 1, 0], [-1, -1, -1], [0, 0, 0]], num_classes=2)
    fit = Glad().fit(votes, key=KEY)
    assert fit.params["ease"][1] == pytest.approx(1.0)
