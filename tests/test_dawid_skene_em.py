import numpy as np
import pandas as pd
import pytest

from latentens import log_likelihood
from latentens.datasets import load
from latentens.inference import independent as ascent
from latentens.inference.independent import Ascent, VotePrior, count_rows, expectation, maximisation
from latentens.methods import DawidSkeneEM
from latentens.methods.dawid_skene_em import random_estimates
from latentens.models import DawidSkene
from latentens.votes import Triplets, Votes
from latentens.votes.layout import vote_indicator
from tests.reference import KEY, independent_votes, largest_standard_score, load_or_skip, percent, votes_of_classes
from tests.test_spectral import SENSITIVITY, SPECIFICITY, TRUTH, all_params


@pytest.mark.parametrize(("name", "expected"), [("S1", 98.30), ("S3", 97.64), ("magic/1", 79.46), ("magic/2", 78.46)])
def test_published_accuracy(name, expected):
    assert percent(DawidSkeneEM(), name) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("family", "mean"), [("condInd", 94.80), ("Tree", 90.00), ("LG", 86.30), ("TG", 82.44)])
def test_accuracy_scatters_around_the_reference_mean(family, mean):
    assert percent(DawidSkeneEM(), f"{family}/1") == pytest.approx(mean, abs=0.4)


@pytest.mark.parametrize(("name", "expected"), [("bluebird", 0.898), ("rte", 0.928), ("dog", 0.84)])
def test_accuracy_on_crowds(name, expected):
    dataset = load_or_skip(name)
    known = dataset.labels >= 0
    labels = DawidSkeneEM(0.01, 0.01).fit(dataset.votes, key=KEY).codes
    assert np.mean(labels[known] == dataset.labels[known]) == pytest.approx(expected, abs=0.005)


def test_recovers_the_parameters_of_independent_voters():
    truth = np.concatenate([np.ravel(value) for value in TRUTH.values()])
    model = DawidSkene(num_voters=6)
    assert largest_standard_score(DawidSkeneEM(), model, TRUTH, all_params, truth) < 3


def by_loops(matrix, num_classes, pseudo_counts, rounds):
    """Expectation–maximisation from vote shares, one vote at a time."""
    num_items, num_voters = matrix.shape
    probs = np.zeros((num_items, num_classes))
    for item, voter in np.argwhere(matrix >= 0):
        probs[item, matrix[item, voter]] += 1
    probs /= probs.sum(axis=1, keepdims=True)
    for _ in range(rounds):
        shares, confusion = probs.sum(axis=0) + pseudo_counts.min(), np.tile(pseudo_counts, (num_voters, 1, 1))
        shares /= shares.sum()
        for item, voter in np.argwhere(matrix >= 0):
            confusion[voter, :, matrix[item, voter]] += probs[item]
        confusion /= confusion.sum(axis=2, keepdims=True)
        joint = np.tile(shares, (num_items, 1))
        for item, voter in np.argwhere(matrix >= 0):
            joint[item] *= confusion[voter, :, matrix[item, voter]]
        probs = joint / joint.sum(axis=1, keepdims=True)
    return probs, shares, confusion


@pytest.mark.parametrize(("diagonal", "off_diagonal"), [(0.01, 0.01), (3.0, 0.2)])
def test_equals_expectation_maximisation_by_loops(diagonal, off_diagonal):
    votes, _ = votes_of_classes(3, num_items=60, missing=0.1)
    matrix = votes.matrix
    fit = DawidSkeneEM(diagonal, off_diagonal, random_starts=0, max_iterations=5).fit(votes, key=KEY)
    pseudo_counts = off_diagonal + (diagonal - off_diagonal) * np.eye(3)
    probs, shares, confusion = by_loops(matrix, 3, pseudo_counts, 5)
    order = [int(np.argmin(np.abs(shares - share))) for share in fit.params["prevalence"]]
    np.testing.assert_allclose(fit.params["confusion"], confusion[:, order], atol=1e-10)
    np.testing.assert_allclose(fit.label_probs, probs[:, order], atol=1e-10)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_likelihood_never_falls(num_classes):
    votes, _ = votes_of_classes(num_classes, num_items=300)
    rows, counts, _ = votes.patterns
    data = count_rows(rows, counts)
    estimates = random_estimates(np.random.default_rng(0), 6, 5, num_classes, num_classes)
    heights = []
    for _ in range(60):
        expected = expectation(data, estimates)
        heights.append(expected.log_likelihood)
        estimates = maximisation(expected, VotePrior.of_counts(np.zeros((num_classes, num_classes))))
    assert np.all(np.diff(heights, axis=0) > -1e-8)
    assert np.all(heights[-1] > heights[0] + 1)


