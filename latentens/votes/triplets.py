"""Triplets (item, voter, vote): votes of many voters, few of whom voted on any one item."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int8

from latentens.errors import VotesError
from latentens.runtime.limits import check_memory
from latentens.votes.coded import Coded
from latentens.votes.labels import MISSING
from latentens.votes.names import listed
from latentens.votes.reading import Duplicates


class Triplets(NamedTuple):
    """One entry a vote, sorted by item and then by voter."""

    item: Int[np.ndarray, " entry"]
    voter: Int[np.ndarray, " entry"]
    vote: Int8[np.ndarray, " entry"]


def sort_triplets(item: Coded, voter: Coded, codes: Int8[np.ndarray, " entry"], duplicates: Duplicates) -> Triplets:
    """The votes that were cast, in order and one for each item and voter; sorted only where they are not."""
    triplets = Triplets(item.codes.astype(np.int32, copy=False), voter.codes.astype(np.int32, copy=False), codes)
    if not _is_sorted(triplets):
        triplets = _at(triplets, np.lexsort((triplets.voter, triplets.item)))
    again = (np.diff(triplets.item) == 0) & (np.diff(triplets.voter) == 0)
    if again.any():
        if duplicates == "error":
            first = int(np.argmax(again))
            which, who = listed(item.names[triplets.item[[first]]]), listed(voter.names[triplets.voter[[first]]])
            raise VotesError(f"item {which} has more than one vote of voter {who}: keep one, or say duplicates='last'")
        kept = np.append(~again, True) if duplicates == "last" else np.append(True, ~again)
        triplets = _at(triplets, kept)
    cast = triplets.vote != MISSING
    return triplets if cast.all() else _at(triplets, cast)


def to_matrix(triplets: Triplets, shape: tuple[int, int]) -> Int8[np.ndarray, "item voter"]:
    """The votes as a matrix, −1 where missing."""
    check_memory(
        float(shape[0]) * shape[1],
        f"the matrix of {shape[0]:,} items × {shape[1]:,} voters",
        "use a method that works on triplets, such as DawidSkeneEM, or fewer voters",
    )
    matrix = np.full(shape, MISSING, dtype=np.int8)
    matrix[triplets.item, triplets.voter] = triplets.vote
    return matrix


def _is_sorted(triplets: Triplets) -> bool:
    step = np.diff(triplets.item)
    return not (step < 0).any() and not ((step == 0) & (np.diff(triplets.voter) < 0)).any()


def _at(triplets: Triplets, entries: np.ndarray) -> Triplets:
    return Triplets(*(column[entries] for column in triplets))
