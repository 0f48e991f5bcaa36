"""Rows of votes as a sparse 0/1 matrix (of soft votes, their probabilities), made for being read over and over.

A column is a vote of one voter or, where the votes form a matrix, the joint vote of a group of voters: a row then has
one entry per group instead of one per voter, and the sum over the votes of a group is looked up in a table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.parallel import in_threads, stop_if_asked
from latentens.votes import Votes
from latentens.votes.distinct import JOINT_VOTES, digit_groups, pack_digits
from latentens.votes.labels import MISSING

RUNS = 8
"""Number of runs in which blocks are summed side by side. It is the same on any machine, because the order of a sum
decides its last digits."""

FEW_BLOCKS = 4
"""Fewer blocks than this are summed one after the other: threads that are begun and awaited in every round of an ascent
take more processor time than they save."""

Sums = tuple[Float[np.ndarray, "..."], ...]


class Block(NamedTuple):
    """Neighbouring rows."""

    place: slice
    """Which rows they are."""
    matrix: sparse.csr_array
    """(row, column)"""
    transpose: sparse.csc_array
    """(column, row), of the same memory: to make it anew takes longer than a product with it."""


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which votes each row has.

    Attributes:
        blocks: The rows, some at a time.
        merged: The votes that each column stands for, as a matrix (column, voter·vote); None if these are single votes.
    """

    blocks: list[Block]
    merged: sparse.csr_array | None

    @property
    def num_entries(self) -> int:
        """How many entries all rows have."""
        return sum(block.matrix.nnz for block in self.blocks)

    def column_table(self, table: Float[np.ndarray, "voter_vote value"]) -> Float[np.ndarray, "column value"]:
        """A table of votes as a table of columns: a block times it sums up the votes of each row."""
        return np.ascontiguousarray(table if self.merged is None else self.merged @ table)

    def vote_totals(self, totals: Float[np.ndarray, "column *value"]) -> Float[np.ndarray, "voter_vote *value"]:
        """Totals of columns as totals of votes."""
        return totals if self.merged is None else self.merged.T @ totals

    def sum_blocks(self, work: Callable[[Block], Sums]) -> Sums:
        """The sums over blocks of the arrays that are worked out of each, blocks side by side on the cores."""

        def sum_run(run: Int[np.ndarray, " block"]) -> Sums:
            total = work(self.blocks[run[0]])
            for i in run[1:]:
                stop_if_asked()
                for whole, part in zip(total, work(self.blocks[i]), strict=True):
                    whole += part
            return total

        runs = np.array_split(np.arange(len(self.blocks)), min(RUNS, len(self.blocks)))
        sums = in_threads(sum_run, runs) if len(runs) >= FEW_BLOCKS else list(map(sum_run, runs))
        return tuple(sum(parts[1:], start=parts[0]) for parts in zip(*sums, strict=True))


def incidence_of(
    votes: Votes,
    *,
    elements_per_row: int = 0,
    joint_votes: int = JOINT_VOTES,
    block_elements: int = BLOCK_ELEMENTS,
) -> Incidence:
    """Lay rows of votes out.

    Args:
        votes: The votes.
        elements_per_row: Size of the arrays of a row, if that is more than its votes.
        joint_votes: The most joint votes of a group of voters.
        block_elements: Size of the arrays of a block.
    """
    if votes.is_sparse:
        columns, bounds, merged = votes.indicator_columns, votes.bounds, None
        num_columns = votes.num_voters * votes.num_categories
    else:
        columns, bounds, merged = _grouped(votes, joint_votes)
        num_columns = merged.shape[0]
    places = [slice(start, start + block.num_items) for start, block in votes.blocks(block_elements)]
    if elements_per_row:
        smaller = row_blocks(votes.num_items, elements_per_row, block_elements)
        places = max(places, smaller, key=len)
    edges = [bounds[place.start : place.stop + 1] for place in places]
    ones = np.ones(max(int(edge[-1] - edge[0]) for edge in edges))  # shared by all blocks
    blocks = []
    for place, edge in zip(places, edges, strict=True):
        entries = columns[edge[0] : edge[-1]]
        values = ones[: len(entries)] if votes.weights is None else votes.weights[edge[0] : edge[-1]]
        content = values, entries, edge - edge[0]
        matrix = sparse.csr_array(content, shape=(len(edge) - 1, num_columns))
        blocks.append(Block(place, matrix, matrix.T))
    return Incidence(blocks, merged)


def _grouped(
    votes: Votes, joint_votes: int
) -> tuple[Int[np.ndarray, " entry"], Int[np.ndarray, " bound"], sparse.csr_array]:
    """The columns of a matrix of votes, where those of each row begin, and the votes that each column stands for."""
    lowest = min(0, int(votes.matrix.min()))
    base = votes.num_categories - lowest
    groups = digit_groups(votes.num_voters, base, max(base, min(joint_votes, votes.num_items // 8)))
    sizes = [base ** (group.stop - group.start) for group in groups]
    first = np.cumsum([0, *sizes])
    columns = np.empty((votes.num_items, len(groups)), dtype=np.int32)
    for i, group in enumerate(groups):
        columns[:, i] = pack_digits(votes.matrix[:, group], base, lowest) + first[i]
    bounds = np.arange(votes.num_items + 1, dtype=np.int32 if columns.size < 2**31 else np.int64) * len(groups)
    return columns.ravel(), bounds, _meaning(groups, base, lowest, votes)


def _meaning(groups: list[slice], base: int, lowest: int, votes: Votes) -> sparse.csr_array:
    """Which votes each joint vote of each group consists of: a matrix (column, voter·vote)."""
    column, entry, before = [], [], 0
    for group in groups:
        size = group.stop - group.start
        codes = np.indices((base,) * size).reshape(size, -1) + lowest
        voter, joint = np.nonzero(codes != MISSING)
        column.append(joint + before)
        entry.append((voter + group.start) * votes.num_categories + codes[voter, joint])
        before += base**size
    ones, shape = np.ones(sum(map(len, column))), (before, votes.num_voters * votes.num_categories)
    return sparse.csr_array((ones, (np.concatenate(column), np.concatenate(entry))), shape=shape)
