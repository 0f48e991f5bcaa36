"""Skill of voters: values by enumeration, errors by differences and by refitting."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from latentens import Votes, log_likelihood, simulate
from latentens.errors import LatentensError
from latentens.inference.skill import AS_FITTED, NOT_KNOWN, estimated_skill, independent_skill, skills
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.models import DawidSkene, Tree
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from latentens.votes import Triplets
from tests.conftest import arbitrary_params
from tests.reference import two_class

KEY = jax.random.key(0)
MODEL = DawidSkene(4)
TRUTH = two_class(0.3, np.full(4, 0.8), np.array([0.7, 0.8, 0.9, 0.6]))
ACCURACY = 0.3 * TRUTH["confusion"][:, 1, 1] + 0.7 * TRUTH["confusion"][:, 0, 0]


@pytest.fixture(scope="module")
def votes():
    return simulate(MODEL, 600, key=KEY, params=TRUTH).votes


@pytest.fixture(scope="module")
def fit(votes):
    return DawidSkeneEM(diagonal=0.0, off_diagonal=0.0, random_starts=0, tolerance=1e-13).fit(votes, key=KEY)


def flat(params):
    return np.concatenate([params["prevalence"][1:], params["confusion"][:, 1, 1], params["confusion"][:, 0, 0]])


def unflat(values):
    return two_class(values[0], values[1:5], values[5:])


def test_errors_are_those_of_a_hessian_by_differences(votes, fit):
    """In the parameters' own space, which at the maximum makes no difference."""
    at, step, size = flat(fit.params), 1e-4, 9
    hessian = np.empty((size, size))
    for row in range(size):
        for column in range(size):
            signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            values = [
                a
                * b
                * log_likelihood(MODEL, unflat(at + step * (a * np.eye(size)[row] + b * np.eye(size)[column])), votes)
                for a, b in signs
            ]
            hessian[row, column] = sum(values) / (4 * step**2)
    covariance = np.linalg.inv(-hessian)
    found = fit.voter_skill(votes)
    prevalence, sensitivity, specificity = at[0], at[1:5], at[5:]
    np.testing.assert_allclose(found.confusion_error[:, 1, 1], np.sqrt(np.diag(covariance))[1:5], rtol=1e-3)
    np.testing.assert_allclose(found.accuracy, prevalence * sensitivity + (1 - prevalence) * specificity)
    for voter in range(4):
        slope = np.zeros(size)
        slope[0], slope[1 + voter], slope[5 + voter] = (
            sensitivity[voter] - specificity[voter],
            prevalence,
            1 - prevalence,
        )
        assert found.accuracy_error[voter] == pytest.approx(np.sqrt(slope @ covariance @ slope), rel=1e-3)
    assert (found.accuracy_low < found.accuracy).all()
    assert (found.accuracy < found.accuracy_high).all()


def test_intervals_cover_the_truth(votes):
    covered = []
    for seed in range(15):
        drawn = simulate(MODEL, 600, key=jax.random.key(seed), params=TRUTH).votes
        found = DawidSkeneEM(random_starts=0).fit(drawn, key=KEY).voter_skill(drawn, level=0.8)
        covered.append((found.accuracy_low <= ACCURACY) & (found.accuracy_high >= ACCURACY))
    assert 0.68 < np.mean(covered) < 0.92


def test_closed_form_and_derivatives_of_the_program_agree(votes):
    """With gaps and repeated votes."""
    chosen = np.sort(np.random.default_rng(0).integers(2400, size=2000))
    some = Votes(Triplets(*(column[chosen] for column in votes.triplets)), 600, 4, 2)
    fit = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0).fit(some, key=KEY)
    quick = fit.voter_skill(some)
    for part, other in zip(quick[:-1], estimated_skill(MODEL, fit.params, some)[:-1], strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-4)


def test_known_labels_leave_the_errors_of_frequencies(votes):
    labels = simulate(MODEL, 600, key=KEY, params=TRUTH).labels
    fit = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0).fit(votes, key=KEY, gold=labels)
    found = fit.voter_skill(votes)
    right = fit.sensitivity
    np.testing.assert_allclose(
        found.confusion_error[:, 1, 1], np.sqrt(right * (1 - right) / (labels == 1).sum()), rtol=1e-6
    )
    unknown = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0).fit(votes, key=KEY).voter_skill(votes)
    assert (found.accuracy_error < unknown.accuracy_error).all()


