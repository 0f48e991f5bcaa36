import itertools

import jax
import numpy as np
import pytest

from latentens import Votes, bayes_posterior, log_likelihood, simulate
from latentens.errors import ParameterError, VotesError
from latentens.models import DawidSkene, LayeredGraph, Tree, TruncatedGaussian
from latentens.programs import likelihood as likelihoods
from latentens.programs import tables, two_class_confusion
from latentens.programs.contract import structure_of
from latentens.runtime.numerics import double_precision
from latentens.votes import Triplets
from tests.conftest import slow_but
from tests.oracles import count_votes, truncated_gaussian
from tests.reference import random_counts, two_class, votes_from


def random_rows(model, num_rows, missing, seed=0):
    structure = structure_of(model)
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, structure.num_vote_classes, (num_rows, structure.num_voters))
    rows[rng.random(rows.shape) < missing] = -1
    return rows


def as_votes(model, rows):
    return Votes.from_matrix(rows, num_classes=structure_of(model).num_vote_classes)


def as_sparse(votes):
    return Votes(Triplets(*votes.triplets), votes.num_items, votes.num_voters, votes.num_classes)


def test_posterior_and_likelihood_equal_brute_force(any_case):
    """Of complete rows, rows with missing votes, an item without votes, which gets the prior, and repeated votes."""
    model, params, oracle = any_case
    structure = structure_of(model)
    empty = np.full((1, structure.num_voters), -1)
    rows = np.concatenate([random_rows(model, 12, 0.0), random_rows(model, 12, 0.4, seed=1), empty])
    joint = oracle(model, params, count_votes(rows, structure.num_vote_classes))
    votes = as_votes(model, rows)
    assert_agrees(model, params, votes, joint)
    counts = random_counts(12, structure.num_voters, structure.num_vote_classes)
    assert_agrees(model, params, votes_from(counts), oracle(model, params, counts))


def assert_agrees(model, params, votes, joint):
    exact = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(bayes_posterior(model, params, votes), exact, atol=1e-10, rtol=0)
    assert log_likelihood(model, params, votes) == pytest.approx(np.log(joint.sum(axis=1)).sum(), rel=1e-10)


@pytest.mark.parametrize("case", slow_but("DawidSkene-4-classes", "LayeredGraph"), indirect=True)
def test_sparse_votes_give_the_same_as_dense_ones(case):
    model, params, _ = case
    votes = as_votes(model, random_rows(model, 24, 0.6))
    sparse = as_sparse(votes)
    assert sparse.is_sparse
    assert not votes.is_sparse
    np.testing.assert_allclose(
        bayes_posterior(model, params, sparse), bayes_posterior(model, params, votes), atol=1e-12
    )
    assert log_likelihood(model, params, sparse) == pytest.approx(log_likelihood(model, params, votes), rel=1e-12)


def test_probabilities_of_all_rows_sum_to_one(case):
    model, params, _ = case
    structure = structure_of(model)
    rows = np.array(list(itertools.product(range(structure.num_vote_classes), repeat=structure.num_voters)))
    with jax.enable_x64(True):
        joint = jax.jit(likelihoods.log_joint)(
            tables.checked_tables(model, params), likelihoods.encode(as_votes(model, rows), structure.num_vote_classes)
        )
    assert np.exp(joint).sum() == pytest.approx(1.0, abs=1e-10)


def test_blocks_of_rows_change_nothing(case):
    model, params, _ = case
    votes = as_votes(model, random_rows(model, 24, 0.4))
    whole, one_by_one = (bayes_posterior(model, params, votes, block_elements=size) for size in (2**20, 1))
    np.testing.assert_allclose(one_by_one, whole, atol=1e-12)
    whole, one_by_one = (log_likelihood(model, params, votes, block_elements=size) for size in (2**20, 1))
    assert one_by_one == pytest.approx(whole, rel=1e-12)


def test_posterior_of_many_simulated_rows_is_calibrated(example_case):
    """Within each bin of the exact posterior, each label occurs as often as the posterior says."""
    exact = example_case.bayes_posterior()
    assert set(np.unique(example_case.labels)) == set(range(exact.shape[1]))
    for label in range(exact.shape[1]):
        probs, occurs = exact[:, label], example_case.labels == label
        bins = np.digitize(probs, np.quantile(probs, np.linspace(0.05, 0.95, 19)))
        size = np.bincount(bins, minlength=20)
        difference = np.bincount(bins, occurs - probs, minlength=20)
        variance = np.bincount(bins, probs * (1 - probs), minlength=20)
        inner = (size > 0) & (variance > 1)
        assert inner.sum() > 5
        assert np.abs(difference[inner] / np.sqrt(variance[inner])).max() < 4.5


def test_simulated_rows_occur_as_often_as_the_likelihood_says(example_case):
    """Pearson's chi-square of the commonest rows against their exact probabilities."""
    patterns = example_case.votes.patterns
    structure = structure_of(example_case.model)
    with jax.enable_x64(True):
        rows = likelihoods.encode(patterns.votes, structure.num_vote_classes)
        table = tables.checked_tables(example_case.model, example_case.params)
        expected = example_case.votes.num_items * np.exp(jax.jit(likelihoods.row_log_likelihood)(table, rows))
    common = np.argsort(expected)[-200:]
    z_scores = (patterns.counts[common] - expected[common]) / np.sqrt(expected[common])
    assert np.abs(z_scores).max() < 5
    assert np.mean(z_scores**2) == pytest.approx(1.0, abs=0.5)


