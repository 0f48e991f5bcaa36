"""Rows of visible units: what a machine is trained on and scored by, each distinct row once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentens.errors import VotesError
from latentens.rbm.units import Units
from latentens.runtime.blocks import few_lengths
from latentens.runtime.devices import fetch, round_up, shard_rows
from latentens.runtime.limits import check_memory
from latentens.runtime.precision import double_precision
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes

MEAN_PSEUDO = 1e-4
"""Share of the data by which the means of visible units are drawn towards equal shares of their states."""


class RowSizes(NamedTuple):
    """What the cost of a machine depends on: how many rows there are, and of what."""

    num_rows: int
    num_units: int
    num_states: int
    gaps: bool
    """Whether some votes are missing or repeated."""

    @property
    def num_bytes(self) -> float:
        """Memory of the rows laid out for a machine: indicators as numbers, and which votes were cast."""
        return float(self.num_rows) * self.num_units * (8 * (self.num_states - 1) + self.num_states + 1)


class VisibleRows(NamedTuple):
    """Distinct rows of visible units, with the share of the items that each row stands for.

    Attributes:
        visible: The units' indicators, added up over repeated votes, 0 where unobserved.
        weight: Each row's share of the items; the sum is one. Rows of weight zero fill up the array.
        num_items: Number of items that all rows together stand for.
        observed: Which units were observed, or how often, if any vote was repeated; None if all were, and once.
        units: The kind of the units.
    """

    visible: Float[Array, "row visible"]
    weight: Float[Array, " row"]
    num_items: int | Int[Array, ""]
    observed: Bool[Array, "row unit"] | Int[Array, "row unit"] | None = None
    units: Units = Units()

    @property
    def num_units(self) -> int:
        """Number of visible units."""
        return self.units.count(self.visible)

    @property
    def sizes(self) -> RowSizes:
        """How many rows there are, and of what."""
        return RowSizes(len(self.weight), self.num_units, self.units.num_states, self.observed is not None)

    @property
    def means(self) -> Float[Array, " visible"]:
        """The mean of each indicator over the votes, kept off 0 and 1; equal shares if there were none."""
        shape = len(self.visible), self.num_units
        present = jnp.repeat(jnp.ones(shape) if self.observed is None else self.observed, self.units.width, axis=1)
        pseudo = self.units.num_states * MEAN_PSEUDO
        return (self.weight @ self.visible + MEAN_PSEUDO) / (self.weight @ present + pseudo)

    def refuse_repeats(self, who: str) -> None:
        """Raise `VotesError` if there are repeated votes, in the name of what cannot take them."""
        if self.observed is not None and self.observed.dtype != bool:
            raise VotesError(
                f"{who} takes one vote of each voter on an item, but some votes are repeated: have few enough hidden "
                "units to enumerate, or read the votes with duplicates='last'"
            )

    @property
    def vote_shares(self) -> Float[Array, " unit"]:
        """The number of votes of each unit as a share of the items."""
        return jnp.ones(self.num_units) if self.observed is None else self.weight @ self.observed

    def split(self, share: float, key: jax.Array) -> tuple["VisibleRows", "VisibleRows"]:
        """The rows of most items and those of the others, which are chosen at random and make up the given share."""
        row_of_items = self.row_of_items()
        size = min(max(1, round(share * len(row_of_items))), max(1, len(row_of_items) - 1))
        chosen = numpy_generator(key).permutation(len(row_of_items))
        parts = []
        for items in (chosen[size:] if len(chosen) > 1 else chosen, chosen[:size]):
            counts = np.bincount(row_of_items[items], minlength=len(self.weight))
            parts.append(self._replace(weight=shard_rows(counts / len(items)), num_items=len(items)))
        return parts[0], parts[1]

    def row_of_items(self, num_items: int | None = None) -> Int[np.ndarray, " item"]:
        """The row of each item, in the order of the rows: each row as often as its weight says.

        Args:
            num_items: Number of items; by default as many as the rows stand for.
        """
        size = int(self.num_items) if num_items is None else num_items
        cumulative = np.cumsum(fetch(self.weight))
        middles = (np.arange(size) + 0.5) / size
        return np.searchsorted(cumulative, middles * cumulative[-1]).clip(max=len(cumulative) - 1)


@double_precision
def rows_from_votes(votes: Votes) -> VisibleRows:
    """The distinct rows of votes, filled up to one of few lengths: each length is compiled only once."""
    sizes = sizes_from_votes(votes)
    check_memory(
        sizes.num_bytes,
        f"{sizes.num_rows:,} distinct rows of {sizes.num_units:,} voters, laid out for a machine,",
        "use DawidSkeneEM, which takes votes as they are, or leave voters with few votes out",
    )
    rows, counts, _ = votes.patterns
    cast = _count_votes(rows)
    observed = cast.sum(axis=2, dtype=np.int32)
    filling = round_up(few_lengths(len(cast), cast[0].size, digits=3)) - len(cast)
    visible = np.pad(cast[:, :, 1:].reshape(len(cast), -1).astype(float), ((0, filling), (0, 0)))
    weight = np.pad(counts / votes.num_items, (0, filling))
    known = shard_rows(np.pad(observed if votes.has_repeats else observed > 0, ((0, filling), (0, 0))), axis=0)
    complete = bool((observed == 1).all())
    return VisibleRows(
        shard_rows(visible, axis=0),
        shard_rows(weight),
        votes.num_items,
        None if complete else known,
        Units(max(2, votes.num_classes)),
    )


def sizes_from_votes(votes: Votes) -> RowSizes:
    """The sizes of what `rows_from_votes` would make, without making it."""
    rows = votes.patterns.votes
    complete = bool((rows.tally.sum(axis=1) == votes.num_voters).all()) and not votes.has_repeats
    return RowSizes(rows.num_items, votes.num_voters, max(2, votes.num_classes), not complete)


def _count_votes(votes: Votes) -> Int[np.ndarray, "row voter state"] | Bool[np.ndarray, "row voter state"]:
    """How often each voter voted for each class on each item."""
    num_states = max(2, votes.num_classes)
    if not votes.has_repeats:
        return votes.matrix[:, :, None] == np.arange(num_states, dtype=np.int8)
    item, voter, vote = votes.triplets
    cells = (item.astype(np.int64) * votes.num_voters + voter) * num_states + vote
    counts = np.bincount(cells, minlength=votes.num_items * votes.num_voters * num_states)
    return counts.reshape(votes.num_items, votes.num_voters, num_states)
