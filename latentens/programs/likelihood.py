"""The exact likelihood of votes under a program, and the posterior of their labels.

What is asked of a program with known parameters is computed in NumPy, by `Rows`. Samplers differentiate the likelihood
in JAX: there rows are laid out once for all products with tables. Few rows are an indicator matrix, whose sums are one
matrix product. Of many rows only the columns of such a matrix that are not zero are kept.
"""

import math
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import softmax

from latentens.programs.model import GenerativeModel, Params
from latentens.programs.rows import Rows, tables_at_draws
from latentens.programs.tables import Tables, check_fittable, check_form, checked_tables, labelled_rows
from latentens.runtime.blocks import (
    BLOCK_ELEMENTS,
    COPIES,
    SMALL_ROWS,
    count_row_blocks,
    fetch,
    few_lengths,
    map_row_blocks,
    round_up,
    shard_rows,
)
from latentens.runtime.limits import check_memory
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from latentens.votes.labels import MISSING


class DenseRows(NamedTuple):
    """Rows as an indicator matrix; a missing vote is a column of zeros."""

    indicator: Float[Array, "voter_vote row"]


class SparseRows(NamedTuple):
    """Rows as pieces, each with the columns `voter · K + vote` of some votes; a column of no vote fills a piece up."""

    columns: Int[Array, "place piece"]
    row: Int[Array, " piece"] | None
    """The row of each piece; None if each row is one piece."""
    counter: Int[Array, " row"] | None
    """Only its length matters: the number of rows, known where shapes are; None if each row is one piece."""
    weights: Float[Array, "place piece"] | None = None
    """The probability of each vote, if votes are soft."""


EncodedRows = DenseRows | SparseRows


def encode(
    votes: Votes,
    num_vote_classes: int,
    num_rows: int | None = None,
    *,
    indicator_elements: int = 2**24,
) -> EncodedRows:
    """Lay votes out.

    Args:
        votes: The votes, one row per item.
        num_vote_classes: Number of values of a vote in the tables.
        num_rows: Fill up with empty rows to this number, or to a few more that can be shared out to the devices.
        indicator_elements: Rows are laid out as an indicator matrix if it has at most this many elements.
    """
    num_rows = round_up(max(votes.num_items, num_rows or 0))
    if votes.is_sparse or num_rows * votes.num_voters * num_vote_classes > indicator_elements:
        return _pieces(votes, num_vote_classes, num_rows)
    matrix = np.pad(votes.matrix, ((0, num_rows - votes.num_items), (0, 0)), constant_values=MISSING)
    indicator = matrix.T[:, None, :] == np.arange(num_vote_classes)[None, :, None]
    return DenseRows(shard_rows(indicator.reshape(-1, num_rows).astype(float)))


def possible_rows(votes: Votes) -> int:
    """How many distinct rows votes like these, complete or not, can have; exact as far as they are few."""
    if votes.has_repeats:
        return SMALL_ROWS
    return int(votes.num_categories + (votes.num_missing > 0)) ** min(votes.num_voters, SMALL_ROWS.bit_length())


def sum_votes(table: Float[Array, "state voter vote"], rows: EncodedRows) -> Float[Array, "state row"]:
    """The sum over the votes of each row of their entries in a table."""
    flat = table.reshape(len(table), -1)
    if isinstance(rows, DenseRows):
        return flat @ rows.indicator
    padded = jnp.pad(flat, ((0, 0), (0, 1))).T  # the last column stands for no vote
    parts = [padded[columns] for columns in rows.columns]
    if rows.weights is not None:
        parts = [part * weight[:, None] for part, weight in zip(parts, rows.weights, strict=True)]
    sums = reduce(jnp.add, parts)
    if rows.row is not None and rows.counter is not None:
        sums = jax.ops.segment_sum(sums, rows.row, len(rows.counter), indices_are_sorted=True)
    return sums.T


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
    columns[place % width, piece] = votes.triplets.columns(num_vote_classes)
    weights = None
    if votes.weights is not None:
        by_place = np.zeros(columns.shape)
        by_place[place % width, piece] = votes.weights
        weights = shard_rows(by_place)
    if single:
        return SparseRows(shard_rows(columns), None, None, weights)
    row = np.full(num_pieces, num_rows - 1, dtype=np.int32)
    row[: int(pieces.sum())] = np.repeat(np.arange(len(lengths)), pieces)
    return SparseRows(shard_rows(columns), shard_rows(row), shard_rows(np.zeros(num_rows, dtype=np.int8)), weights)


def _piece_width(
    lengths: Int[np.ndarray, " row"],
    least_filled: float = 0.25,
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16),
) -> int:
    """The length of the longest row, or twice that of an average row if fewer places than a quarter were filled.

    It is rounded up to one of a few widths: few shapes, so that little is compiled.
    """

    def rounded_up(length: float) -> int:
        return next((width for width in widths if width >= length), widths[-1])

    whole = rounded_up(lengths.max())
    filled = lengths.sum() / (whole * len(lengths))
    return whole if whole >= lengths.max() and filled >= least_filled else rounded_up(2 * lengths.mean())


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


class Observations(NamedTuple):
    """Distinct rows of votes with their counts and, where some labels are known, the labels they exclude."""

    rows: EncodedRows
    counts: Float[Array, " row"]
    log_allowed: Float[Array, "label row"] | None

    @property
    def num_items(self) -> Float[Array, ""]:
        """Number of items."""
        return self.counts.sum()


