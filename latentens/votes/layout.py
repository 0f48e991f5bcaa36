"""Rows of votes laid out for NumPy: the entries of a row are the votes that were cast on an item.

Sparse layouts have the entries of `Votes.triplets`, row by row (`Votes.bounds`), and differ in their columns:

* an indicator (row, voter·vote) has a one where the voter cast the vote, or its probability if votes are soft;
* an `Incidence` is an indicator that is read over and over: in blocks and, where the votes form a matrix, with joint
  votes of groups of voters for columns, so that a row has one entry per group and sums over groups are looked up;
* `Cells` (row, voter) have a number for each vote.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.parallel import in_threads, stop_if_asked
from latentens.votes.distinct import digit_groups, pack_digits
from latentens.votes.labels import MISSING
from latentens.votes.votes import Votes

Layout = Float[np.ndarray, "row column"] | sparse.csr_array
"""Either kind takes part in `@`."""

Indicator = Float[np.ndarray, "row voter_vote"] | sparse.csr_array
Sums = tuple[Float[np.ndarray, "..."], ...]


def by_blocks(function: Callable[[Votes], np.ndarray], rows: Votes) -> np.ndarray:
    """The results of a function for each row, computed for some rows at a time to bound the memory."""
    return np.concatenate([function(block) for _, block in rows.blocks()])


def vote_indicator(votes: Votes, num_categories: int, *, dense_elements: int = 2**25) -> Indicator:
    """The votes as an indicator matrix; a missing vote is all zeros.

    Args:
        votes: The votes.
        num_categories: Number of columns of each voter, at least that of the different votes.
        dense_elements: Votes stored as a matrix become a dense indicator if it has at most this many elements.
    """
    width = votes.num_voters * num_categories
    if not votes.is_sparse and votes.num_items * width <= dense_elements:
        return (votes.matrix[:, :, None] == np.arange(num_categories)).reshape(-1, width).astype(np.float64)
    columns = votes.triplets.columns(num_categories)
    values = np.ones(len(columns)) if votes.weights is None else votes.weights
    return sparse.csr_array((values, columns, votes.bounds), shape=(votes.num_items, width))


def count_votes(votes: Votes, num_categories: int) -> Float[np.ndarray, "row voter vote"]:
    """The number of times that each voter cast each vote on each item, as a whole array."""
    indicator = vote_indicator(votes, num_categories)
    dense = indicator if isinstance(indicator, np.ndarray) else indicator.toarray()
    return dense.reshape(votes.num_items, votes.num_voters, num_categories)


Values = Float[np.ndarray, "row voter"] | Float[np.ndarray, " entry"]
"""One number for each vote; they are added, multiplied and so on in either layout."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The votes that were cast.

    Attributes:
        votes: The code of each vote (row, voter), a matrix if none is missing.
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
        return self.sum_by_row(self.ones, np.ones(self.votes.shape[1])) > 0

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

    def _matrix(self, values: Values) -> Layout:
        if isinstance(self.votes, np.ndarray):
            return values
        return sparse.csr_array((values, self.votes.indices, self.votes.indptr), shape=self.votes.shape)


class Block(NamedTuple):
    """Neighbouring rows.

    Attributes:
        place: The rows.
        matrix: Their entries (row, column).
        transpose: The same memory as (column, row): building it anew takes longer than a product with it.
    """

    place: slice
    matrix: sparse.csr_array
    transpose: sparse.csc_array