def test_configurations_are_merged_before_the_product():
    model = LayeredGraph()
    params = model.example_params(jax.random.key(0))
    with jax.enable_x64(True):
        table = tables.checked_tables(model, params)
    assert table.log_prior.shape == (2, 32)
    assert table.log_emission.shape == (1, 32, 15, 2)


@pytest.mark.parametrize("model", [DawidSkene(500), Tree((0,) * 250 + (1,) * 250)])
def test_five_hundred_voters_do_not_underflow(model):
    dataset = simulate(model, 50, key=jax.random.key(0), params=model.example_params(jax.random.key(1)))
    exact = dataset.bayes_posterior()
    assert np.isfinite(exact).all()
    np.testing.assert_allclose(exact.sum(axis=1), 1.0)
    assert np.isfinite(log_likelihood(model, dataset.params, dataset.votes))
    assert np.mean(exact.argmax(axis=1) == dataset.labels) > 0.8


def test_five_hundred_correlated_voters_are_integrated_exactly():
    """The posterior narrows with the number of voters; a finer rule must not change it."""
    model = TruncatedGaussian(500)
    params = {"prevalence": np.array([0.6, 0.4]), "correlation": 0.5, "mean": np.linspace(-0.1, 0.2, 500)}
    dataset = simulate(model, 6, key=jax.random.key(0), params=params)
    joint = truncated_gaussian(model, params, count_votes(dataset.votes.matrix, 2))
    np.testing.assert_allclose(dataset.bayes_posterior(), joint / joint.sum(axis=1, keepdims=True), atol=1e-10)


def test_perfect_voters_are_believed_and_contradictions_are_finite():
    model = DawidSkene(3)
    params = two_class(0.5, [1.0, 1.0, 0.7], [1.0, 1.0, 0.7])
    votes = Votes.from_matrix([[1, 1, 0], [0, 0, 1], [1, 0, 1]])
    exact = bayes_posterior(model, params, votes)
    np.testing.assert_allclose(exact[:, 1], [1.0, 0.0, 0.7], atol=1e-10)
    assert np.isfinite(log_likelihood(model, params, votes))


def test_prevalence_at_its_bound():
    params = two_class(1.0, [0.7, 0.7], [0.7, 0.7])
    exact = bayes_posterior(DawidSkene(2), params, Votes.from_matrix([[0, 0], [1, 1]]))
    np.testing.assert_allclose(exact, [[0, 1], [0, 1]], atol=1e-10)


@pytest.mark.parametrize("case", slow_but("LayeredGraph", "TruncatedGaussian", "mood"), indirect=True)
@double_precision
def test_gradient_equals_finite_differences(case):
    model, params, _ = case
    structure = structure_of(model)
    rows = likelihoods.encode(as_votes(model, random_rows(model, 24, 0.4)), structure.num_vote_classes)

    @jax.jit
    def likelihood(values):
        return likelihoods.row_log_likelihood(tables.build_tables(model, values), rows).sum()

    rng = np.random.default_rng(0)
    direction = {name: rng.normal(size=value.shape) for name, value in params.items()}
    for name, value in params.items():
        if value.ndim and np.allclose(value.sum(axis=-1), 1.0):  # stay on the simplex
            direction[name] -= direction[name].mean(axis=-1, keepdims=True)
    gradient = jax.jit(jax.grad(likelihood))(params)
    step = 1e-6
    ahead, behind = (likelihood({n: v + s * step * direction[n] for n, v in params.items()}) for s in (1, -1))
    inner = sum(np.sum(gradient[name] * direction[name]) for name in params)
    assert inner == pytest.approx(float(ahead - behind) / (2 * step), rel=1e-4)


def test_caller_keeps_single_precision():
    model = DawidSkene(3)
    votes = Votes.from_matrix([[0, 1, 1]])
    params = model.example_params(jax.random.key(0))
    assert bayes_posterior(model, params, votes).dtype == np.float64
    assert jax.numpy.zeros(1).dtype == np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confusion": None}, "'confusion'.*is missing"),
        ({"skill": 0.3}, "'skill'.*is unknown"),
        ({"prevalence": 0.5}, r"shape \(\), expected \(2,\)"),
        ({"confusion": two_class_confusion([0.6, 0.7, 1.2], [0.8] * 3)}, "'confusion'.*out of range"),
        ({"confusion": two_class_confusion([0.6, 0.7, np.nan], [0.8] * 3)}, "'confusion'.*out of range"),
        ({"prevalence": [1.1, -0.1]}, "'prevalence'.*out of range"),
    ],
)
def test_wrong_parameters_are_named(change, message):
    params = two_class(0.5, [0.8] * 3, [0.8] * 3) | change
    params = {name: value for name, value in params.items() if value is not None}
    with pytest.raises(ParameterError, match=message):
        bayes_posterior(DawidSkene(3), params, Votes.from_matrix([[0, 1, 1]]))


def test_votes_that_do_not_fit_the_model():
    params = two_class(0.5, [0.8] * 3, [0.8] * 3)
    with pytest.raises(VotesError, match="2 voters, but .* 3"):
        bayes_posterior(DawidSkene(3), params, Votes.from_matrix([[0, 1]]))
    with pytest.raises(VotesError, match="3 classes"):
        log_likelihood(DawidSkene(3), params, Votes.from_matrix([[0, 1, 2]]))
