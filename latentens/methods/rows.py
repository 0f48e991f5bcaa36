"""Rows of votes with a number for each vote, and what methods ask of votes before they read them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from latentens.errors import VotesError
from latentens.inference.independent import by_blocks
from latentens.methods.base import Estimate, Predictor
from latentens.votes import Votes

Owner = TypeVar("Owner", bound=Predictor)


def require_two_classes(votes: Votes, method: object) -> None:
    """Refuse votes for more than two classes."""
    if votes.num_classes != 2:
        raise VotesError(
            f"{type(method).__name__} is for two classes, but the votes have {votes.num_classes}: "
            "use DawidSkeneEM or Ebcc, or ask one class against the rest"
        )


def in_blocks(
    predict: Callable[[Owner, Estimate, Votes], np.ndarray],
) -> Callable[[Owner, Estimate, Votes], np.ndarray]:
    """Let a method's `posterior` or `log_likelihood_of` see some rows at a time, which bounds its memory."""

    @wraps(predict)
    def blocked(self: Owner, estimate: Estimate, votes: Votes) -> np.ndarray:
        return by_blocks(partial(predict, self, estimate), votes)

    return blocked


Values = Float[np.ndarray, "row voter"] | Float[np.ndarray, " entry"]
"""One number for each vote; they are added, multiplied and so on without knowing how they are laid out."""

Layout = Float[np.ndarray, "row voter"] | sparse.csr_array


@dataclass(frozen=True, eq=False)
class Cells:
    """Which votes were cast.

    Attributes:
        votes: The code of each vote, a matrix if none is missing.
    """

    votes: Layout

    @classmethod
    def of(cls, votes: Votes) -> "Cells":
        """The cells of some votes."""
        if not votes.is_sparse and not votes.num_missing:
            return cls(votes.matrix.astype(np.float64))
        _, voter, vote = votes.triplets
        return cls(sparse.csr_array((vote.astype(np.float64), voter, votes.bounds), shape=votes.shape))

    @property
    def values(self) -> Values:
        """The codes of the votes."""
        return self.votes if isinstance(self.votes, np.ndarray) else self.votes.data

    @cached_property
    def ones(self) -> Values:
        """One for each vote."""
        return np.ones_like(self.values)

    @cached_property
    def has_votes(self) -> Bool[np.ndarray, " row"]:
        """Which rows have votes."""
        if isinstance(self.votes, np.ndarray):
            return np.full(len(self.votes), self.votes.shape[1] > 0)
        return np.diff(self.votes.indptr) > 0

    def products(self, of_rows: Float[np.ndarray, "row k"], of_voters: Float[np.ndarray, "voter k"]) -> Values:
        """Σ_k r_ik v_jk in each cell."""
        if isinstance(self.votes, np.ndarray):
            return of_rows @ of_voters.T
        rows = of_rows.repeat(np.diff(self.votes.indptr), axis=0)
        return np.einsum("ek,ek->e", rows, of_voters[self.votes.indices])

    def sum_by_row(self, values: Values, of_voters: Float[np.ndarray, "voter *k"]) -> Float[np.ndarray, "row *k"]:
        """Σ_j x_ij v_j of each row."""
        return self._matrix(values) @ of_voters

    def sum_by_voter(self, values: Values, of_rows: Float[np.ndarray, "row *k"]) -> Float[np.ndarray, "voter *k"]:
        """Σ_i x_ij r_i of each voter."""
        return self._matrix(values).T @ of_rows

    def at_rows(self, rows: Int[np.ndarray, " chosen"]) -> "Cells":
        """Some rows."""
        return Cells(self.votes[rows])

    def _matrix(self, values: Values) -> Layout:
        if isinstance(self.votes, np.ndarray):
            return values
        return sparse.csr_array((values, self.votes.indices, self.votes.indptr), shape=self.votes.shape)
