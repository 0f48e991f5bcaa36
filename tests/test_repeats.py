"""Voters who voted on an item more than once: each of their votes counts, everywhere."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from analyses.layers import decorrelation
from latentens import Votes, check_independence, log_likelihood, simulate_like
from latentens.errors import VotesError
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    LatentSpectral,
    MajorityVote,
    MaximumLikelihood,
    RestrictedLikelihood,
    SpectralMetaLearner,
    TopDownMLE,
)
from latentens.models import DawidSkene, Tree
from latentens.votes.matching import align
from tests.conftest import arbitrary_params
from tests.reference import KEY, entries_of, random_counts, votes_from

COUNTS = arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 4), st.just(3)), elements=st.integers(0, 2))
"""Counts (item, voter, vote)."""


TREE = Tree((0, 0, 1))
TREE_PARAMS = arbitrary_params(TREE, seed=5)


def counts_in(votes):
    counts = np.zeros((*votes.shape, votes.num_classes), dtype=np.int64)
    np.add.at(counts, tuple(votes.triplets), 1)
    return counts


@given(counts=COUNTS)
def test_votes_are_counted(counts):
    votes = votes_from(counts)
    cast = counts.sum(axis=2)
    assert_holds(votes, counts)
    np.testing.assert_array_equal(votes.tally, counts.sum(axis=1))
    assert votes.num_missing == (cast == 0).sum()
    assert votes.has_repeats == (cast > 1).any() == ("repeated votes" in repr(votes))
    chosen = np.arange(len(counts))[::-2]
    np.testing.assert_array_equal(counts_in(votes.take(chosen)), counts[chosen])
    np.testing.assert_array_equal(counts_in(votes.between(len(counts) // 2, len(counts))), counts[len(counts) // 2 :])
    np.testing.assert_array_equal(sorted(map(tuple, entries_of(counts))), votes.to_long().to_numpy().tolist())


def assert_holds(votes, counts):
    """The votes are these, their entries are in order, and their distinct rows are right."""
    np.testing.assert_array_equal(counts_in(votes), counts)
    entries = np.stack(votes.triplets, axis=1).tolist()
    assert entries == sorted(entries)
    patterns = votes.patterns
    np.testing.assert_array_equal(counts_in(patterns.votes)[patterns.inverse], counts)
    assert patterns.votes.num_items == len(np.unique(counts.reshape(len(counts), -1), axis=0))
    np.testing.assert_array_equal(np.bincount(patterns.inverse), patterns.counts)


@settings(deadline=None, max_examples=40)
@given(counts=COUNTS.filter(lambda counts: counts.any()), data=st.data())
def test_tables_in_any_order_are_kept_as_they_are(tmp_path_factory, counts, data):
    entries = data.draw(st.permutations(entries_of(counts).tolist()))
    frame = pd.DataFrame(entries, columns=["item", "voter", "vote"])
    present = [np.unique(frame["item"]), np.unique(frame["voter"])]
    folder = tmp_path_factory.mktemp("tables")
    frame.to_csv(folder / "votes.csv", index=False)
    frame.to_parquet(folder / "votes.parquet")
    options = {"item": "item", "voter": "voter", "vote": "vote", "classes": (0, 1, 2), "duplicates": "keep"}
    for made in (
        Votes.from_long(frame, **options),
        Votes.from_csv(folder / "votes.csv", **options),
        Votes.from_parquet(folder / "votes.parquet", **options),
    ):
        assert_holds(made, counts[np.ix_(*present)])
        assert made.is_sparse == made.has_repeats


def test_an_empty_vote_is_no_vote():
    table = {"item": [1, 1, 1], "voter": ["a", "a", "b"], "vote": ["x", None, "y"]}
    assert Votes.from_long(table, duplicates="keep").matrix.tolist() == [[0, 1]]


@given(counts=COUNTS, data=st.data())
def test_votes_are_matched_by_name(counts, data):
    votes = dataclasses.replace(votes_from(counts), voter_names=tuple("abcd"[: counts.shape[1]]), class_names="xyz")
    voters = data.draw(st.permutations(range(counts.shape[1])))
    classes = data.draw(st.permutations(range(3)))
    names = [votes.voter_names[voter] for voter in voters], [votes.class_names[k] for k in classes]
    assert_holds(align(votes, *names), counts[:, voters][:, :, classes])


def test_repeated_votes_are_no_matrix_and_no_wide_table():
    votes = votes_from(random_counts(5, 3, 2))
    for refused in (lambda: votes.matrix, votes.to_frame):
        with pytest.raises(VotesError, match=r"takes one vote per voter and item.*duplicates='last'"):
            refused()
    with pytest.raises(VotesError, match=r"by duplicates='last', or count them all by duplicates='keep'"):
        Votes.from_long(votes.to_long())


@pytest.mark.parametrize(
    ("rows", "counts", "message"),
    [
        ([[0, 1]], [1, 2], "1 patterns need as many counts"),
        ([[0, 1]], [-1], "not negative"),
        ([[0, 1]], [1.5], "whole numbers"),
        ([[0, 1]], [0], "no votes: 0 items"),
    ],
)
def test_counts_of_patterns_must_fit(rows, counts, message):
    with pytest.raises(VotesError, match=message):
        Votes.from_patterns(rows, counts)


def test_votes_from_patterns():
    table = pd.DataFrame({"ann": ["yes", "no", "no"], "bob": ["yes", "yes", None]})
    votes = Votes.from_patterns(table, [2, 0, 3])
    np.testing.assert_array_equal(votes.matrix, [[1, 1]] * 2 + [[0, -1]] * 3)
    assert (votes.voter_names, votes.class_names) == (("ann", "bob"), ("no", "yes"))
    assert list(votes.item_names) == [0, 1, 2, 3, 4]


REFUSED = {
    "SpectralMetaLearner": SpectralMetaLearner(),
    "RestrictedLikelihood": RestrictedLikelihood(),
    "LatentSpectral": LatentSpectral(),
    "TopDownMLE": TopDownMLE(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_need_single_votes_say_so(name):
    with pytest.raises(VotesError, match=f"{name} takes one vote per voter and item.*'last'"):
        REFUSED[name].fit(votes_from(random_counts(30, 4, 2)), key=KEY)


def test_checks_that_need_single_votes_say_so():
    votes = votes_from(random_counts(30, 4, 2))
    with pytest.raises(VotesError, match="a check of pairs of voters takes one vote"):
        check_independence(votes, key=KEY)
    with pytest.raises(VotesError, match="a correlation between voters takes one vote"):
        decorrelation(MajorityVote().fit(votes, key=KEY), votes, key=KEY)


COUNTING = {
    "vote": MajorityVote(),
    "EM": DawidSkeneEM(),
    "iterative maximum likelihood": IterativeMaximumLikelihood(start=MajorityVote()),
    "CUBAM": Cubam(rounds=5),
    "GLAD": Glad(),
    "EBCC": Ebcc(restarts=2),
}


@pytest.mark.parametrize("name", COUNTING)
def test_a_repeated_vote_says_what_another_voter_of_the_same_kind_would(name):
    """Three votes of a voter are predicted like one vote each of three voters with the same parameters."""
    counts = random_counts(40, 4, 2)
    fit = COUNTING[name].fit(votes_from(counts), key=KEY)
    np.testing.assert_allclose(fit.predict(votes_from(counts)), fit.label_probs, atol=1e-9)
    by_voter = np.repeat(np.arange(4), 3)
    copies = {
        group: {
            key: value[by_voter] if np.shape(value)[:1] == (4,) else value for key, value in getattr(fit, group).items()
        }
        for group in ("params", "state")
    }
    of_copies = dataclasses.replace(fit, **copies, voter_names=range(12))
    np.testing.assert_allclose(fit.label_probs, of_copies.predict(single_votes(counts, 3)), atol=1e-6)


def test_abilities_maximise_the_posterior_of_all_votes():
    counts = random_counts(25, 4, 3)
    entries = entries_of(counts)
    fit = Glad(tolerance=1e-13, max_iterations=3000).fit(votes_from(counts), key=KEY)

    def log_posterior(ability, ease):
        joint = np.full((25, 3), 1 / 3)
        for item, voter, vote in entries:
            right = expit(ability[voter] * np.exp(ease[item]))
            joint[item] *= np.where(np.arange(3) == vote, right, (1 - right) / 2)
        return np.log(joint.sum(axis=1)).sum() - ((ability - 1) ** 2).sum() / 2 - ((ease - 1) ** 2).sum() / 2

    ability, ease = fit.params["ability"], fit.params["ease"]
    best = log_posterior(ability, ease)
    assert best == pytest.approx(fit.diagnostics["log_posterior"], abs=1e-6)
    for voter in range(4):
        for step in (-0.01, 0.01):
            assert log_posterior(ability + step * (np.arange(4) == voter), ease) < best


def test_variational_counts_are_those_of_all_votes():
    counts = random_counts(25, 4, 3)
    fit = Ebcc(num_subtypes=2, restarts=1).fit(votes_from(counts), key=KEY)
    by_class = fit.state["votes_concentration"].sum(axis=(2, 3))
    prior = (4.0 + 2 * 1.0) * 2  # four for the right class and one for each other, two subtypes
    np.testing.assert_allclose(by_class - prior, counts.sum(axis=0))


def single_votes(counts, times):
    """As many voters for each voter as it has votes on an item at most, who vote once at most."""
    single = np.full((len(counts), counts.shape[1], times), -1)
    for item, voter in np.ndindex(counts.shape[:2]):
        cast = np.repeat(np.arange(counts.shape[2]), counts[item, voter])
        single[item, voter, : len(cast)] = cast
    return Votes.from_matrix(single.reshape(len(counts), -1), num_classes=counts.shape[2])


def test_maximum_likelihood_counts_every_vote():
    model, pattern = DawidSkene(3, num_classes=4), votes_from(random_counts(150, 3, 4))
    votes = simulate_like(model, pattern, key=KEY, params=sharp_params(model)).votes
    ends = [
        method.fit(votes, key=KEY)
        for method in (
            DawidSkeneEM(0.0, 0.0, tolerance=1e-12),
            MaximumLikelihood(model, starts=0, warm=(), initial=(sharp_params(model),)),
        )
    ]
    heights = [fit.diagnostics.log_likelihood for fit in ends]
    np.testing.assert_allclose(heights, heights[0], atol=1e-3)
    for fit in ends:
        confusion, joint = fit.params["confusion"], np.tile(fit.params["prevalence"], (150, 1))
        for item, voter, vote in zip(*votes.triplets, strict=True):
            joint[item] *= confusion[voter, :, vote]
        assert fit.diagnostics.log_likelihood == pytest.approx(np.log(joint.sum(axis=1)).sum(), abs=1e-6)
        np.testing.assert_allclose(fit.label_probs, joint / joint.sum(axis=1, keepdims=True), atol=1e-6)


def sharp_params(model):
    classes = model.num_classes
    confusion = np.full((model.num_voters, classes, classes), 0.3 / (classes - 1))
    confusion[:, np.arange(classes), np.arange(classes)] = 0.7
    return {"prevalence": np.full(classes, 1 / classes), "confusion": confusion}


@pytest.mark.parametrize("sparse", [False, True])
def test_the_pattern_of_missing_and_repeated_votes_is_kept(sparse):
    counts = random_counts(40, 3, 2)
    counts[7] = 0
    if not sparse:
        counts = np.minimum(counts, [1, 0])
    pattern = votes_from(counts) if sparse else Votes.from_matrix(np.where(counts.any(axis=2), 0, -1), num_classes=2)
    named = dataclasses.replace(pattern, item_names=tuple(f"i{i}" for i in range(40)), voter_names=tuple("abc"))
    drawn = simulate_like(TREE, named, key=KEY, params=TREE_PARAMS, items_per_key=16).votes
    np.testing.assert_array_equal(counts_in(drawn).sum(axis=2), counts.sum(axis=2))
    assert (drawn.item_names, drawn.voter_names) == (named.item_names, named.voter_names)
    assert drawn.is_sparse == sparse
    assert_holds(drawn, counts_in(drawn))


def test_simulated_repeats_occur_as_often_as_the_likelihood_says():
    """Votes of a voter share the item's label and hidden units and are independent given them."""
    number = 100_000
    pattern = votes_from(np.tile([[3, 0], [1, 0], [0, 2]], (number, 1, 1)))
    found = simulate_like(TREE, pattern, key=KEY, params=TREE_PARAMS).votes.patterns
    assert len(found.counts) == 4 * 2 * 3
    counts = counts_in(found.votes)
    # in how many orders the first voter can cast three votes and the last one two
    orders = np.array([[1, 3, 3, 1][first] * [1, 2, 1][last] for first, last in counts[:, [0, 2], 1]])
    each = [log_likelihood(TREE, TREE_PARAMS, found.votes.take(np.array([row]))) for row in range(len(counts))]
    expected = number * orders * np.exp(each)
    assert expected.sum() == pytest.approx(number)
    assert np.abs((found.counts - expected) / np.sqrt(expected)).max() < 4


def test_a_pattern_must_have_the_classes_of_the_model():
    with pytest.raises(VotesError, match="the pattern has 2 classes, but votes of .* have 3"):
        simulate_like(DawidSkene(4, 3), votes_from(random_counts(5, 4, 2)), key=KEY)
    with pytest.raises(VotesError, match="the votes have 4 voters"):
        simulate_like(DawidSkene(5), votes_from(random_counts(5, 4, 2)), key=jax.random.key(0))
