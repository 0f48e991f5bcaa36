"""Is the label identified? Known answers, and what fits say of themselves."""

from itertools import combinations

import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.inference.identification import identification_warnings
from latentens.methods import Cubam, DawidSkeneEM, Glad, MajorityVote, MaximumLikelihood, SpectralMetaLearner, TreeMLE
from latentens.models import DawidSkene, TopDown, Tree
from latentens.votes.agreement import second_factor
from tests.reference import KEY, independent_votes

GOOD = np.array([[0.9, 0.1], [0.2, 0.8]])
CONSTANT = np.array([[1.0, 0.0], [1.0, 0.0]])
EVEN = np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("views", "identified"),
    [
        ([GOOD] * 3, True),
        ([GOOD] * 2, False),
        ([GOOD, GOOD, CONSTANT], False),
        ([GOOD, GOOD, CONSTANT, GOOD], True),
        ([GOOD, GOOD, np.array([[0.5, 0.5], [0.49, 0.51]])], False),  # within the noise of 1,000 items
    ],
)
def test_three_informative_views_identify_two_classes(views, identified):
    assert (identification_warnings(views, EVEN, 1000, ("no", "yes")) == []) == identified


def test_small_differences_count_once_items_are_many():
    views = [GOOD, GOOD, np.array([[0.5, 0.5], [0.49, 0.51]])]
    assert identification_warnings(views, EVEN, 10**6, ("no", "yes")) == []


def test_the_classes_that_are_not_told_apart_are_named():
    """Everybody tells c from a and b, and only one voter tells a from b."""
    blind, sees = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.1, 0.9]]), np.eye(3) * 0.7 + 0.1
    (words,) = identification_warnings([blind, blind, blind, sees], np.full(3, 1 / 3), 500, ("a", "b", "c"))
    assert "distinguish a from b (1 of 4)," in words
    assert "c (" not in words


def test_classes_of_hardly_any_items_are_passed_over():
    assert identification_warnings([GOOD] * 2, np.array([0.99, 0.01]), 1000, ("no", "yes")) == []


@pytest.mark.parametrize(
    "model", [DawidSkene(4), DawidSkene(4, 3), Tree((0, 0, 1, 1)), Tree((0, 0, 1, 1), 3), TopDown(5)]
)
def test_views_are_what_simulations_show(model):
    """Of voters their votes, of groups those of a random member, and hidden units are distributions at least."""
    params = simulate(model, 1, key=jax.random.key(1)).params
    views = model.label_views(params)
    for view in views:
        np.testing.assert_allclose(view.sum(axis=1), 1, atol=1e-9)
    if isinstance(model, TopDown):
        assert len(views) == model.num_hidden
        return
    drawn = simulate(model, 40_000, key=jax.random.key(2), params=params)
    groups = np.array(model.groups) if isinstance(model, Tree) else np.arange(4)
    for group, view in enumerate(views):
        for label in range(len(view)):
            mine = drawn.votes.matrix[drawn.labels == label][:, groups == group]
            seen = [np.bincount(column, minlength=len(view)) / len(mine) / mine.shape[1] for column in mine.T]
            np.testing.assert_allclose(np.concatenate(seen), view[label], atol=0.03)


def test_two_voters_do_not_identify_a_label():
    votes, _ = independent_votes(500, np.full(2, 0.9), np.full(2, 0.9))
    fit = DawidSkeneEM().fit(votes, key=KEY)
    assert not fit.diagnostics.identified
    assert any("the label is not identified" in words for words in fit.diagnostics.all_warnings)
    votes, _ = independent_votes(500, np.full(4, 0.9), np.full(4, 0.9))
    assert DawidSkeneEM().fit(votes, key=KEY).diagnostics.identified


def two_groups_and_a_constant(num_items=600):
    """Two groups of three voters who nearly copy each other, and one who always says the same."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, num_items)
    columns = []
    for right in (0.85, 0.8):
        opinion = np.where(generator.random(num_items) < right, labels, 1 - labels)
        columns += [np.where(generator.random(num_items) < 0.95, opinion, 1 - opinion) for _ in range(3)]
    return Votes.from_matrix(np.column_stack([*columns, np.zeros(num_items, dtype=int)]), 2)


def test_a_tree_of_two_groups_and_a_constant_voter_is_not_identified():
    votes = two_groups_and_a_constant()
    fit = MaximumLikelihood(Tree((0, 0, 0, 1, 1, 1, 2)), starts=3).fit(votes, key=KEY)
    assert not fit.diagnostics.identified
    assert "(2 of 3)" in " ".join(fit.diagnostics.all_warnings)
    assert fit.diagnostics.label_change > 0.02  # starts of the same likelihood have other labels


def test_the_tree_method_does_not_take_a_tree_without_a_label():
    fit = TreeMLE().fit(two_groups_and_a_constant(), key=KEY)
    assert "groups" not in fit.params
    assert fit.diagnostics.notes[0].startswith("groups explain the votes better, but too few of them")


def camps(link, num_items=3000, seed=0):
    """Three camps of five voters whose opinions are right with the same probability; link is their correlation."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, num_items)
    right = (1 + np.sqrt(link)) / 2
    opinions = [np.where(generator.random(num_items) < right, labels, 1 - labels) for _ in range(3)]
    columns = [np.where(generator.random(num_items) < 0.9, opinion, 1 - opinion) for opinion in opinions * 5]
    return Votes.from_matrix(np.stack(columns, axis=1), 2)


@pytest.mark.parametrize("link", [0.1, 0.3, 0.6, 0.9])
def test_the_second_factor_of_three_camps(link):
    """Against covariances in exact proportion, the diagonal completed by loops over triples of voters."""
    camp = np.arange(15) % 3
    matrix = np.where(np.equal.outer(camp, camp), 1.0, link)
    for i in range(15):
        pairs = [(j, k) for j, k in combinations(range(15), 2) if i not in (j, k)]
        triples = sum(matrix[i, j] * matrix[i, k] * matrix[j, k] for j, k in pairs)
        matrix[i, i] = triples / sum(matrix[j, k] ** 2 for j, k in pairs)
    values = np.linalg.eigvalsh(matrix)
    assert second_factor(camps(link, num_items=20_000)) == pytest.approx(
        (values[-2] + values[0]) / values[-1], abs=0.03
    )


def test_independent_voters_have_no_second_factor():
    for seed in range(5):
        votes, _ = independent_votes(400, np.linspace(0.6, 0.9, 8), np.linspace(0.9, 0.6, 8), seed=seed)
        assert second_factor(votes) < 0.1


@pytest.mark.parametrize("method", [MajorityVote(), SpectralMetaLearner(), DawidSkeneEM(), Glad(), Cubam()])
def test_every_method_warns_of_camps(method):
    apart, together = (method.fit(camps(link), key=KEY).diagnostics.all_warnings for link in (0.1, 0.6))
    assert any("voters split into opposing groups" in words for words in apart)
    assert not any("voters split into opposing groups" in words for words in together)
