"""What is done for large data: blocks, groups and samples, made small enough to be met or met at their own size."""

from functools import partial

import jax
import numpy as np
import pytest

from latentens.errors import LimitError
from latentens.inference.independent import count_rows, expectation
from latentens.methods import SpectralMetaLearner, dawid_skene_em, moments
from latentens.methods import moments as imbalance
from latentens.methods import rank_one as spectral
from latentens.methods.moments import (
    complete_blocks,
    complete_sparse_diagonal,
    leading_sparse_vector,
    leading_vector,
    scale_of,
    sparse_scale_of,
    vote_moments,
)
from latentens.models import DawidSkene, Tree
from latentens.programs import likelihood as likelihoods
from latentens.programs.likelihood import encode, sum_votes
from latentens.programs.tables import Tables
from latentens.runtime.blocks import count_row_blocks, few_lengths, row_blocks
from latentens.runtime.limits import MEMORY_VARIABLE, TIME_VARIABLE, memory_limit, time_limit
from latentens.runtime.numerics import double_precision
from latentens.votes import Triplets, Votes, distinct
from latentens.votes.layout import incidence_of, vote_indicator
from tests.reference import KEY, as_triplets, independent_votes, votes_of_classes

RATES = np.linspace(0.6, 0.9, 7), np.linspace(0.85, 0.65, 7)


def test_blocks_are_as_large_as_they_may_be_and_cover_all_rows():
    blocks = row_blocks(50, 3, 20)
    assert [block.stop - block.start for block in blocks] == [6] * 8 + [2]
    np.testing.assert_array_equal(np.concatenate([np.arange(50)[block] for block in blocks]), np.arange(50))
    assert row_blocks(3, 1000, 20) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert row_blocks(0, 1) == []


def test_rows_are_filled_up_to_few_lengths():
    lengths = {number: few_lengths(number, 1000) for number in range(1, 5000)}
    assert all(number <= length <= number * 9 / 8 for number, length in lengths.items())
    assert len(set(lengths.values())) < 100
    assert {few_lengths(number, 10) for number in range(1, 257)} == {256}
    assert {few_lengths(number, 1000, possible=32) for number in range(1, 33)} == {32}


@pytest.mark.parametrize("storage", [lambda made: made, as_triplets], ids=["matrix", "triplets"])
def test_rows_are_deduplicated(storage):
    matrix = np.random.default_rng(0).integers(-1, 2, (500, 4))
    rows, counts, inverse = storage(Votes.from_matrix(matrix, 2)).patterns
    np.testing.assert_array_equal(rows.matrix[inverse], matrix)
    assert counts.sum() == 500
    assert len(counts) == len(np.unique(matrix, axis=0))


@pytest.mark.parametrize("table_size", [0, 2**22])
@pytest.mark.parametrize("word", [2**5, 2**53])
def test_distinct_rows_by_table_by_sorting_and_in_several_words(table_size, word):
    matrix = np.random.default_rng(0).integers(-1, 2, (400, 7)).astype(np.int8)
    found = distinct.distinct_matrix_rows(matrix, word=word, table_size=table_size)
    expected, counts = np.unique(matrix, axis=0, return_counts=True)
    np.testing.assert_array_equal(matrix[found.representative], expected)
    np.testing.assert_array_equal(matrix[found.representative][found.inverse], matrix)
    np.testing.assert_array_equal(found.counts, counts)


def test_digits_are_packed_by_blocks():
    codes = np.random.default_rng(0).integers(-1, 2, (50, 4)).astype(np.int8)
    expected = (codes + 1) @ [27, 9, 3, 1]
    np.testing.assert_array_equal(distinct.pack_digits(codes, 3, -1, block_elements=9 * 4), expected)


