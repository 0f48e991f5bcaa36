"""Triplets (item, voter, vote): votes of many voters, few of whom voted on any one item, or who voted repeatedly."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from latentens.errors import VotesError
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.limits import check_memory
from latentens.votes.labels import KEEP, LAST, MISSING, Coded, Duplicates, listed


class Triplets(NamedTuple):
    """One entry per vote, sorted by item, then by voter, then by vote.

    A voter who voted on an item more than once has as many entries for it.
    """

    item: Int[np.ndarray, " entry"]
    voter: Int[np.ndarray, " entry"]
    vote: Int[np.ndarray, " entry"]

    @property
    def repeated(self) -> Bool[np.ndarray, " entry"]:
        """Whether the entry before is of the same item and voter."""
        same = (self.item[1:] == self.item[:-1]) & (self.voter[1:] == self.voter[:-1])
        return np.concatenate([np.zeros(min(1, len(self.item)), dtype=bool), same])

    @property
    def turn(self) -> Int[np.ndarray, " entry"]:
        """How many entries of the same item and voter come before each one."""
        place = np.arange(len(self.item))
        return place - np.maximum.accumulate(np.where(self.repeated, 0, place))

    def columns(self, num_categories: int) -> Int[np.ndarray, " entry"]:
        """Each vote as `voter · num_categories + vote`, its column of an indicator matrix."""
        columns = self.voter * np.int32(num_categories)
        columns += self.vote
        return columns

    def at(self, entries: np.ndarray | slice) -> "Triplets":
        """Some of the entries."""
        return Triplets(*(column[entries] for column in self))

    def in_order(self) -> "Triplets":
        """The same entries, sorted."""
        return self.at(self.order)

    @property
    def order(self) -> Int[np.ndarray, " entry"]:
        """The places of the entries when they are sorted."""
        return np.lexsort((self.vote, self.voter, self.item))


def sort_triplets(item: Coded, voter: Coded, codes: Int[np.ndarray, " entry"], duplicates: Duplicates) -> Triplets:
    """The votes that were cast, in order and, unless repeated ones are kept, one for each item and voter.

    They are sorted only where they are not in order yet.
    """
    triplets = Triplets(item.codes.astype(np.int32, copy=False), voter.codes.astype(np.int32, copy=False), codes)
    if not _is_sorted(triplets):
        triplets = triplets.at(np.lexsort((triplets.voter, triplets.item)))
    repeated = triplets.repeated
    if repeated.any():
        if duplicates == "error":
            second = int(np.argmax(repeated))
            which, who = listed(item.names[triplets.item[[second]]]), listed(voter.names[triplets.voter[[second]]])
            raise VotesError(
                f"item {which} has more than one vote of voter {who}: take one of them by {LAST}, "
                f"or count them all by {KEEP}",
                LAST,
                KEEP,
            )
        if duplicates == "keep":
            triplets = triplets.in_order()
        else:
            triplets = triplets.at(~repeated if duplicates == "first" else np.append(~repeated[1:], True))
    cast = triplets.vote != MISSING
    return triplets if cast.all() else triplets.at(cast)


def to_matrix(triplets: Triplets, shape: tuple[int, int]) -> Int[np.ndarray, "item voter"]:
    """The votes as a matrix, −1 where missing."""
    check_memory(
        float(shape[0]) * shape[1],
        f"the matrix of {shape[0]:,} items × {shape[1]:,} voters",
        "use a method that works on triplets, such as DawidSkeneEM, or fewer voters",
    )
    matrix = np.full(shape, MISSING, dtype=triplets.vote.dtype)
    matrix[triplets.item, triplets.voter] = triplets.vote
    return matrix


def to_triplets(matrix: Int[np.ndarray, "item voter"], *, block_elements: int = BLOCK_ELEMENTS) -> Triplets:
    """The votes in a matrix that were cast, one entry each."""
    parts = []
    for block in row_blocks(len(matrix), matrix.shape[1], block_elements):
        item, voter = np.nonzero(matrix[block] != MISSING)
        parts.append(((item + block.start).astype(np.int32), voter.astype(np.int32), matrix[block][item, voter]))
    return Triplets(*map(np.concatenate, zip(*parts, strict=True)))


def entries_of(items: Int[np.ndarray, " chosen"], bounds: Int[np.ndarray, " bound"]) -> Int[np.ndarray, " entry"]:
    """The places of the entries of some items; those of item i are from `bounds[i]` on."""
    lengths = np.diff(bounds)[items]
    return np.repeat(bounds[items] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def _is_sorted(triplets: Triplets) -> bool:
    step = np.diff(triplets.item)
    return not (step < 0).any() and not ((step == 0) & (np.diff(triplets.voter) < 0)).any()
