"""One hidden unit is Dawid–Skene: the map in closed form, and the two maxima of the likelihood."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentens import log_likelihood, simulate
from latentens.errors import LatentensError, ParameterError
from latentens.models import DawidSkene
from latentens.rbm import (
    ExactTraining,
    Machine,
    dawid_skene_to_rbm,
    log_probs,
    rbm_to_dawid_skene,
    train_machine,
)
from latentens.votes import Votes
from tests.reference import two_class

probability = st.floats(0.02, 0.98)


@settings(max_examples=50, deadline=None)
@given(probability, st.lists(st.tuples(probability, probability), min_size=1, max_size=6))
def test_the_maps_are_inverse_of_each_other(prevalence, voters):
    params = two_class(prevalence, *np.array(voters).T)
    back = rbm_to_dawid_skene(dawid_skene_to_rbm(**params))
    for estimate, truth in zip(back, params.values(), strict=True):
        np.testing.assert_allclose(estimate, truth, atol=1e-9)


def test_the_map_keeps_the_distribution():
    truth = two_class(0.3, np.array([0.9, 0.6, 0.7]), np.array([0.8, 0.75, 0.4]))
    rows = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1], [0, 1, 1]])
    votes = Votes.from_matrix(rows, num_classes=2)
    by_machine = log_probs(dawid_skene_to_rbm(**truth), rows.astype(float)).sum()
    np.testing.assert_allclose(by_machine, log_likelihood(DawidSkene(3), truth, votes), rtol=1e-12)


def test_what_is_not_dawid_skene_is_refused():
    with pytest.raises(LatentensError, match="one hidden unit"):
        rbm_to_dawid_skene(Machine(np.zeros((3, 2)), np.zeros(3), np.zeros(2)))
    with pytest.raises(ParameterError, match="between 0 and 1"):
        dawid_skene_to_rbm(**two_class(0.5, [1.0], [0.5]))


def expectation_maximisation(matrix, iterations=3000):
    """Dawid and Skene's algorithm, as plainly as it goes."""
    belief = matrix.mean(1)
    for _ in range(iterations):
        prevalence = belief.mean()
        sensitivity = belief @ matrix / belief.sum()
        specificity = (1 - belief) @ (1 - matrix) / (1 - belief).sum()
        one = prevalence * np.prod(np.where(matrix == 1, sensitivity, 1 - sensitivity), axis=1)
        zero = (1 - prevalence) * np.prod(np.where(matrix == 1, 1 - specificity, specificity), axis=1)
        belief = one / (one + zero)
    return np.log(one + zero).sum(), two_class(prevalence, sensitivity, specificity)


@pytest.mark.slow
def test_a_machine_with_one_unit_finds_the_dawid_skene_maximum():
    truth = two_class(0.4, np.array([0.9, 0.8, 0.7, 0.85, 0.75]), np.array([0.7, 0.8, 0.9, 0.65, 0.75]))
    votes = simulate(DawidSkene(5), 5_000, key=jax.random.key(1), params=truth).votes
    maximum, expected = expectation_maximisation(votes.matrix.astype(float))
    trained = train_machine(votes, 1, key=jax.random.key(0), training=ExactTraining(penalty=0.0, tolerance=1e-9))
    machine = trained.machine
    estimate = rbm_to_dawid_skene(machine)
    if estimate.confusion[:, 1, 1].mean() < 0.5:  # the hidden unit stands for the other label
        estimate = type(estimate)(estimate.prevalence[::-1], estimate.confusion[:, ::-1])
    total = log_probs(machine, votes.matrix.astype(float)).sum()
    assert abs(total - maximum) < 1e-6
    for found, wanted, true in zip(estimate, expected.values(), truth.values(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-3)
        np.testing.assert_allclose(found, true, atol=0.06)
