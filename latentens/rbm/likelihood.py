"""The likelihood of rows under a machine: exact where the size allows, annealed elsewhere."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from latentens.rbm.annealing import estimate_log_partition
from latentens.rbm.machine import Machine, free_energy, log_likelihood
from latentens.rbm.rows import Rows
from latentens.rbm.training.base import choose_training
from latentens.rbm.training.exact import ExactTraining, single_unit

BASE_PENALTY = 1e-3
"""Penalty on the one-unit machine from which annealing starts; it keeps that machine's units from being certain."""


class Likelihood(NamedTuple):
    """The mean log-likelihood of rows, in nats.

    Attributes:
        mean: The value; not a number for a machine too large to enumerate on rows with gaps.
        standard_error: Its standard error by annealing; zero if the value is exact.
    """

    mean: float
    standard_error: float


def mean_log_likelihood(machine: Machine, rows: Rows, *, key: jax.Array) -> Likelihood:
    """The mean log-likelihood of rows; the key serves annealing."""
    if isinstance(choose_training(rows, len(machine.hidden_bias)), ExactTraining):
        return Likelihood(float(_exact_mean(machine, rows)), 0.0)
    if rows.observed is not None:
        return Likelihood(float("nan"), float("nan"))
    base_key, key = jax.random.split(key)
    estimate = estimate_log_partition(machine, single_unit(rows, BASE_PENALTY, base_key), key=key)
    mean = -rows.weight @ free_energy(machine, rows.visible) - estimate.log_partition
    return Likelihood(float(mean), float(estimate.standard_error))


@jax.jit
def _exact_mean(machine: Machine, rows: Rows) -> Float[Array, ""]:
    return rows.weight @ log_likelihood(machine, rows.visible, rows.observed)
