"""The log-joint of label and votes, and the log-likelihood, of each row of votes, from the tables of a program."""

from typing import Any, NamedTuple

from jax.nn import logsumexp
from jaxtyping import Array, Float

from latentens.programs.row_layout import EncodedRows, sum_votes


class Tables(NamedTuple):
    """A program at given parameters, in JAX or NumPy; also counts or derivatives in the places of its elements.

    `parent` is the label if votes depend on it directly, else of size one.
    """

    log_prior: Float[Any, "label state"]
    log_emission: Float[Any, "parent state voter vote"]


def log_joint(tables: Tables, rows: EncodedRows) -> Float[Array, "label row"]:
    """`log p(label, votes)` of each row."""
    parents, states = tables.log_emission.shape[:2]
    log_votes = sum_votes(tables.log_emission.reshape(-1, *tables.log_emission.shape[2:]), rows)
    return logsumexp(tables.log_prior[:, :, None] + log_votes.reshape(parents, states, -1), axis=1)


def row_log_likelihood(tables: Tables, rows: EncodedRows) -> Float[Array, " row"]:
    """`log p(votes)` of each row; a label on which votes do not depend directly is summed out of the prior first."""
    if tables.log_emission.shape[0] == 1:
        tables = Tables(logsumexp(tables.log_prior, axis=0, keepdims=True), tables.log_emission)
    return logsumexp(log_joint(tables, rows), axis=0)
