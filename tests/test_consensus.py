"""Consensus: the mean of tempered posteriors, by hand."""

import numpy as np
import pytest

from latentens import load_fit
from latentens.methods import Consensus, DawidSkeneEM, Ebcc, MajorityVote, Tempered
from latentens.methods.tempered import temper, usual_shares
from latentens.votes import Votes
from tests.reference import KEY, votes_of_classes

MEMBERS = DawidSkeneEM(random_starts=1), MajorityVote()


@pytest.fixture(scope="module")
def fitted():
    votes, labels = votes_of_classes(3, num_items=200, missing=0.2)
    return votes, labels, Consensus(MEMBERS, folds=2).fit(votes, key=KEY)


def test_it_is_the_mean_of_what_its_members_say_at_their_temperatures(fitted):
    votes, _, fit = fitted
    base, parts = usual_shares(votes), []
    for member, temperature in zip(MEMBERS, fit.diagnostics["member_temperatures"], strict=True):
        tempered = Tempered(member, folds=2).fit(votes, key=KEY)
        assert tempered.diagnostics["temperature"] == temperature  # the same votes are hidden
        parts.append(tempered.label_probs)
    expected = temper(np.mean(parts, axis=0), float(fit.params["temperature"]), base)
    np.testing.assert_allclose(fit.label_probs, expected, atol=1e-12)


def test_new_votes_and_saved_fits_are_predicted_alike(fitted, tmp_path):
    votes, _, fit = fitted
    np.testing.assert_allclose(fit.predict(votes), fit.label_probs, atol=1e-9)
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_allclose(load_fit(tmp_path / "fit.nc").predict(votes.take(np.arange(9))), fit.label_probs[:9])


def test_labels_that_are_known_reach_the_members_and_choose_the_temperature(fitted):
    votes, labels, _ = fitted
    gold = np.where(np.arange(200) < 80, labels, -1)
    fit = Consensus(MEMBERS, folds=2).fit(votes, key=KEY, gold=gold)
    np.testing.assert_array_equal(fit.codes[:80], labels[:80])
    assert "temperature_by_votes" in fit.diagnostics


def test_its_members_differ_by_the_number_of_classes():
    two, three = (Consensus().chosen_members(number) for number in (2, 3))
    assert DawidSkeneEM(form="class") in three
    assert [type(member) for member in two] == [DawidSkeneEM, Ebcc, MajorityVote]


def test_a_fit_of_soft_votes_predicts_votes_of_either_kind(tmp_path):
    """Judges who are overconfident but informative: the members of the fit are those of soft votes, later too."""
    generator = np.random.default_rng(1)
    labels = generator.integers(2, size=200)
    log_odds = 3 * generator.normal(labels[:, None] - 0.5, 1.0, (200, 4))
    stated = 1 / (1 + np.exp(-log_odds))
    votes = Votes.from_soft(np.stack([1 - stated, stated], axis=2))
    fit = Consensus(folds=2).fit(votes, key=KEY)
    assert any("StatedConfidence" in member for member in fit.diagnostics["members"])
    assert np.mean(fit.codes == labels) > np.mean(votes.to_hard().matrix == labels[:, None]) + 0.05
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_allclose(load_fit(tmp_path / "fit.nc").predict(votes), fit.label_probs, atol=1e-9)
    assert fit.predict(votes.to_hard()).shape == (200, 2)
