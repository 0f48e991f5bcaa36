"""Rows of votes as methods use them: laid out for products, one number for each vote, known labels beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from latentens.errors import VotesError
from latentens.methods.base import Estimate, GoldCodes, Predictor
from latentens.votes import Votes

Owner = TypeVar("Owner", bound=Predictor)

Indicator = Float[np.ndarray, "row voter_vote"] | sparse.csr_array
"""One where the voter cast the vote, or its probability if it is soft; a missing vote is all zeros. Either kind takes
part in `@`."""

DENSE_ELEMENTS = 2**25
"""Votes that are stored as a matrix become a dense indicator if it has at most this many elements."""


def vote_indicator(votes: Votes, num_categories: int) -> Indicator:
    """The votes as an indicator matrix, dense where that is affordable.

    Args:
        votes: The votes.
        num_categories: Number of columns of each voter, at least that of the different votes.
    """
    width = votes.num_voters * num_categories
    if not votes.is_sparse and votes.num_items * width <= DENSE_ELEMENTS:
        return (votes.matrix[:, :, None] == np.arange(num_categories)).reshape(-1, width).astype(np.float64)
    _, voter, vote = votes.triplets
    columns = voter * np.int32(num_categories) + vote
    values = np.ones(len(columns)) if votes.weights is None else votes.weights
    return sparse.csr_array((values, columns, votes.bounds), shape=(votes.num_items, width))


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


def by_blocks(function: Callable[[Votes], np.ndarray], rows: Votes) -> np.ndarray:
    """What a function says about each row, asked about some rows at a time to bound its memory."""
    return np.concatenate([function(block) for _, block in rows.blocks()])


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


class LabelledRows(NamedTuple):
    """Distinct rows, those with different known labels apart.

    Attributes:
        votes: The rows.
        counts: How often each occurs.
        inverse: The row of each item.
        gold: The known label of each row, −1 where it is unknown.
    """

    votes: Votes
    counts: Int[np.ndarray, " row"]
    inverse: Int[np.ndarray, " item"]
    gold: Int[np.ndarray, " row"]

    @property
    def log_allowed(self) -> Float[np.ndarray, "row label"]:
        """Zero where a row can have a label, −∞ where a known label rules it out."""
        possible = (self.gold[:, None] < 0) | (self.gold[:, None] == np.arange(self.votes.num_classes))
        return np.where(possible, 0.0, -np.inf)


def labelled_rows(votes: Votes, gold: GoldCodes | None) -> LabelledRows:
    """The distinct rows of votes, those with a known label apart from those without."""
    rows, counts, inverse = votes.patterns
    if gold is None:
        return LabelledRows(rows, counts, inverse, np.full(len(counts), -1))
    pair = inverse.astype(np.int64) * (votes.num_classes + 1) + gold + 1
    pairs, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    row, label = np.divmod(pairs, votes.num_classes + 1)
    return LabelledRows(rows.take(row), counts, inverse, label - 1)
