import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, TreeMLE
from latentens.methods.tree_mle import agreement_covariance, find_tree
from latentens.models import Tree
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
    found = agreement_covariance(Votes.from_matrix(rows, num_classes=3))
    for first, second in np.ndindex(4, 4):
        both = (rows[:, first] >= 0) & (rows[:, second] >= 0)
        expected = 0.0
        for vote in range(3) if both.any() else ():
            one, other = rows[both, first] == vote, rows[both, second] == vote
            expected += np.mean(one & other) - np.mean(one) * np.mean(other)
        assert found[first, second] == pytest.approx(expected, abs=1e-12)


def test_groups_are_found_where_dawid_skene_copies_the_largest(grouped):
    """… and numbered by their first voters, whatever numbers the clustering gave them."""
    assert all(find_tree(grouped.votes, key=jax.random.key(seed)).groups == GROUPS for seed in range(4))


@pytest.mark.slow
def test_tree_of_found_groups_is_near_exact_bayes(grouped):
    fit = TreeMLE(starts=0).fit(grouped.votes, key=KEY)
    independent = DawidSkeneEM().fit(grouped.votes, key=KEY)
    exact, found, plain = (
        np.mean(labels == grouped.labels)
        for labels in (grouped.bayes_posterior().argmax(axis=1), fit.labels, independent.labels)
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
