"""The machine against brute force over all states of both layers."""

import itertools

import jax
import numpy as np
import pytest

from latentens.errors import LatentensError
from latentens.rbm import (
    Machine,
    energy,
    free_energy,
    hidden_probs,
    log_partition,
    log_probs,
    state_posterior,
    visible_probs,
)
from latentens.rbm import machine as inner
from latentens.rbm.exact import log_partition_slopes
from latentens.rbm.units import Units
from latentens.runtime.numerics import double_precision

VISIBLE, HIDDEN = 4, 3
STATES = {size: np.array(list(itertools.product((0.0, 1.0), repeat=size))) for size in (HIDDEN, VISIBLE)}


def random_machine(num_visible=VISIBLE, num_hidden=HIDDEN, seed=0, scale=1.5):
    draw = np.random.default_rng(seed).normal
    parts = draw(size=(num_visible, num_hidden)), draw(size=num_visible), draw(size=num_hidden)
    return Machine(*(scale * part for part in parts))


def brute_joint(machine):
    """p(x, h) as a table, one entry at a time."""
    weights, visible_bias, hidden_bias = map(np.asarray, machine[:3])
    table = np.empty((2**VISIBLE, 2**HIDDEN))
    for (i, x), (j, h) in itertools.product(enumerate(STATES[VISIBLE]), enumerate(STATES[HIDDEN])):
        table[i, j] = np.exp(visible_bias @ x + hidden_bias @ h + x @ weights @ h)
    return table / table.sum(), np.log(table.sum())


@pytest.fixture(scope="module")
def machine():
    return random_machine()


def test_energy_free_energy_and_log_partition(machine):
    joint, log_z = brute_joint(machine)
    grid = energy(machine, STATES[VISIBLE][:, None, :], STATES[HIDDEN][None])
    np.testing.assert_allclose(np.exp(-grid - log_z), joint, rtol=1e-12)
    np.testing.assert_allclose(np.exp(-free_energy(machine, STATES[VISIBLE]) - log_z), joint.sum(1), rtol=1e-12)
    np.testing.assert_allclose(log_partition(machine), log_z, rtol=1e-13)
    np.testing.assert_allclose(log_partition(machine.transposed), log_z, rtol=1e-13)


def test_conditionals(machine):
    joint, _ = brute_joint(machine)
    given_visible = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(hidden_probs(machine, STATES[VISIBLE]), given_visible @ STATES[HIDDEN], rtol=1e-12)
    given_hidden = (joint / joint.sum(0)).T
    np.testing.assert_allclose(visible_probs(machine, STATES[HIDDEN]), given_hidden @ STATES[VISIBLE], rtol=1e-12)
    np.testing.assert_allclose(state_posterior(machine, STATES[VISIBLE]), given_visible, rtol=1e-11)


@pytest.mark.parametrize("observed", [(1, 1, 1, 1), (0, 1, 1, 0), (1, 0, 0, 0), (0, 0, 0, 0)])
def test_unobserved_units_are_summed_out(machine, observed):
    joint, _ = brute_joint(machine)
    row, observed = np.array([1.0, 0.0, 1.0, 1.0]), np.array(observed, bool)
    agrees = (STATES[VISIBLE] == row)[:, observed].all(1)
    mass = joint[agrees].sum(0)
    spoilt = np.where(observed, row, 7.0)[None]  # what stands in a gap must not matter
    np.testing.assert_allclose(log_probs(machine, spoilt, observed[None])[0], np.log(mass.sum()), atol=1e-12)
    np.testing.assert_allclose(state_posterior(machine, spoilt, observed[None])[0], mass / mass.sum(), rtol=1e-11)


@double_precision
def test_the_log_partition_can_be_compiled_and_its_slopes_are_the_expectations():
    for machine in (random_machine(7, 3), random_machine(3, 7)):
        value, slopes = jax.jit(jax.value_and_grad(inner.log_partition))(machine)
        expected, expectations = log_partition_slopes(machine)
        assert value == pytest.approx(expected, rel=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), slopes[:3], expectations)


def test_a_layer_too_large_is_refused():
    with pytest.raises(LatentensError, match="too many states"):
        Units().states(40)
