"""Rows of votes laid out for being summed up by a table of votes, on all devices.

Few rows are an indicator matrix: their sums are one matrix product. Of many rows only the columns of such a matrix are
kept that are not zero: joint votes of groups of voters, or single votes where the voters are many and their votes few.
"""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from latentens.runtime.blocks import SMALL_ROWS, round_up, shard_rows
from latentens.votes import Votes
from latentens.votes.distinct import JOINT_VOTES, digit_groups, equal_groups, pack_digits
from latentens.votes.labels import MISSING

INDICATOR_ELEMENTS = 2**24
"""Rows are laid out as an indicator matrix if it has at most this many elements."""

WIDTHS = 1, 2, 3, 4, 6, 8, 12, 16
"""Rows of triplets are cut into pieces of one of these lengths: few shapes, so that little is compiled."""

FILLED = 0.25
"""At least this share of the places of pieces holds a vote."""


class DenseRows(NamedTuple):
    """Rows as an indicator matrix; a missing vote is a column of zeros."""

    indicator: Float[Array, "voter_vote row"]


class GroupedRows(NamedTuple):
    """Rows as the joint vote of each group of voters; the groups follow from the numbers of voters and of votes."""

    joint: Int[Array, "group row"]


class SparseRows(NamedTuple):
    """Rows as pieces, each with the columns `voter · K + vote` of some votes; a column of no vote fills a piece up."""

    columns: Int[Array, "place piece"]
    row: Int[Array, " piece"] | None
    """The row of each piece; None if each row is one piece."""
    counter: Int[Array, " row"] | None
    """Only its length matters: the number of rows, known where shapes are; None if each row is one piece."""


EncodedRows = DenseRows | GroupedRows | SparseRows


def can_part(rows: EncodedRows) -> bool:
    """Whether some of the rows are rows of the same kind: not if pieces of a row may part."""
    return getattr(rows, "row", None) is None


def encode(
    votes: Votes,
    num_vote_classes: int,
    num_rows: int | None = None,
    *,
    indicator_elements: int = INDICATOR_ELEMENTS,
    joint_votes: int = JOINT_VOTES,
) -> EncodedRows:
    """Lay votes out.

    Args:
        votes: The votes, one row per item.
        num_vote_classes: Number of values of a vote in the tables.
        num_rows: Fill up with empty rows to this number, or to a few more that can be shared out to the devices.
        indicator_elements: The most elements of an indicator matrix.
        joint_votes: The most joint votes of a group of voters.
    """
    num_rows = round_up(max(votes.num_items, num_rows or 0))
    if votes.is_sparse:
        return _pieces(votes, num_vote_classes, num_rows)
    padding = (0, num_rows - votes.num_items), (0, 0)
    if num_rows * votes.num_voters * num_vote_classes <= indicator_elements:
        matrix = np.pad(votes.matrix, padding, constant_values=MISSING)
        indicator = matrix.T[:, None, :] == np.arange(num_vote_classes)[None, :, None]
        return DenseRows(shard_rows(indicator.reshape(-1, num_rows).astype(float)))
    groups = digit_groups(votes.num_voters, num_vote_classes + 1, joint_votes)
    joint = [pack_digits(votes.matrix[:, group], num_vote_classes + 1, MISSING) for group in groups]
    return GroupedRows(shard_rows(np.pad(np.stack(joint, axis=1), padding).T))


def possible_rows(votes: Votes) -> int:
    """How many distinct rows votes like these, complete or not, can have; exact as far as they are few."""
    if votes.has_repeats:
        return SMALL_ROWS
    return int(votes.num_classes + (votes.num_missing > 0)) ** min(votes.num_voters, SMALL_ROWS.bit_length())


def sum_votes(table: Float[Array, "state voter vote"], rows: EncodedRows) -> Float[Array, "state row"]:
    """The sum over the votes of each row of their entries in a table."""
    flat = table.reshape(len(table), -1)
    if isinstance(rows, DenseRows):
        return flat @ rows.indicator
    if isinstance(rows, GroupedRows):
        looked_up = zip(equal_groups(table.shape[1], len(rows.joint)), rows.joint, strict=True)
        return _add_up(_joint_table(table[:, group])[joint] for group, joint in looked_up).T
    with_none = jnp.pad(flat, ((0, 0), (0, 1))).T
    sums = _add_up(with_none[columns] for columns in rows.columns)
    if rows.row is not None and rows.counter is not None:
        sums = jax.ops.segment_sum(sums, rows.row, len(rows.counter), indices_are_sorted=True)
    return sums.T


def _add_up(parts: Iterable[Array]) -> Array:
    return reduce(jnp.add, parts)


def _joint_table(table: Float[Array, "state voter vote"]) -> Float[Array, "joint state"]:
    """The sum over a group's voters for each of their joint votes, a missing vote being the first of each voter's."""
    by_voter = jnp.pad(table, ((0, 0), (0, 0), (1, 0))).transpose(1, 2, 0)
    joint = jnp.zeros((1, len(table)))
    for votes in by_voter:
        joint = (joint[:, None] + votes[None]).reshape(-1, len(table))
    return joint


def _pieces(votes: Votes, num_vote_classes: int, num_rows: int) -> SparseRows:
    lengths = np.diff(votes.bounds)
    width = _piece_width(lengths)
    pieces = np.maximum(1, -(-lengths // width))
    first = np.cumsum(pieces) - pieces
    single = bool((pieces == 1).all())
    num_pieces = num_rows if single else round_up(int(pieces.sum()))
    columns = np.full((width, num_pieces), votes.num_voters * num_vote_classes, dtype=np.int32)
    place = np.arange(len(votes.triplets.item), dtype=np.int32) - np.repeat(votes.bounds[:-1], lengths)
    piece = np.repeat(first, lengths) + place // width
    columns[place % width, piece] = votes.triplets.voter * np.int32(num_vote_classes) + votes.triplets.vote
    if single:
        return SparseRows(shard_rows(columns), None, None)
    row = np.full(num_pieces, num_rows - 1, dtype=np.int32)
    row[: int(pieces.sum())] = np.repeat(np.arange(len(lengths)), pieces)
    return SparseRows(shard_rows(columns), shard_rows(row), shard_rows(np.zeros(num_rows, dtype=np.int8)))


def _piece_width(lengths: Int[np.ndarray, " row"]) -> int:
    """The length of the longest row, or twice that of an average row if pieces would be mostly empty otherwise."""
    whole = _next_width(lengths.max())
    filled = lengths.sum() / (whole * len(lengths))
    return whole if whole >= lengths.max() and filled >= FILLED else _next_width(2 * lengths.mean())


def _next_width(length: float) -> int:
    return next((width for width in WIDTHS if width >= length), WIDTHS[-1])
