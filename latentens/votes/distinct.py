"""Distinct rows of votes, found by counting or sorting."""

import functools
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks

if TYPE_CHECKING:
    from latentens.votes.votes import Votes


class Patterns(NamedTuple):
    """The distinct rows of some votes: `rows[inverse]` are the votes again."""

    votes: "Votes"
    """The distinct rows, in the storage of the original."""
    counts: Int[np.ndarray, " row"]
    inverse: Int[np.ndarray, " item"]

    @property
    def rows(self) -> Int[np.ndarray, "row voter"]:
        """The distinct rows as a matrix."""
        return self.votes.matrix

    def of_voters(self, voters: Int[np.ndarray, " chosen"]) -> "Patterns":
        """The distinct rows of the votes of some voters."""
        names = tuple(self.votes.voter_names[i] for i in voters)
        part = replace(self.votes, storage=self.rows[:, voters], num_voters=len(voters), voter_names=names)
        representative, inverse, _ = _distinct_rows(part)
        counts = np.bincount(inverse, self.counts, len(representative)).astype(np.int64)
        return Patterns(part.take(representative), counts, inverse[self.inverse])


def find_patterns(votes: "Votes") -> Patterns:
    """The distinct rows of votes; of soft votes, which are seldom alike, every item has a row of its own."""
    if votes.is_soft:
        return Patterns(votes, np.ones(votes.num_items, dtype=np.int64), np.arange(votes.num_items))
    representative, inverse, counts = _distinct_rows(votes)
    return Patterns(votes.take(representative), counts, inverse)


def _distinct_rows(votes: "Votes") -> "Distinct":
    if isinstance(votes.storage, np.ndarray):
        return distinct_matrix_rows(votes.storage)
    return distinct_entry_rows(votes.triplets.columns(votes.num_categories), votes.bounds)


class Distinct(NamedTuple):
    """Which rows are distinct: `rows[representative][inverse]` are the rows again."""

    representative: Int[np.ndarray, " distinct"]
    inverse: Int[np.ndarray, " row"]
    counts: Int[np.ndarray, " distinct"]


def distinct_matrix_rows(
    codes: Int[np.ndarray, "row digit"], *, word: int = 2**53, table_size: int = 2**22
) -> Distinct:
    """The distinct rows of a matrix, in lexicographic order.

    Args:
        codes: The matrix.
        word: Digits of a row are packed into numbers below this, which doubles hold exactly.
        table_size: Numbers below this are counted in a table, larger ones are sorted.
    """
    lowest = int(codes.min())
    base = max(2, int(codes.max()) - lowest + 1)
    parts = (
        _distinct_numbers(pack_digits(codes[:, group], base, lowest), base ** (group.stop - group.start), table_size)
        for group in digit_groups(codes.shape[1], base, word)
    )
    return functools.reduce(functools.partial(_refine, table_size=table_size), parts)


def digit_groups(num_digits: int, base: int, limit: int) -> list[slice]:
    """Neighbouring digits in as few groups of about equal size as give each group fewer than `limit` values."""
    most = 1
    while base ** (most + 1) <= limit:
        most += 1
    num_groups = -(-num_digits // most)
    edges = np.linspace(0, num_digits, num_groups + 1).round().astype(int)
    return [slice(int(start), int(stop)) for start, stop in itertools.pairwise(edges)]


def pack_digits(
    codes: Int[np.ndarray, "row digit"], base: int, lowest: int, *, block_elements: int = BLOCK_ELEMENTS
) -> Int[np.ndarray, " row"]:
    """Each row as one number, its first digit the most significant; digits are counted from `lowest`."""
    powers = float(base) ** np.arange(codes.shape[1])[::-1]
    words = np.empty(len(codes), dtype=np.int32 if base ** codes.shape[1] < 2**31 else np.int64)
    for block in row_blocks(len(codes), codes.shape[1], block_elements):
        words[block] = codes[block].astype(np.float64) @ powers - lowest * powers.sum()
    return words


def _distinct_numbers(numbers: Int[np.ndarray, " row"], size: int, table_size: int) -> Distinct:
    """The distinct ones of some numbers from 0 to `size` − 1."""
    if size > table_size or size > 64 * len(numbers):
        _, first, inverse, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
        return Distinct(first, inverse, counts)
    counts = np.bincount(numbers, minlength=size)
    present = counts > 0
    representative = np.zeros(size, dtype=np.int64)
    representative[numbers] = np.arange(len(numbers))
    rank = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return Distinct(representative[present], rank[numbers], counts[present])


def _refine(left: Distinct, right: Distinct, table_size: int) -> Distinct:
    """The distinct pairs of the parts of a row."""
    pairs = left.inverse.astype(np.int64) * len(right.counts) + right.inverse
    return _distinct_numbers(pairs, len(left.counts) * len(right.counts), table_size)


def distinct_entry_rows(entries: Int[np.ndarray, " entry"], bounds: Int[np.ndarray, " bound"]) -> Distinct:
    """The distinct rows of sorted lists of entries; rows of the same length are compared with each other."""
    lengths = np.diff(bounds)
    inverse = np.empty(len(lengths), dtype=np.int64)
    representatives: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    seen = 0
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        lists = np.zeros((len(rows), length + 1), dtype=entries.dtype)  # a row without entries needs a key too
        lists[:, :length] = entries[bounds[rows][:, None] + np.arange(length)]
        keys = lists.view(np.dtype((np.void, lists.shape[1] * lists.itemsize))).ravel()
        _, first, within, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        inverse[rows] = within + seen
        seen += len(count)
        representatives.append(rows[first])
        counts.append(count)
    return Distinct(np.concatenate(representatives), inverse, np.concatenate(counts))
