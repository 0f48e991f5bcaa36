import numpy as np
import pytest
from scipy import stats

from latentens import simulate
from latentens.datasets import simulate_paper
from latentens.methods import LatentSpectral
from latentens.methods import latent_spectral as tree_estimates
from latentens.methods.groups import group_residual, group_scores
from latentens.methods.latent_spectral import (
    TreeEstimates,
    estimate_tree,
    tree_log_likelihood,
    tree_log_likelihoods,
)
from latentens.methods.moments import Rates, vote_moments
from latentens.models import Tree
from latentens.programs.likelihood import bayes_posterior, log_likelihood
from latentens.scores.scores import balanced_accuracy
from latentens.votes.layout import vote_indicator
from tests.reference import KEY, independent_votes, largest_standard_score, load_or_skip, percent, two_class_tree

TREE = Tree((0, 0, 0, 1, 1, 1, 2, 2, 2))
PARAMS = two_class_tree(
    0.6,
    np.array([0.9, 0.85, 0.8]),
    np.array([0.8, 0.9, 0.85]),
    np.array([0.9, 0.8, 0.7, 0.85, 0.75, 0.8, 0.7, 0.9, 0.8]),
    np.array([0.7, 0.9, 0.8, 0.75, 0.8, 0.9, 0.85, 0.7, 0.8]),
)


@pytest.mark.parametrize(
    ("family", "mean", "deviation"), [("Tree", 95.83, 0.3), ("LG", 85.87, 0.42), ("TG", 79.5, 2.7)]
)
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_accuracy_scatters_around_the_published_mean(family, mean, deviation, number):
    """With the class imbalance from third moments, as published."""
    assert percent(LatentSpectral(imbalance="tensor"), f"{family}/{number}") == pytest.approx(mean, abs=deviation)


@pytest.mark.parametrize("select", ["residual", pytest.param("likelihood", marks=pytest.mark.slow)])
def test_accuracy_on_magic(select):
    assert percent(LatentSpectral(select=select, imbalance="tensor"), "magic/2") == pytest.approx(
        81.3 if select == "residual" else 80.3, abs=0.1
    )


def as_tree(fit):
    """Parameters in the order of TREE, whose groups may be numbered otherwise."""
    order = [fit.params["groups"][voter] for voter in (0, 3, 6)]
    parts = fit.params["prevalence"], fit.params["hidden_confusion"][order], fit.params["voter_confusion"]
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.slow
def test_recovers_the_parameters_of_a_tree():
    truth = np.concatenate([np.ravel(value) for value in PARAMS.values()])
    limit = stats.t.ppf(1 - 0.025 / len(truth), df=11)  # one false alarm in twenty, over all parameters
    assert largest_standard_score(LatentSpectral(), TREE, PARAMS, as_tree, truth, repetitions=12) < limit


@pytest.mark.parametrize("select", ["residual", "likelihood"])
def test_finds_the_groups_and_comes_close_to_bayes(select):
    dataset = simulate(TREE, 20_000, key=KEY, params=PARAMS)
    fit = LatentSpectral(select=select).fit(dataset.votes, key=KEY)
    found = fit.params["groups"]
    assert np.array_equal(found[:, None] == found, np.equal.outer(TREE.groups, TREE.groups))
    assert fit.diagnostics["tree_supported"]
    assert fit.diagnostics["structure"] == "supported"
    best = bayes_posterior(TREE, PARAMS, dataset.votes)
    ours, theirs = (balanced_accuracy(dataset.labels, p.argmax(axis=1)) for p in (fit.label_probs, best))
    assert ours > theirs - 0.02


def test_independent_voters_are_reported_as_no_tree():
    for votes in (
        independent_votes(5000, np.full(8, 0.75), np.full(8, 0.7))[0],
        independent_votes(10_000, *np.full((2, 15), 0.5) + 0.3 * (np.arange(15) < 5))[0],
    ):
        fit = LatentSpectral().fit(votes, key=KEY)
        assert np.isrealobj(fit.label_probs)
        assert np.isfinite(fit.label_probs).all()
        assert not fit.diagnostics["tree_supported"]
        assert "not supported" in fit.diagnostics["structure"]


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("select", ["residual", pytest.param("likelihood", marks=pytest.mark.slow)])
def test_the_known_failure_is_told_and_real(number, select):
    fit = LatentSpectral(select=select).fit(load_or_skip(f"condInd/{number}").votes, key=KEY)
    assert np.isrealobj(fit.label_probs)
    assert np.isfinite(fit.label_probs).all()
    assert "not supported" in fit.diagnostics["structure"]


@pytest.mark.parametrize("number", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3, 4))])
def test_groups_in_noise_are_not_kept(number):
    """On about half of such sets clustering finds groups that cost up to forty points of accuracy."""
    dataset = simulate_paper("condInd", number)
    fit = LatentSpectral().fit(dataset.votes, key=KEY)
    assert fit.diagnostics["num_groups"] == 15
    assert balanced_accuracy(dataset.labels, fit.codes) > 0.93


