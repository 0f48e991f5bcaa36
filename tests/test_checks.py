"""Checks without labels: moments by enumeration, errors by refitting, p-values by simulation."""

from itertools import product

import jax
import numpy as np
import pytest
from scipy.stats import kstest

from analyses.layers import decorrelation
from latentens import Votes, simulate
from latentens.checks import check_independence, check_model
from latentens.checks.score_test import ScoreTest
from latentens.checks.statistics import PairCovariance, states_of
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM, MajorityVote, RBMStack
from latentens.methods.base import Estimate, finished
from latentens.methods.rbm_stack import stack_machines, stack_params
from latentens.models import DawidSkene, Tree
from latentens.programs.tables import checked_tables
from latentens.rbm.machine import Machine
from latentens.runtime.numerics import double_precision
from tests import oracles
from tests.conftest import CASES, arbitrary_params
from tests.reference import two_class

KEY = jax.random.key(0)
RIGHT = np.array([0.9, 0.8, 0.75, 0.7, 0.85, 0.8, 0.75, 0.9])


def two_classes(num_voters):
    right = RIGHT[:num_voters]
    return two_class(0.4, right, right[::-1])


def three_classes(num_voters):
    right = RIGHT[:num_voters, None, None]
    confusion = np.where(np.eye(3, dtype=bool), right, (1 - right) / 2)
    return {"prevalence": np.array([0.3, 0.3, 0.4]), "confusion": confusion}


FIVE = two_classes(5)


def draw(model, params, num_items, seed, share_missing=0.0):
    matrix = np.array(simulate(model, num_items, key=jax.random.key(seed), params=params).votes.matrix)
    matrix[np.random.default_rng(seed).random(matrix.shape) < share_missing] = -1
    num_classes = len(params["prevalence"])
    return Votes.from_matrix(matrix, num_classes=num_classes)


def indicator_covariances(rows, weights, num_classes):
    """Σ_a Cov(1{x_i = a}, 1{x_j = a}) under a distribution over rows."""
    total = 0.0
    for vote in range(num_classes):
        is_vote = (rows == vote).astype(float)
        mean = weights @ is_vote
        total = total + (is_vote - mean).T @ (weights[:, None] * (is_vote - mean))
    return total


@pytest.mark.parametrize(
    ("model", "oracle"),
    [(DawidSkene(4, num_classes=3), oracles.dawid_skene), (Tree((0, 0, 1, 1, 2)), oracles.tree), CASES["mood"]],
    ids=["three classes", "tree", "mood"],
)
def test_moments_are_those_of_all_rows(model, oracle):
    params = arbitrary_params(model, seed=1)
    states = double_precision(lambda: states_of(checked_tables(model, params)))()
    _, num_voters, num_classes = states.emission.shape
    rows = np.array(list(product(range(num_classes), repeat=num_voters)))
    expected = indicator_covariances(
        rows, oracle(model, params, oracles.count_votes(rows, num_classes)).sum(axis=1), num_classes
    )
    off_diagonal = ~np.eye(num_voters, dtype=bool)
    np.testing.assert_allclose(states.covariance[off_diagonal], expected[off_diagonal], atol=1e-12)


def raw_residuals(votes, params):
    """Observed less implied correlations of two-class votes at the given parameters."""
    votes = votes.matrix.astype(float)
    one, zero, share = params["confusion"][:, 1, 1], params["confusion"][:, 0, 1], params["prevalence"][1]
    implied = share * (1 - share) * np.outer(one - zero, one - zero)
    spread = votes.std(axis=0)
    return (np.cov(votes.T, bias=True) - implied) / np.outer(spread, spread)


def test_residuals_and_standard_errors_are_those_of_refitting():
    model, pairs = DawidSkene(5), np.triu_indices(5, 1)
    replicates = []
    for seed in range(60):
        votes = draw(model, FIVE, 2000, seed)
        fit = DawidSkeneEM(0.01, 0.01, random_starts=0).fit(votes, key=KEY)
        replicates.append(raw_residuals(votes, fit.params)[pairs])
    check = check_model(model, fit.params, votes, key=KEY)
    np.testing.assert_allclose(check.residual[pairs], replicates[-1], atol=0.05 * check.standard_error[pairs].min())
    # 60 replicates know a standard deviation to 9 %, and the fitted parameters are not the true ones
    np.testing.assert_allclose(check.standard_error[pairs], np.std(replicates, axis=0), rtol=0.3)


