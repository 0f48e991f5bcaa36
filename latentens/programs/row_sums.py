"""The log-joint of label and votes, and the log-likelihood, of each row of votes, from the tables of a program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import logsumexp
from jaxtyping import Array, Float

from latentens.programs.row_layout import AllRows, EncodedRows, sum_halves, sum_votes
from latentens.runtime.numerics import SMALLEST


class Tables(NamedTuple):
    """A program at given parameters, in JAX or NumPy; also counts or derivatives in the places of its elements.

    `parent` is the label if votes depend on it directly, else of size one.
    """

    log_prior: Float[Any, "label state"]
    log_emission: Float[Any, "parent state voter vote"]


def log_joint(tables: Tables, rows: EncodedRows) -> Float[Array, "label row"]:
    """`log p(label, votes)` of each row."""
    if isinstance(rows, AllRows):
        return _log_sums_of_products(tables, rows)
    parents, states = tables.log_emission.shape[:2]
    log_votes = sum_votes(tables.log_emission.reshape(-1, *tables.log_emission.shape[2:]), rows)
    return logsumexp(tables.log_prior[:, :, None] + log_votes.reshape(parents, states, -1), axis=1)


def _log_sums_of_products(tables: Tables, rows: AllRows) -> Float[Array, "label row"]:
    """`log_joint` of all possible rows: given a state, the votes of one half tell nothing about those of the other.

    So the sum over states is a product of matrices. Each half's probabilities are relative to that of its most probable
    state. A row whose halves exclude one another's states by hundreds of nats gets a probability that is too large, but
    still next to nothing.
    """
    parents, states = tables.log_emission.shape[:2]
    sums = sum_halves(tables.log_emission.reshape(parents * states, *tables.log_emission.shape[2:]), rows)
    left, right = (half.reshape(parents, states, -1) for half in sums)
    left += tables.log_prior[:, :, None]
    peaks = [jax.lax.stop_gradient(half.max(axis=1, keepdims=True)) for half in (left, right)]
    products = jnp.exp(left - peaks[0]).swapaxes(1, 2) @ jnp.exp(right - peaks[1])
    log_sums = jnp.log(jnp.maximum(products, SMALLEST)) + peaks[0].swapaxes(1, 2) + peaks[1]
    return log_sums.reshape(len(log_sums), -1)


def row_log_likelihood(tables: Tables, rows: EncodedRows) -> Float[Array, " row"]:
    """`log p(votes)` of each row; a label on which votes do not depend directly is summed out of the prior first."""
    if tables.log_emission.shape[0] == 1:
        tables = Tables(logsumexp(tables.log_prior, axis=0, keepdims=True), tables.log_emission)
    elif isinstance(rows, AllRows):  # labels are states like others
        log_emission = tables.log_emission.reshape(1, -1, *tables.log_emission.shape[2:])
        tables = Tables(tables.log_prior.reshape(1, -1), log_emission)
    return logsumexp(log_joint(tables, rows), axis=0)
