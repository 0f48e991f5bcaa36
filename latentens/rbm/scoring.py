"""The likelihood of rows under a machine: exact where the size allows, annealed elsewhere."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentens.rbm.annealing import estimate_log_partition
from latentens.rbm.enumeration import can_enumerate
from latentens.rbm.exact import log_likelihoods
from latentens.rbm.machine import Machine, free_energy
from latentens.rbm.rows import VisibleRows
from latentens.rbm.training.exact import single_unit
from latentens.runtime.numerics import double_precision

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


@double_precision
def mean_log_likelihood(machine: Machine, rows: VisibleRows, *, key: jax.Array) -> Likelihood:
    """The mean log-likelihood of rows; the key serves annealing."""
    values = exact_log_likelihoods(machine, rows)
    if values is not None:
        return Likelihood(float(rows.weight @ values), 0.0)
    if rows.observed is not None:
        return Likelihood(float("nan"), float("nan"))
    return annealed_mean(machine, rows, key)


def exact_log_likelihoods(machine: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"] | None:
    """The log-likelihood of each row; None for a machine too large to enumerate."""
    return log_likelihoods(machine, rows) if can_enumerate(rows, machine.num_hidden) else None


def annealed_mean(machine: Machine, rows: VisibleRows, key: jax.Array) -> Likelihood:
    """An estimate for complete rows and a machine of any size."""
    base_key, key = jax.random.split(key)
    estimate = estimate_log_partition(machine, single_unit(rows, BASE_PENALTY, base_key), key=key)
    mean = -rows.weight @ free_energy(machine, rows.visible) - estimate.log_partition
    return Likelihood(float(mean), float(estimate.standard_error))