def test_imbalance_is_where_the_likelihood_is_highest(monkeypatch):
    votes = simulate(TREE, 5_000, key=KEY, params=PARAMS).votes
    moments, groups = vote_moments(votes), np.array(TREE.groups)
    found = estimate_tree(votes, moments, groups)
    assert found.imbalance == pytest.approx(0.2, abs=0.1)
    by_moments = estimate_tree(votes, moments, groups, imbalance="tensor")
    assert tree_log_likelihood(votes, found) > tree_log_likelihood(votes, by_moments)
    for step in (-0.01, 0.01):
        monkeypatch.setattr(tree_estimates, "highest", lambda height, start, step=step: found.imbalance + step)
        near = estimate_tree(votes, moments, groups)
        assert tree_log_likelihood(votes, found) > tree_log_likelihood(votes, near)


def likelihoods_by_loops(matrix, groups, hidden, voter):
    found = np.zeros((len(matrix), 2))
    for i, row in enumerate(matrix):
        for label in (0, 1):
            for group in range(groups.max() + 1):
                total = 0.0
                for state in (0, 1):
                    follows = hidden.sensitivity[group] if label else 1 - hidden.specificity[group]
                    term = follows if state else 1 - follows
                    for j in np.flatnonzero((groups == group) & (row >= 0)):
                        says_one = voter.sensitivity[j] if state else 1 - voter.specificity[j]
                        term *= says_one if row[j] else 1 - says_one
                    total += term
                found[i, label] += np.log(total)
    return found


@pytest.mark.parametrize("groups", [[0, 1, 1, 2, 3, 3, 3, 0], [0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 1, 1, 1, 1, 0]])
def test_likelihood_of_a_tree_equals_the_sum_by_loops(groups):
    groups, generator = np.array(groups), np.random.default_rng(0)
    votes, _ = independent_votes(40, np.full(8, 0.8), np.full(8, 0.7), missing=0.2)
    hidden, voter = (Rates(*generator.uniform(0.1, 0.9, (2, size))) for size in (groups.max() + 1, 8))
    expected = likelihoods_by_loops(votes.matrix, groups, hidden, voter)
    found = tree_log_likelihoods(vote_indicator(votes, 2), groups, hidden, voter)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    total = np.logaddexp(*(expected + np.log([0.3, 0.7])).T).sum()
    tree = TreeEstimates(groups, 0.4, hidden, voter, voter, 1.0, 0)
    assert tree_log_likelihood(votes, tree) == pytest.approx(total)


def test_the_published_grid_moves_the_share_of_a_rare_class_towards_one_half():
    votes = simulate(TREE, 5_000, key=KEY, params=PARAMS | {"prevalence": np.array([0.9, 0.1])}).votes
    exact, published = (
        LatentSpectral(imbalance=imbalance).fit(votes, key=KEY).params["prevalence"][1]
        for imbalance in ("likelihood", "published")
    )
    assert abs(exact - 0.1) < 0.03
    assert exact + 0.03 < published < 0.5


def scores_by_loops(covariance, references):
    num_voters = len(covariance)
    scores = np.zeros((num_voters, num_voters))
    for i in range(num_voters):
        for j in range(num_voters):
            for k in references:
                for m in references:
                    if i != j and k != m and not {k, m} & {i, j}:
                        scores[i, j] += abs(covariance[i, j] * covariance[k, m] - covariance[i, m] * covariance[k, j])
    return scores


def test_scores_equal_the_sum_by_loops():
    votes, _ = independent_votes(100, np.full(7, 0.8), np.full(7, 0.7))
    covariance = vote_moments(votes).covariance
    found = group_scores(covariance, np.random.default_rng(0))
    np.testing.assert_allclose(found, scores_by_loops(covariance, range(7)), atol=1e-12)


def test_many_voters_are_scored_against_some_of_them():
    votes, _ = independent_votes(100, np.full(7, 0.8), np.full(7, 0.7))
    covariance = vote_moments(votes).covariance
    references = np.random.default_rng(0).choice(7, 4, replace=False)
    found = group_scores(covariance, np.random.default_rng(0), most_terms=28**2)
    np.testing.assert_allclose(found, scores_by_loops(covariance, references), atol=1e-12)


def test_residual_of_exact_tree_covariances_is_zero():
    groups = np.repeat(np.arange(3), 3)
    across, inside = np.linspace(0.2, 0.6, 9), np.linspace(0.5, 0.8, 9)
    same = groups[:, None] == groups
    covariance = np.where(same, np.outer(inside, inside), np.outer(across, across)) + 0.2 * np.eye(9)
    assert group_residual(covariance, groups) < 1e-20
    assert group_residual(covariance, np.roll(groups, 1)) > 1e-3


@pytest.mark.slow
def test_likelihood_of_a_tree_is_that_of_the_model():
    votes = simulate(TREE, 300, key=KEY, params=PARAMS).votes
    hidden, voter = (Rates.of(PARAMS[f"{kind}_confusion"]) for kind in ("hidden", "voter"))
    tree = TreeEstimates(np.array(TREE.groups), 0.2, hidden, voter, voter, 1.0, 0)
    given_label = tree_log_likelihoods(vote_indicator(votes, 2), tree.groups, tree.hidden, tree.voter)
    joint = given_label + np.log([0.4, 0.6])
    posterior = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(posterior, bayes_posterior(TREE, PARAMS, votes), atol=1e-10)
    assert np.logaddexp.reduce(joint, axis=1).sum() == pytest.approx(log_likelihood(TREE, PARAMS, votes))