def test_residuals_do_not_depend_on_how_the_parameters_were_estimated():
    votes = draw(DawidSkene(5), FIVE, 5000, seed=3)
    fit = DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY)
    near = two_class(fit.params["prevalence"][1] + 0.004, fit.sensitivity + 0.004, fit.specificity + 0.004)
    fitted, moved = (check_model(DawidSkene(5), params, votes, key=KEY) for params in (fit.params, near))
    change = np.abs(moved.residual - fitted.residual) / np.where(fitted.checked, fitted.standard_error, 1)
    unprojected = np.abs(raw_residuals(votes, near) - raw_residuals(votes, fit.params))[np.triu_indices(5, 1)]
    assert change.max() < 0.15
    assert (unprojected.max() / fitted.standard_error[fitted.checked].min()) > 0.5


@pytest.mark.parametrize(
    ("model", "params", "share_missing"),
    [
        pytest.param(DawidSkene(5), FIVE, 0.0, id="complete", marks=pytest.mark.slow),
        pytest.param(DawidSkene(5), FIVE, 0.3, id="gaps"),
        pytest.param(DawidSkene(5, num_classes=3), three_classes(5), 0.2, id="three classes", marks=pytest.mark.slow),
    ],
)
def test_p_values_are_uniform_under_the_model(model, params, share_missing):
    overall, single = [], []
    for seed in range(60):
        votes = draw(model, params, 1000, 1000 + seed, share_missing)
        check = check_independence(votes, key=jax.random.key(seed), num_draws=300)
        overall.append(check.p_value)
        single.append(check.pair_p_values[seed % 4, 4])
    assert kstest(overall, "uniform").pvalue > 0.01
    assert kstest(single, "uniform").pvalue > 0.01


def independent_voters(num_voters, seed):
    model, params = DawidSkene(num_voters), two_class(0.4, *np.full((2, num_voters), 0.65))
    votes = draw(model, params, 500, seed)
    return model, DawidSkeneEM(0.01, 0.01).fit(votes, key=KEY).params, votes


@double_precision
def test_draws_of_the_null_distribution_have_the_variance_of_the_residuals():
    """Also where the score takes up a tenth of the variance of the simulated items."""
    model, params, votes = independent_voters(16, seed=0)
    states = states_of(checked_tables(model, params))
    for normal in (True, False):
        test = ScoreTest(model, params, states, votes, 20_000, np.random.default_rng(0), normal, pool_items=250)
        found = test.residuals(PairCovariance(np.array([[0, 1]]), states.margin))
        np.testing.assert_allclose(np.mean(test.largest(found, np.array([True])) ** 2), 1.0, atol=0.05)


@pytest.mark.slow
def test_false_alarms_are_nominal_if_parameters_are_many_for_the_simulated_items():
    alarms = []
    for seed in range(200):
        check = check_model(*independent_voters(40, seed), key=jax.random.key(seed), num_draws=300, pool_items=800)
        alarms.append(check.p_value <= 0.2)
    assert 0.12 < np.mean(alarms) < 0.28


def with_copycat(votes, copier, copied, how_often, seed=0):
    matrix = np.array(votes.matrix)
    copies = np.random.default_rng(seed).random(len(matrix)) < how_often
    matrix[copies, copier] = matrix[copies, copied]
    return Votes.from_matrix(matrix, num_classes=votes.num_classes)


@pytest.mark.parametrize(
    ("params", "share_missing"),
    [(two_classes(8), 0.2), pytest.param(three_classes(8), 0.2, marks=pytest.mark.slow)],
)
def test_a_copycat_is_found(params, share_missing):
    model = DawidSkene(8, num_classes=len(params["prevalence"]))
    votes = with_copycat(draw(model, params, 2000, 7, share_missing), copier=3, copied=2, how_often=0.4)
    check = check_independence(votes, key=KEY)
    assert check.rejected
    assert check.dependent_pairs[0] == (2, 3)
    assert check.groups == ((2, 3),)
    assert "{'2', '3'}" in check.summary


@pytest.fixture(scope="module")
def tree_data():
    return simulate(Tree(), 10_000, key=jax.random.key(2), params=Tree().example_params(jax.random.key(0)))


def test_groups_of_a_tree_are_named(tree_data):
    check = check_independence(tree_data.votes, key=KEY)
    assert check.rejected
    assert check.groups == (tuple(range(5)), tuple(range(5, 10)), tuple(range(10, 15)))


def test_a_tree_explains_its_own_votes_and_not_those_of_another(tree_data):
    right = check_model(Tree(), tree_data.params, tree_data.votes, key=KEY)
    assert not right.rejected
    assert right.groups == ()
    mixed = Votes.from_matrix(tree_data.votes.matrix[:, np.random.default_rng(0).permutation(15)])
    assert check_model(Tree(), tree_data.params, mixed, key=KEY).rejected


def test_same_key_same_result():
    votes = draw(DawidSkene(5), FIVE, 500, seed=1)
    first, second = (check_independence(votes, key=jax.random.key(4)) for _ in range(2))
    np.testing.assert_array_equal(first.adjusted_p_values, second.adjusted_p_values)
    assert first.p_value == second.p_value == first.adjusted_p_values.min()