def test_reported_likelihood_is_that_of_the_model():
    votes, _ = independent_votes(500, SENSITIVITY, SPECIFICITY, missing=0.2)
    fit = DawidSkeneEM().fit(votes, key=KEY)
    assert fit.diagnostics.log_likelihood == pytest.approx(log_likelihood(DawidSkene(6), fit.params, votes))


def crowdkit_estimates(votes, rounds):
    """Labels and parameters of crowd-kit's Dawid–Skene after a fixed number of rounds."""
    crowdkit = pytest.importorskip("crowdkit.aggregation")
    item, voter, vote = votes.triplets
    table = pd.DataFrame({"task": item, "worker": voter, "label": vote})
    fitted = crowdkit.DawidSkene(n_iter=rounds, tol=-np.inf).fit(table)  # its own bound can fall: no early stop
    confusion = np.zeros((votes.num_voters, votes.num_classes, votes.num_classes))
    errors = fitted.errors_.reset_index()
    for label in range(votes.num_classes):
        confusion[errors["worker"], label, errors["label"]] = errors[label]
    shares = fitted.priors_.reindex(range(votes.num_classes)).to_numpy()
    return fitted.labels_.reindex(range(votes.num_items)).to_numpy(), shares, confusion


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bluebird", "rte", "dog", pytest.param("condInd/1", marks=pytest.mark.slow)])
def test_equals_crowdkit_run_to_convergence(name):
    votes = load_or_skip(name).votes
    labels, shares, confusion = crowdkit_estimates(votes, rounds=100)
    log_joint = np.log(np.maximum(shares, 1e-300)) + vote_indicator(votes, votes.num_classes) @ np.log(
        np.maximum(confusion, 1e-300)
    ).transpose(0, 2, 1).reshape(-1, votes.num_classes)
    theirs = np.logaddexp.reduce(log_joint, axis=1).sum()
    ours = DawidSkeneEM(0.0, 0.0, random_starts=0, tolerance=1e-12).fit(votes, key=KEY)
    assert ours.diagnostics.log_likelihood >= theirs - 1e-6 * abs(theirs)
    assert ours.diagnostics.log_likelihood == pytest.approx(theirs, rel=1e-6)
    assert np.mean(ours.codes == labels) == 1


def test_triplets_and_matrix_give_the_same():
    votes, _ = independent_votes(200, SENSITIVITY, SPECIFICITY, missing=0.5)
    sparse = Votes(Triplets(*votes.triplets), *votes.shape, 2)
    dense_fit, sparse_fit = (DawidSkeneEM().fit(v, key=KEY) for v in (votes, sparse))
    np.testing.assert_allclose(dense_fit.label_probs, sparse_fit.label_probs, atol=1e-6)


def test_what_is_maximised_is_likelihood_and_pseudo_counts_and_never_falls():
    votes, _ = votes_of_classes(3, num_items=80, missing=0.4)
    model, pseudo_counts = DawidSkene(votes.num_voters, 3), 0.1 + 1.9 * np.eye(3)
    heights = []
    for rounds in range(1, 12):
        fit = DawidSkeneEM(2.0, 0.1, random_starts=0, max_iterations=rounds).fit(votes, key=KEY)
        prior = np.sum(pseudo_counts * np.log(fit.params["confusion"])) + 0.1 * np.log(fit.params["prevalence"]).sum()
        heights.append(log_likelihood(model, fit.params, votes) + prior)
        assert fit.diagnostics["optima"][0]["objective"] == pytest.approx(heights[-1])
    assert np.all(np.diff(heights) > -1e-9)


@pytest.mark.parametrize("seed", [10, 20])
def test_no_class_is_ruled_out(seed):
    """Coin tosses can be explained by one class alone, with next to no probability of the other."""
    tosses = Votes.from_matrix(np.random.default_rng(seed).integers(0, 2, (300, 10)), num_classes=2)
    assert DawidSkeneEM().fit(tosses, key=KEY).label_probs.min() > 1e-9


