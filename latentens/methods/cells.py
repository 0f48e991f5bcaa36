"""One number for each vote that was cast, as a matrix or along the votes, and its sums over rows and over voters.

Where no vote is missing the cells are a matrix (row, voter), and all sums are matrix products.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from latentens.votes import Votes

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

    def at_voters(self, voters: Int[np.ndarray, " chosen"]) -> "Cells":
        """Some voters."""
        return Cells(self.votes[:, voters])

    def _matrix(self, values: Values) -> Layout:
        if isinstance(self.votes, np.ndarray):
            return values
        return sparse.csr_array((values, self.votes.indices, self.votes.indptr), shape=self.votes.shape)