def test_voters_that_cannot_be_compared_are_left_out():
    matrix = np.array(draw(DawidSkene(5), FIVE, 1000, seed=2).matrix)
    constant, absent = np.ones((1000, 1), dtype=int), np.full((1000, 1), -1)
    check = check_independence(Votes.from_matrix(np.hstack([matrix, constant, absent])), key=KEY)
    assert check.num_pairs == 10
    assert not check.checked[5:].any()
    assert (check.pair_p_values[5:] == 1).all()
    assert (check.residual[5:] == 0).all()
    assert all(np.isfinite(array).all() for array in (check.residual, check.standard_error, check.adjusted_p_values))


@pytest.mark.parametrize(
    ("num_items", "num_voters", "message"),
    [
        (500, 1, "one voter"),
        (500, 2, "can fit any agreement between 2 voters"),
        (500, 3, "can fit any agreement between 3 voters"),
        (1, 5, "enough varying votes"),
        (10, 301, "too many to compare"),
    ],
)
def test_votes_that_cannot_be_checked_are_refused(num_items, num_voters, message):
    matrix = np.random.default_rng(0).integers(0, 2, (num_items, num_voters))
    with pytest.raises(VotesError, match=message):
        check_independence(Votes.from_matrix(matrix, num_classes=2), key=KEY)


def test_more_parameters_than_can_be_allowed_for_are_refused():
    matrix = np.random.default_rng(0).integers(0, 6, (10, 100))
    with pytest.raises(VotesError, match="parameters"):
        check_independence(Votes.from_matrix(matrix, num_classes=6), key=KEY)


def test_constant_votes_are_refused():
    with pytest.raises(VotesError, match="enough varying votes"):
        check_independence(Votes.from_matrix(np.ones((100, 5), dtype=int)), key=KEY)


@pytest.fixture(scope="module")
def stack():
    rng = np.random.default_rng(0)
    machines = [
        Machine(rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)),
        Machine(rng.normal(size=(3, 1)), rng.normal(size=3), rng.normal(size=1)),
    ]
    votes = draw(DawidSkene(5), FIVE, 400, seed=5)
    of_one = rng.random(400)
    estimate = Estimate(stack_params(machines), label_probs=np.stack([1 - of_one, of_one], axis=1))
    return finished(RBMStack(), estimate, votes, 0.0), votes


def within_labels(values, probs):
    """Correlations of the deviations from weighted means, every item counted once for each label by its weight."""
    deviations = [values - np.average(values, axis=0, weights=weight) for weight in probs.T]
    covariance = sum((d * w[:, None]).T @ d for d, w in zip(deviations, probs.T, strict=True))
    spread = np.sqrt(np.diag(covariance))
    return covariance / np.outer(spread, spread)


def test_decorrelation_of_voters_and_layers(stack):
    fit, votes = stack
    voters, hidden, top = decorrelation(fit, votes, key=KEY)
    matrix = votes.matrix.astype(float)
    np.testing.assert_allclose(voters.marginal, np.corrcoef(matrix.T), atol=1e-12)
    np.testing.assert_allclose(voters.given_label, within_labels(matrix, fit.label_probs), atol=1e-12)
    machine = stack_machines(fit.params)[0]
    probs = 1 / (1 + np.exp(-(matrix @ machine.weights + machine.hidden_bias)))
    np.testing.assert_allclose(hidden.marginal, np.corrcoef(probs.T), atol=1e-9)
    np.testing.assert_allclose(hidden.given_label, within_labels(probs, fit.label_probs), atol=1e-9)
    assert top.marginal.shape == (1, 1)


def test_decorrelation_given_labels_with_gaps_and_a_constant_voter():
    matrix = np.array(draw(DawidSkene(5), FIVE, 3000, seed=6).matrix)
    labels = np.random.default_rng(1).integers(0, 2, 3000)
    matrix[:1000, 0] = -1
    matrix[:, 4] = 1
    votes = Votes.from_matrix(matrix)
    fit = finished(MajorityVote(), Estimate(label_probs=np.full((3000, 2), 0.5)), votes, 0.0)
    (voters,) = decorrelation(fit, votes, labels, key=KEY)
    both = within_labels(matrix[1000:, :4].astype(float), np.eye(2)[labels[1000:]])
    np.testing.assert_allclose(voters.given_label[0, 1], both[0, 1], atol=0.03)
    np.testing.assert_array_equal(voters.given_label[4, :4], 0)
    with pytest.raises(VotesError, match="two classes"):
        decorrelation(fit, Votes.from_matrix([[0, 1, 2]]), key=KEY)
