"""Distinct rows of visible units, on which machines are trained and scored."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentens.errors import VotesError
from latentens.rbm.units import MOST_STATES, AnyArray, Units
from latentens.runtime.limits import check_memory
from latentens.votes import Votes
from latentens.votes.labels import LAST
from latentens.votes.layout import count_votes

MEAN_PSEUDO = 1e-4
"""Share of the data by which the means of visible units are drawn towards equal shares of their states."""


MOST_ENTRIES = 2**25
"""Exact likelihoods are computed up to this many entries of tables over states."""


class RowSizes(NamedTuple):
    """The sizes on which the cost of a machine depends."""

    num_rows: int
    num_units: int
    num_states: int
    """Number of states of each visible unit."""
    num_classes: int
    """Number of states of each hidden unit."""
    gaps: bool
    """Whether some votes are missing or repeated."""
    num_votes: int
    """Votes of all rows together."""

    @property
    def num_bytes(self) -> float:
        """Memory of the rows while they are laid out: counts of votes, indicators, and which votes were cast."""
        return float(self.num_rows) * self.num_units * (8 * self.num_states + 8 * (self.num_states - 1) + 4)

    def entries(self, num_hidden: int) -> float:
        """Number of table entries that one evaluation of the exact likelihood computes; infinite if there are too many.

        The smaller layer is enumerated once, for each visible unit; the hidden layer once more for each vote if rows
        have gaps.

        Args:
            num_hidden: Number of hidden units.
        """
        states = self.num_classes**num_hidden
        if not self.gaps:
            states = min(states, self.num_states**self.num_units)
        if states > MOST_STATES:
            return float("inf")
        entries = states * max((self.num_states - 1) * self.num_units, (self.num_classes - 1) * num_hidden)
        return float(entries + (states * self.num_votes if self.gaps else 0))

    def can_enumerate(self, num_hidden: int) -> bool:
        """Whether exact likelihoods are affordable."""
        return self.entries(num_hidden) <= MOST_ENTRIES


class VisibleRows(NamedTuple):
    """Distinct rows of visible units, with the share of the items that each row stands for.

    Attributes:
        visible: The units' indicators, added up over repeated votes, 0 where unobserved.
        weight: Each row's share of the items; the sum is one.
        num_items: Number of items that all rows together stand for.
        observed: Which units were observed, or how often, if any vote was repeated; None if all were, and once.
        units: The kind of the units.
        label: The state of the unit at the top of the stack, −1 where it is unknown; None if it is for all rows.
        classes: The kind of the hidden units and of the label; None if they are of the same kind as the visible ones.
    """

    visible: Float[AnyArray, "row visible"]
    weight: Float[AnyArray, " row"]
    num_items: int | Int[Array, ""]
    observed: Bool[AnyArray, "row unit"] | Int[AnyArray, "row unit"] | None = None
    units: Units = Units()
    label: Int[np.ndarray, " row"] | None = None
    classes: Units | None = None

    @property
    def hidden_units(self) -> Units:
        """The kind of the hidden units of a machine of these rows."""
        return self.classes or self.units

    @property
    def num_units(self) -> int:
        """Number of visible units."""
        return self.units.count(self.visible)

    @property
    def sizes(self) -> RowSizes:
        """How many rows there are, and of what."""
        shape = len(self.weight), self.num_units
        votes = shape[0] * shape[1] if self.observed is None else int(np.asarray(self.observed).sum())
        states = self.units.num_states, self.hidden_units.num_states
        return RowSizes(*shape, *states, self.observed is not None, votes)

    @property
    def means(self) -> Float[AnyArray, " visible"]:
        """The mean of each indicator over the votes, kept away from 0 and 1; equal shares without votes."""
        counts = self.units.by_unit(self.weight @ self.visible)
        cast = self.vote_shares[:, None] + self.units.num_states * MEAN_PSEUDO
        return ((counts + MEAN_PSEUDO) / cast).reshape(-1)

    @property
    def biases(self) -> Float[np.ndarray, " visible"]:
        """The biases of visible units that depend on nothing, by their means."""
        means = self.units.by_unit(np.asarray(self.means))
        return (np.log(means) - np.log(1 - means.sum(axis=1, keepdims=True))).ravel()

    @property
    def votes_by_state(self) -> Float[np.ndarray, "row unit state"]:
        """How often each unit was seen in each of its states, state 0 included."""
        seen = self.units.by_unit(np.asarray(self.visible))
        times = np.ones(seen.shape[:2]) if self.observed is None else np.asarray(self.observed)
        seen = np.where(times[:, :, None] > 0, seen, 0.0)
        return np.concatenate([times[:, :, None] - seen.sum(axis=2, keepdims=True), seen], axis=2)

    def refuse_repeats(self, who: str) -> None:
        """Raise `VotesError` if there are repeated votes, naming the procedure that cannot use them."""
        if self.observed is not None and self.observed.dtype != bool:
            raise VotesError(
                f"{who} needs one vote of each voter per item, but some votes are repeated: use few enough hidden "
                f"units to enumerate, or read the votes with {LAST}",
                LAST,
            )

    @property
    def vote_shares(self) -> Float[AnyArray, " unit"]:
        """The number of votes of each unit as a share of the items."""
        return np.ones(self.num_units) if self.observed is None else self.weight @ self.observed

    def split(self, held_out: Bool[np.ndarray, " item"]) -> tuple["VisibleRows", "VisibleRows"]:
        """The rows of most items and those of the items that are held out, in the order of `row_of_items`."""
        row_of_items = self.row_of_items()
        parts = []
        for items in (~held_out, held_out if held_out.any() else ~held_out):
            counts = np.bincount(row_of_items[items], minlength=len(self.weight))
            present = counts > 0
            observed, label = (
                None if array is None else np.asarray(array)[present] for array in (self.observed, self.label)
            )
            visible, weight = np.asarray(self.visible)[present], counts[present] / items.sum()
            parts.append(VisibleRows(visible, weight, int(items.sum()), observed, self.units, label, self.classes))
        return parts[0], parts[1]

    def row_of_items(self, num_items: int | None = None) -> Int[np.ndarray, " item"]:
        """The row of each item, in the order of the rows: each row in proportion to its weight.

        Args:
            num_items: Number of items; by default as many as the rows stand for.
        """
        size = int(self.num_items) if num_items is None else num_items
        cumulative = np.cumsum(np.asarray(self.weight))
        middles = (np.arange(size) + 0.5) / size
        return np.searchsorted(cumulative, middles * cumulative[-1]).clip(max=len(cumulative) - 1)


def rows_from_votes(votes: Votes, gold: Int[np.ndarray, " item"] | None = None) -> VisibleRows:
    """The distinct rows of votes.

    Args:
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown; rows with another label are other rows.
    """
    sizes = sizes_from_votes(votes)
    check_memory(
        sizes.num_bytes,
        f"{sizes.num_rows:,} distinct rows of {sizes.num_units:,} voters, laid out for a machine,",
        "use DawidSkeneEM, which takes votes as they are, or leave voters with few votes out",
    )
    rows, counts, inverse = votes.patterns
    cast = count_votes(rows, sizes.num_states)
    observed = cast.sum(axis=2).round().astype(np.int32)
    label = None
    if gold is not None:
        pairs, counts = np.unique(np.stack([inverse, gold]), axis=1, return_counts=True)
        cast, observed, label = cast[pairs[0]], observed[pairs[0]], pairs[1]
    return VisibleRows(
        cast[:, :, 1:].reshape(len(cast), -1),
        counts / votes.num_items,
        votes.num_items,
        None if (observed == 1).all() else (observed if votes.has_repeats else observed > 0),
        Units(sizes.num_states),
        label,
        Units(sizes.num_classes),
    )


def sizes_from_votes(votes: Votes) -> RowSizes:
    """The sizes of the result of `rows_from_votes`, without computing it."""
    rows = votes.patterns.votes
    cast = rows.cast_by_item
    gaps = bool((cast != votes.num_voters).any()) or votes.has_repeats
    states = max(2, votes.num_categories), max(2, votes.num_classes)
    return RowSizes(rows.num_items, votes.num_voters, *states, gaps, int(cast.sum()))