def test_tally_triplets_and_parts_by_blocks():
    matrix = np.random.default_rng(0).integers(-1, 3, (100_000, 6))
    dense = Votes.from_matrix(matrix, 3)
    for made in (dense, as_triplets(dense)):
        assert len(list(made.blocks())) > 1
        np.testing.assert_array_equal(made.tally, np.stack([(matrix == k).sum(axis=1) for k in range(3)], axis=1))
        np.testing.assert_array_equal(made.triplets.vote, matrix[matrix >= 0])
        np.testing.assert_array_equal(made.between(3, 40).between(2, 9).matrix, matrix[5:12])
        np.testing.assert_array_equal(made.between(3, 40).take(np.array([4, 1])).item_names, [7, 4])
        np.testing.assert_array_equal(np.diff(made.bounds), (matrix >= 0).sum(axis=1))
        assert isinstance(made.between(3, 40).item_names, range)
    assert dense.triplets.item.dtype == np.int32


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("storage", [lambda made: made, as_triplets])
def test_incidence_multiplies_like_an_indicator(storage, num_classes, missing):
    made, _ = votes_of_classes(num_classes, num_items=300, missing=missing)
    made = storage(made)
    rows, indicator = incidence_of(made, joint_votes=30, block_elements=100), vote_indicator(made, num_classes)
    rng = np.random.default_rng(0)
    table, weights = rng.normal(size=(indicator.shape[1], 2)), rng.random((300, 2))
    assert len(rows.blocks) > 20
    sums = np.concatenate([block.matrix @ rows.column_table(table) for block in rows.blocks])
    np.testing.assert_allclose(sums, indicator @ table, atol=1e-12)
    (totals,) = rows.sum_blocks(lambda block: (block.transpose @ weights[block.place],))
    np.testing.assert_allclose(rows.vote_totals(totals), indicator.T @ weights, atol=1e-10)


@pytest.mark.parametrize("storage", [lambda made: made, as_triplets])
def test_expectation_by_blocks_gives_the_same(storage):
    made = storage(votes_of_classes(3, num_items=200, missing=0.2)[0])
    rows, counts, _ = made.patterns
    estimates = dawid_skene_em.random_estimates(np.random.default_rng(0), 2, *made.shape[1:], 3, 3)
    whole, parts = (count_rows(rows, counts, block_elements=size) for size in (2**20, 100))
    assert len(parts.incidence.blocks) > len(whole.incidence.blocks) == 1
    for one, other in zip(expectation(whole, estimates), expectation(parts, estimates), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_hundreds_of_sure_voters_do_not_overflow():
    num_voters = 400
    matrix = np.repeat([[0], [1], [1]], num_voters, axis=1)
    data = count_rows(*Votes.from_matrix(matrix, 2).patterns[:2])
    right = np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])
    confusion = np.repeat(right[:, None, None], num_voters, axis=2)
    expected = expectation(data, dawid_skene_em.Estimates(np.full((2, 1), 0.5), confusion))
    np.testing.assert_allclose(expected.labels[:, 0], [1, 2])
    np.testing.assert_allclose(expected.log_likelihood, 3 * np.log(0.5) + 3 * num_voters * np.log1p(-1e-9), rtol=1e-9)


def test_sparse_covariances_say_what_full_ones_say():
    made, _ = independent_votes(300, *RATES, missing=0.5)
    full = vote_moments(made).covariance
    mean, some = spectral.sparse_moments(as_triplets(made))
    np.testing.assert_allclose(some.toarray(), full, atol=1e-12)
    np.testing.assert_allclose(mean, vote_moments(made).mean, atol=1e-12)
    alone = np.arange(7)
    completed = complete_blocks(full, alone)
    np.testing.assert_allclose(complete_sparse_diagonal(some).toarray(), completed, atol=1e-12)
    vector, sparse_vector = leading_vector(completed), leading_sparse_vector(complete_sparse_diagonal(some))
    np.testing.assert_allclose(np.abs(vector), np.abs(sparse_vector), atol=1e-9)
    assert sparse_scale_of(vector, some) == pytest.approx(scale_of(vector, full, alone))


def test_spectral_learner_of_many_voters_equals_that_of_few(monkeypatch):
    made, _ = independent_votes(300, *RATES, missing=0.5)
    few = SpectralMetaLearner().fit(as_triplets(made), key=KEY)
    monkeypatch.setattr(spectral, "DENSE_VOTERS", 3)
    many = SpectralMetaLearner().fit(as_triplets(made), key=KEY)
    # the share of the classes is at a maximum, which is found to the root of rounding errors
    np.testing.assert_allclose(few.label_probs, many.label_probs, atol=1e-6)


@double_precision
def sums(made, table, **limits):
    rows = encode(made, made.num_classes, **limits)
    return type(rows).__name__, np.asarray(jax.jit(sum_votes)(table, rows))[:, : made.num_items]