@dataclass(frozen=True, eq=False)
class Incidence:
    """An indicator in blocks of rows, with single or joint votes for columns.

    Attributes:
        blocks: The rows, some at a time.
        merged: The votes that each column stands for, as a matrix (column, voter·vote); None if these are single votes.
    """

    blocks: list[Block]
    merged: sparse.csr_array | None

    @property
    def num_entries(self) -> int:
        """The number of entries of all rows."""
        return sum(block.matrix.nnz for block in self.blocks)

    def column_table(self, table: Float[np.ndarray, "voter_vote value"]) -> Float[np.ndarray, "column value"]:
        """A table of votes as a table of columns: a block times it sums up the votes of each row."""
        return np.ascontiguousarray(table if self.merged is None else self.merged @ table)

    def vote_totals(self, totals: Float[np.ndarray, "column *value"]) -> Float[np.ndarray, "voter_vote *value"]:
        """Totals of columns as totals of votes."""
        return totals if self._of_votes is None else self._of_votes @ totals

    @cached_property
    def _of_votes(self) -> sparse.csc_array | None:
        return None if self.merged is None else self.merged.T

    def sum_blocks(self, work: Callable[[Block], Sums], *, runs: int = 8, few_blocks: int = 4) -> Sums:
        """The sums over blocks of the arrays that a function makes of each.

        Args:
            work: The function.
            runs: Number of runs in which blocks are summed side by side on the cores. It is the same on any machine,
                because the order of a sum decides its last digits.
            few_blocks: Fewer blocks than this are summed one after the other: threads that are started and awaited in
                every round of an ascent take more processor time than they save.
        """

        def sum_run(run: Int[np.ndarray, " block"]) -> Sums:
            total = work(self.blocks[run[0]])
            for i in run[1:]:
                stop_if_asked()
                for whole, part in zip(total, work(self.blocks[i]), strict=True):
                    whole += part
            return total

        parts = np.array_split(np.arange(len(self.blocks)), min(runs, len(self.blocks)))
        sums = in_threads(sum_run, parts) if len(parts) >= few_blocks else list(map(sum_run, parts))
        return tuple(sum(each[1:], start=each[0]) for each in zip(*sums, strict=True))


def incidence_of(
    votes: Votes, *, elements_per_row: int = 0, joint_votes: int = 2**13, block_elements: int = BLOCK_ELEMENTS
) -> Incidence:
    """Lay rows of votes out.

    Args:
        votes: The votes.
        elements_per_row: Size of the arrays of a row, if that is more than its votes.
        joint_votes: The most joint votes of a group of voters, so that a table of them stays in a core's cache.
        block_elements: Size of the arrays of a block.
    """
    if votes.is_sparse:
        columns, bounds, merged = votes.triplets.columns(votes.num_categories), votes.bounds, None
        width = votes.num_voters * votes.num_categories
    else:
        columns, bounds, merged = _joint_columns(votes, joint_votes)
        width = merged.shape[0]
    places = [slice(start, start + block.num_items) for start, block in votes.blocks(block_elements)]
    if elements_per_row:
        places = max(places, row_blocks(votes.num_items, elements_per_row, block_elements), key=len)
    edges = [bounds[place.start : place.stop + 1] for place in places]
    ones = np.ones(max(int(edge[-1] - edge[0]) for edge in edges))  # shared by all blocks
    blocks = []
    for place, edge in zip(places, edges, strict=True):
        entries = slice(edge[0], edge[-1])
        values = ones[: edge[-1] - edge[0]] if votes.weights is None else votes.weights[entries]
        matrix = sparse.csr_array((values, columns[entries], edge - edge[0]), shape=(len(edge) - 1, width))
        blocks.append(Block(place, matrix, matrix.T))
    return Incidence(blocks, merged)


def _joint_columns(
    votes: Votes, joint_votes: int
) -> tuple[Int[np.ndarray, " entry"], Int[np.ndarray, " bound"], sparse.csr_array]:
    """The joint votes of groups of voters: the columns and bounds of rows, and `Incidence.merged`."""
    lowest = min(0, int(votes.matrix.min()))
    base = votes.num_categories - lowest
    groups = digit_groups(votes.num_voters, base, max(base, min(joint_votes, votes.num_items // 8)))
    columns = np.empty((votes.num_items, len(groups)), dtype=np.int32)
    joint, entry, first = [], [], 0
    for i, group in enumerate(groups):
        columns[:, i] = pack_digits(votes.matrix[:, group], base, lowest) + first
        size = group.stop - group.start
        codes = np.indices((base,) * size).reshape(size, -1) + lowest  # of each joint vote, those of its voters
        voter, number = np.nonzero(codes != MISSING)
        joint.append(number + first)
        entry.append((voter + group.start) * votes.num_categories + codes[voter, number])
        first += base**size
    bounds = np.arange(votes.num_items + 1, dtype=np.int32 if columns.size < 2**31 else np.int64) * len(groups)
    places = np.concatenate(joint), np.concatenate(entry)
    merged = sparse.csr_array((np.ones(len(places[0])), places), shape=(first, votes.num_voters * votes.num_categories))
    return columns.ravel(), bounds, merged
