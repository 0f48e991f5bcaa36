import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, TreeMLE
from latentens.methods.groups import _losses, best_groups, refined
from latentens.methods.tree_mle import find_tree
from latentens.models import Tree
from latentens.votes.agreement import PairMoments, agreement_moments
from tests.reference import KEY, votes_of_classes

GROUPS = (0, 1, 0, 0, 2, 1, 0, 2, 0, 1, 0, 2)


@pytest.fixture(scope="module")
def grouped():
    """Three groups, one as large as the others together, whose opinions are weaker than a vote."""
    model, rng = Tree(GROUPS, num_classes=3), np.random.default_rng(2)

    def confusion(size, low, high):
        right = rng.uniform(low, high, (size, 3, 1))
        return np.where(np.eye(3, dtype=bool), right, (1 - right) / 2)

    params = {"prevalence": np.array([0.3, 0.3, 0.4])}
    params |= {"hidden_confusion": confusion(3, 0.7, 0.8), "voter_confusion": confusion(12, 0.6, 0.9)}
    return simulate(model, 4000, key=KEY, params=params)


def same_partition(groups, others):
    return len(set(zip(groups, others, strict=True))) == len(set(groups)) == len(set(others))


def test_agreement_is_compared_pair_by_pair():
    rows = np.random.default_rng(0).integers(-1, 3, (60, 4))
    rows[:, 3] = -1
    rows[0, 3] = 1
    found, together = agreement_moments(Votes.from_matrix(rows, num_classes=3))
    for first, second in np.ndindex(4, 4):
        both = (rows[:, first] >= 0) & (rows[:, second] >= 0)
        expected = 0.0
        for vote in range(3) if both.any() else ():
            one, other = rows[both, first] == vote, rows[both, second] == vote
            expected += np.mean(one & other) - np.mean(one) * np.mean(other)
        assert found[first, second] == pytest.approx(expected, abs=1e-12)
        assert together[first, second] == pytest.approx(both.sum())


def tree_moments(groups, generator):
    """Exact moments of a tree: correlations u_i u_j inside groups, u_i u_j c_g c_h across them."""
    groups = np.array(groups)
    loads, links = generator.uniform(0.4, 0.9, len(groups)), generator.uniform(0.5, 0.8, groups.max() + 1)[groups]
    correlation = np.outer(loads, loads) * np.where(groups[:, None] == groups, 1.0, np.outer(links, links))
    spread = generator.uniform(0.5, 2.0, len(groups))
    return PairMoments((correlation + np.diag(1 - loads**2)) * np.outer(spread, spread), np.full_like(correlation, 500))


@pytest.mark.parametrize("seed", range(4))
def test_misplaced_voters_find_their_group(seed):
    generator = np.random.default_rng(seed)
    moments, groups = tree_moments(GROUPS, generator), np.array(GROUPS)
    begin = groups.copy()
    begin[generator.choice(12, 3, replace=False)] = generator.integers(3, size=3)
    found = refined(moments, begin)
    assert same_partition(found.groups, GROUPS)
    assert found.loss < 0.1
    more = np.where(np.arange(12) == 10, 3, groups)  # one more group is not worth its price
    assert same_partition(best_groups(moments, [more, begin], 500), GROUPS)


def test_losses_are_those_of_least_squares():
    generator, groups = np.random.default_rng(5), np.array(GROUPS)
    noise = generator.normal(0, 0.05, (12, 12))
    correlation = noise + noise.T
    weights = generator.integers(1, 9, (12, 12)).astype(float) * (1 - np.eye(12))
    loads, links = generator.uniform(0.4, 0.9, 12), generator.uniform(0.5, 0.8, 3)
    losses = _losses(correlation, weights, groups, loads, links)
    for voter, group in np.ndindex(12, 3):
        moved = np.where(np.arange(12) == voter, group, groups)
        related = np.where(moved == group, 1.0, links[group] * links[moved]) * loads
        root = np.sqrt(weights[voter])
        slope, *_ = np.linalg.lstsq((root * related)[:, None], root * correlation[voter], rcond=None)
        assert losses[voter, group] == pytest.approx(((root * (correlation[voter] - slope * related)) ** 2).sum())


def test_groups_are_found_where_dawid_skene_copies_the_largest(grouped):
    """… and numbered by their first voters, whatever numbers the clustering gave them."""
    assert all(find_tree(grouped.votes, key=jax.random.key(seed)).groups == GROUPS for seed in range(4))


@pytest.mark.slow
def test_tree_of_found_groups_is_near_exact_bayes(grouped):
    fit = TreeMLE(starts=0).fit(grouped.votes, key=KEY)
    independent = DawidSkeneEM().fit(grouped.votes, key=KEY)
    exact, found, plain = (
        np.mean(labels == grouped.labels)
        for labels in (grouped.bayes_posterior().argmax(axis=1), fit.codes, independent.codes)
    )
    assert exact - found < 0.01
    assert exact - plain > 0.02
    assert same_partition(fit.params["groups"], GROUPS)
    np.testing.assert_allclose(fit.predict(grouped.votes), fit.label_probs, atol=1e-12)


@pytest.mark.slow
def test_independent_voters_are_left_alone():
    votes, _ = votes_of_classes(3, 1000, num_voters=6)
    fit = TreeMLE(starts=0).fit(votes, key=KEY)
    assert "groups" not in fit.params
    assert fit.diagnostics["bic_by_model"]["independent"] < fit.diagnostics["bic_by_model"]["tree"]


def test_too_few_voters_have_no_groups():
    votes, _ = votes_of_classes(3, 50, num_voters=3)
    with pytest.raises(VotesError, match="at least four voters, but there are 3"):
        find_tree(votes, key=KEY)
    assert "groups" not in TreeMLE(starts=0).fit(votes, key=jax.random.key(1)).params
    unanimous = Votes.from_matrix(np.ones((20, 5), dtype=int), num_classes=3)
    with pytest.raises(VotesError, match="no groups"):
        find_tree(unanimous, key=KEY)