def test_votes_are_summed_up_the_same_in_every_layout():
    made, _ = votes_of_classes(3, num_items=60, num_voters=40, missing=0.8)
    lonely = Votes.from_matrix(np.vstack([made.matrix, np.zeros((1, 40)), np.full((1, 40), -1)]), 3)
    table = np.random.default_rng(0).normal(size=(4, 40, 3))
    expected = table.reshape(4, -1) @ vote_indicator(lonely, 3).T
    seen = {}
    for elements in (2**24, 0):
        for storage in (lambda some: some, as_triplets):
            name, found = sums(storage(lonely), table, indicator_elements=elements)
            seen[name] = np.abs(found - expected).max()
    name, found = sums(as_triplets(made), table)  # no row is so much longer that it is cut into pieces
    seen["whole rows"] = np.abs(found - expected[:, :60]).max()
    assert set(seen) == {"DenseRows", "SparseRows", "whole rows"}
    assert max(seen.values()) < 1e-12


@double_precision
def test_likelihood_and_gradient_by_blocks_of_rows():
    votes, labels = independent_votes(200, *RATES)
    gold = np.where(np.arange(200) < 20, labels, -1)
    observations, _ = likelihoods.observe(DawidSkene(7), votes, gold)
    generator = np.random.default_rng(0)
    tables = Tables(generator.normal(size=(2, 3)), generator.normal(size=(2, 3, 7, 2)))

    def work(tables, observations, size):
        likelihood = partial(likelihoods.marginal_log_likelihood, block_elements=size)
        return jax.value_and_grad(likelihood)(tables, observations)

    found = [jax.jit(partial(work, size=size))(tables, observations) for size in (2**20, 2**8)]
    assert count_row_blocks(len(observations.counts), 6, 2**8) == 8
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12), *found)


def test_fitting_is_refused_where_even_small_blocks_are_too_large(monkeypatch):
    monkeypatch.setenv(MEMORY_VARIABLE, "1KiB")
    with pytest.raises(
        LimitError, match=r"fitting Tree.* to 16 distinct rows of votes would take about .* fewer hidden"
    ):
        likelihoods.observe(Tree((0, 0, 1, 1)), Votes.from_matrix(np.indices((2,) * 4).reshape(4, -1).T))


def test_memory_is_refused_before_it_is_taken(monkeypatch):
    huge = Votes(Triplets(*(np.zeros(1, dtype=kind) for kind in (np.int32, np.int32, np.int8))), 10**7, 10**6, 2)
    with pytest.raises(LimitError, match=r"10,000,000 items × 1,000,000 voters would take about 9.1 TiB .* limit of"):
        _ = huge.matrix
    monkeypatch.setenv(MEMORY_VARIABLE, "1KiB")
    assert memory_limit() == 1024
    with pytest.raises(
        LimitError, match=r"the covariances of 100 voters .* 312.5 KiB .* use a method .* LATENTENS_MEMORY"
    ):
        vote_moments(Votes.from_matrix(np.zeros((2, 100)), 2))
    monkeypatch.setenv(MEMORY_VARIABLE, "much")
    with pytest.raises(LimitError, match="is not a valid memory size"):
        memory_limit()


def test_time_is_limited_only_if_a_limit_is_set(monkeypatch):
    monkeypatch.delenv(TIME_VARIABLE, raising=False)
    assert time_limit() == np.inf
    monkeypatch.setenv(TIME_VARIABLE, "60")
    assert time_limit() == 60


def test_moments_and_imbalance_by_blocks_are_those_of_all_rows(monkeypatch):
    votes, _ = independent_votes(3000, *RATES, prevalence=0.7)
    matrix = np.where(np.random.default_rng(0).random(votes.shape) < 0.2, -1, votes.matrix)
    votes = Votes.from_matrix(matrix, 2)
    whole = SpectralMetaLearner().fit(votes, key=KEY)
    monkeypatch.setattr(imbalance, "SCREENED_ROWS", 400)
    for module in (moments, imbalance):
        monkeypatch.setattr(module, "row_blocks", partial(row_blocks, block_elements=1000))
        monkeypatch.setattr(module, "vote_indicator", partial(vote_indicator, dense_elements=0))
    in_blocks = SpectralMetaLearner().fit(Votes.from_matrix(matrix, 2), key=KEY)
    assert len(votes.patterns.counts) > 800
    for name, value in whole.params.items():
        np.testing.assert_allclose(in_blocks.params[name], value, atol=1e-6)
    np.testing.assert_allclose(in_blocks.label_probs, whole.label_probs, atol=1e-5)