def test_random_starts_never_lose():
    votes, _ = votes_of_classes(5, num_items=400, num_voters=4, right=0.5)
    few, many = (DawidSkeneEM(0.0, 0.0, random_starts=n).fit(votes, key=KEY).diagnostics for n in (0, 20))
    assert many.log_likelihood >= few.log_likelihood
    assert len(many["start_log_likelihoods"]) == 21


def test_a_better_optimum_than_that_of_vote_shares_is_reported():
    """Dawid & Skene's published optimum is the one that vote shares lead to, and it is local."""
    votes = load("anesthesia").votes
    alone, many = (DawidSkeneEM(0.0, 0.0, random_starts=n).fit(votes, key=KEY).diagnostics for n in (0, 100))
    assert alone.all_warnings[-1].startswith("the label is not identified")
    local, unstable, nearly_a_tie, open_label = many.all_warnings
    assert local == "the start from vote shares ends in a local optimum, -192.891, and another start reaches -191.569"
    assert "weakly identified" in unstable  # 45 patients cannot tell the optima apart
    assert "the order of the labels '3' and '4' is nearly tied" in nearly_a_tie
    assert "distinguish 3 from 4 (1 of 5)" in open_label  # of these two grades there are few patients
    assert sum(optimum["starts"] for optimum in many["optima"]) == 101
    assert many["optima"][0]["objective"] == pytest.approx(many["log_likelihood"])


def test_clear_votes_give_no_warning():
    votes, _ = independent_votes(500, SENSITIVITY, SPECIFICITY)
    assert DawidSkeneEM().fit(votes, key=KEY).diagnostics.all_warnings == []
    words = DawidSkeneEM(max_iterations=3).fit(votes, key=KEY).diagnostics.all_warnings
    assert words[0] == "not converged after 3 iterations"


def plain_rounds(data, expected, prior, rounds=3000):
    """Expectation–maximisation without any jump."""
    for _ in range(rounds):
        estimates = maximisation(expected, prior)
        expected = expectation(data, estimates)
    density = np.einsum("kv,ksjv->s", prior.votes[:, 0, 0], np.log(estimates.confusion))
    return expected.log_likelihood + density + prior.classes * np.log(estimates.shares).sum(axis=0)


@pytest.fixture(scope="module")
def slow_climb():
    """Starts on votes that leave the likelihood flat, where plain rounds are many."""
    votes, _ = votes_of_classes(4, num_items=400, num_voters=12, right=0.3, missing=0.6)
    rows, counts, _ = votes.patterns
    data = count_rows(rows, counts)
    drawn = random_estimates(np.random.default_rng(1), 6, votes.num_voters, 4, 4)
    return data, expectation(data, drawn), VotePrior.of_counts(np.full((4, 4), 0.01))


def test_jumps_end_where_plain_rounds_end(slow_climb):
    data, expected, prior = slow_climb
    found = Ascent(data, prior, 1e-10, 3000).climb(expected)
    np.testing.assert_allclose(found.objective, plain_rounds(*slow_climb), atol=1e-4)
    assert found.converged.all()
    assert found.iterations.max() < 700


def test_a_jump_that_lands_lower_is_undone(slow_climb, monkeypatch):
    data, expected, prior = slow_climb
    monkeypatch.setattr(ascent, "FIRST_JUMP", 1e6)
    heights = []
    record = ascent._record

    def watched(optimum, starts, at, rounds):
        heights.append(optimum.objective[starts] - at.objective)
        return record(optimum, starts, at, rounds)

    monkeypatch.setattr(ascent, "_record", watched)
    Ascent(data, prior, 1e-9, 500).climb(expected)
    assert max(falls.max() for falls in heights) < 1e-6


def test_starts_that_are_behind_are_given_up_but_never_the_first(slow_climb):
    data, expected, prior = slow_climb
    few, all_of_them = (Ascent(data, prior, 1e-9, 3000, work).climb(expected) for work in (0, 2**30))
    assert not all_of_them.given_up.any()
    assert few.given_up.sum() >= 3
    assert few.converged[0]
    assert few.converged[few.best]
    np.testing.assert_allclose(few.objective[few.converged], all_of_them.objective[few.converged], atol=1e-3)