def test_skill_of_a_tree_goes_through_the_opinions():
    model = Tree((0, 0, 1, 1, 2, 2))
    params = arbitrary_params(model, seed=2)
    found, flipped = (
        np.asarray(
            double_precision(lambda order: skills(checked_tables(model, params), order, np.eye(2)))(np.array(order))
        )
        for order in ([0, 1], [1, 0])
    )
    right = (params["hidden_confusion"][0] @ params["voter_confusion"][0])[1, 1]
    assert found[12:].reshape(6, 2, 2)[0, 1, 1] == pytest.approx(right)
    np.testing.assert_allclose(flipped[12:].reshape(6, 2, 2), found[12:].reshape(6, 2, 2)[:, ::-1])


def test_draws_give_means_and_quantiles(votes, fit):
    generator = np.random.default_rng(0)
    draws = {
        name: np.clip(value + generator.normal(0, 0.02, (2, 50, *np.shape(value))), 0.01, 0.99)
        for name, value in fit.params.items()
    }
    draws = {name: value / value.sum(axis=-1, keepdims=True) for name, value in draws.items()}
    found = replace(fit, draws=draws).voter_skill(votes)
    drawn = draws["confusion"].reshape(-1, 4, 2, 2)
    np.testing.assert_allclose(found.confusion, drawn.mean(axis=0))
    np.testing.assert_allclose(found.confusion_error, drawn.std(axis=0, ddof=1))
    accuracy = np.einsum("dk,djkk->dj", draws["prevalence"].reshape(-1, 2), drawn)
    np.testing.assert_allclose([found.accuracy_low, found.accuracy_high], np.quantile(accuracy, [0.025, 0.975], axis=0))


def test_a_perfect_voter_has_an_interval():
    matrix = np.repeat(np.random.default_rng(0).integers(2, size=(40, 1)), 4, axis=1)
    matrix[:6, 3] = 1 - matrix[:6, 3]
    votes = Votes.from_matrix(matrix)
    found = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0).fit(votes, key=KEY).voter_skill(votes)
    assert (found.accuracy_high > 0.99).tolist() == [True, True, True, False]
    assert (found.accuracy_low > 0.5).all()
    assert (found.accuracy_low < 0.999).all()


def test_with_very_many_parameters_labels_are_taken_as_fitted(votes, fit):
    exact = fit.voter_skill(votes)
    shares, confusion = fit.params["prevalence"], fit.params["confusion"]
    found = independent_skill(shares, confusion, votes, max_parameters=3)
    assert found.intervals == AS_FITTED
    np.testing.assert_allclose(found.accuracy, exact.accuracy)
    assert (found.accuracy_error < exact.accuracy_error).all()


def test_a_program_of_very_many_parameters_too(votes, fit):
    found = estimated_skill(MODEL, fit.params, votes, max_parameters=3)
    np.testing.assert_allclose(found.accuracy, fit.voter_skill(votes).accuracy)
    assert found.intervals == AS_FITTED


def test_other_votes_than_the_fitted_ones_are_refused(votes, fit):
    with pytest.raises(LatentensError, match="the fit is to 600 items, the votes are on 10"):
        fit.voter_skill(votes.take(np.arange(10)))


def test_a_method_without_a_model_is_refused(votes):
    assert set(MajorityVote().fit(votes, key=KEY).voters["intervals"]) == {NOT_KNOWN}
    with pytest.raises(LatentensError, match="has no generative model"):
        MajorityVote().fit(votes, key=KEY).voter_skill(votes)


def test_intervals_of_a_sparse_crowd_are_narrow_and_cover_the_truth():
    """Forty votes each, of three classes: likelihood alone determines nobody there, but pseudo-counts claim nothing."""
    covered, widths = [], []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        right, labels = generator.uniform(0.4, 0.95, 30), generator.integers(3, size=300)
        item, voter = np.repeat(np.arange(300), 4), np.concatenate([generator.permutation(30)[:4] for _ in range(300)])
        shift = np.where(generator.random(1200) < right[voter], 0, generator.integers(1, 3, size=1200))
        some = Votes(Triplets(item, voter, (labels[item] + shift) % 3), 300, 30, 3)
        found = DawidSkeneEM(random_starts=0).fit(some, key=KEY).voter_skill(some)
        covered.append((found.balanced_accuracy_low <= right) & (right <= found.balanced_accuracy_high))
        widths.append(found.balanced_accuracy_high - found.balanced_accuracy_low)
    assert 0.88 < np.mean(covered) < 0.995
    assert np.median(widths) < 0.45