def observe(
    model: GenerativeModel, votes: Votes, gold: Int[np.ndarray, " item"] | None = None
) -> tuple[Observations, Int[np.ndarray, " item"]]:
    """Lay out votes, and known labels if there are any, for fitting a model.

    Returns:
        The observations and the row of each item.
    """
    structure = check_form(model, votes)
    check_fittable(model)
    rows, counts, inverse, *_ = found = labelled_rows(votes, gold, structure.num_labels)
    elements_per_row = math.prod(len(structure.hidden[name].support) for name in structure.vote_parents | {"label"})
    possible = possible_rows(votes) * (1 if gold is None else structure.num_labels + 1)
    num_rows = round_up(few_lengths(len(counts), elements_per_row, possible))
    check_memory(
        COPIES * 8.0 * elements_per_row * num_rows / count_row_blocks(num_rows, elements_per_row),
        f"fitting {model} to {len(counts):,} distinct rows of votes",
        "use fewer hidden units, or fit a sample of the items by votes.take",
    )
    laid_out = encode(rows, structure.num_vote_classes, num_rows)
    spare = num_rows - len(counts)
    log_allowed = None
    if gold is not None:
        log_allowed = shard_rows(np.pad(found.log_allowed.T, ((0, 0), (0, spare))))
    return Observations(laid_out, shard_rows(np.pad(counts.astype(np.float64), (0, spare))), log_allowed), inverse


def marginal_log_likelihood(
    tables: Tables, observations: Observations, *, block_elements: int = BLOCK_ELEMENTS
) -> Float[Array, ""]:
    """The log-likelihood of all votes and known labels, by blocks of rows where all at once would take much memory."""

    def of_block(block: Observations) -> Float[Array, " row"]:
        if block.log_allowed is None:
            return row_log_likelihood(tables, block.rows)
        return logsumexp(log_joint(tables, block.rows) + block.log_allowed, axis=0)

    num_rows, elements_per_row = len(observations.counts), tables.log_prior.size
    in_pieces = getattr(observations.rows, "row", None) is not None  # of which a block of rows would cut some apart
    num_blocks = 1 if in_pieces else count_row_blocks(num_rows, elements_per_row, block_elements)
    return observations.counts @ map_row_blocks(of_block, observations, num_blocks)


@double_precision
def bayes_posterior(
    model: GenerativeModel, params: Params, votes: Votes, *, block_elements: int = BLOCK_ELEMENTS
) -> Float[np.ndarray, "item label"]:
    """The exact posterior `p(label | votes)` of every item under a program with known parameters.

    Args:
        model: The generative model.
        params: A value for each parameter site of the program.
        votes: The votes; an item without votes gets the prior.
        block_elements: Size of the arrays that are made of some rows at a time, which bounds the memory.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> le.bayes_posterior(data.model, data.params, data.votes)[:2].round(3)
        array([[0.997, 0.003],
               [0.038, 0.962]])
    """
    rows = Rows.of(model, votes, to_fit=False, block_elements=block_elements)
    joint = rows.label_log_joint(fetch(checked_tables(model, params)))
    return softmax(joint, axis=0).T[rows.inverse]


def log_likelihood(
    model: GenerativeModel, params: Params, votes: Votes, *, block_elements: int = BLOCK_ELEMENTS
) -> float:
    """The log-likelihood of all votes, labels and hidden units summed out, in nats.

    Arguments are those of `bayes_posterior`.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> round(le.log_likelihood(data.model, data.params, data.votes), 1)
        -696.9
    """
    by_item = pointwise_log_likelihood(model, params, votes, block_elements=block_elements)
    return float(by_item.sum() if votes.counts is None else by_item @ votes.counts)


@double_precision
def pointwise_log_likelihood(
    model: GenerativeModel, params: Params, votes: Votes, *, block_elements: int = BLOCK_ELEMENTS
) -> Float[np.ndarray, " item"]:
    """The log-likelihood of each item's votes, label and hidden units summed out, in nats; 0 without votes.

    Arguments are those of `bayes_posterior`.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> le.pointwise_log_likelihood(data.model, data.params, data.votes)[:3].round(2)
        array([-4.43, -2.28, -2.88])
    """
    rows = Rows.of(model, votes, to_fit=False, block_elements=block_elements)
    return rows.log_likelihood(fetch(checked_tables(model, params)))[rows.inverse]


@double_precision
def draws_log_likelihood(model: GenerativeModel, draws: Params, votes: Votes) -> Float[np.ndarray, "chain draw item"]:
    """`pointwise_log_likelihood` at each of many draws of the parameters.

    Args:
        model: The generative model.
        draws: Values of each parameter with leading axes (chain, draw).
        votes: The votes.
    """
    shape = next(iter(draws.values())).shape[:2]
    check_memory(
        8.0 * np.prod(shape) * 2 * votes.num_items,
        f"the log-likelihood of {votes.num_items:,} items at {np.prod(shape):,} draws",
        "thin the draws",
    )
    rows = Rows.of(model, votes, to_fit=False)
    flat = {name: np.reshape(value, (-1, *value.shape[2:])) for name, value in draws.items()}
    values = np.stack([rows.log_likelihood(tables) for tables in tables_at_draws(model, flat)])
    return values[:, rows.inverse].reshape(*shape, -1)
