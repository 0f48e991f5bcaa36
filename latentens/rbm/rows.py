"""Rows of visible units: what a machine is trained on and scored by, each distinct row once."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from latentens.errors import VotesError
from latentens.runtime.blocks import few_lengths
from latentens.runtime.devices import fetch, round_up, shard_rows
from latentens.runtime.precision import double_precision
from latentens.votes import Votes
from latentens.votes.labels import MISSING

MEAN_PSEUDO = 1e-4
"""Share of the data by which the means of visible units are drawn towards one half."""


class VisibleRows(NamedTuple):
    """Distinct rows of binary visible units, with the share of the items that each row stands for.

    Attributes:
        visible: Their values, 0 where unobserved.
        weight: Each row's share of the items; the sum is one. Rows of weight zero fill up the array.
        num_items: Number of items that all rows together stand for.
        observed: Which values were observed; None if all were.
    """

    visible: Float[Array, "row visible"]
    weight: Float[Array, " row"]
    num_items: int | Int[Array, ""]
    observed: Bool[Array, "row visible"] | None = None

    @property
    def means(self) -> Float[Array, " visible"]:
        """The mean of each visible unit where it was observed, kept off 0 and 1; one half if it never was."""
        present = jnp.ones_like(self.visible) if self.observed is None else self.observed
        return (self.weight @ self.visible + MEAN_PSEUDO) / (self.weight @ present + 2 * MEAN_PSEUDO)

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
    """The distinct rows of binary votes, filled up to one of few lengths: each length is compiled only once."""
    if votes.num_classes > 2:
        raise VotesError(
            f"a restricted Boltzmann machine takes binary votes, but these have {votes.num_classes} classes; "
            "use a method for many classes, or make the votes binary"
        )
    votes.refuse_repeats("a restricted Boltzmann machine")
    matrix = votes.patterns.rows
    observed = matrix != MISSING
    filling = round_up(few_lengths(len(matrix), digits=3)) - len(matrix)
    visible = np.pad((matrix * observed).astype(float), ((0, filling), (0, 0)))
    weight = np.pad(votes.patterns.counts / votes.num_items, (0, filling))
    mask = None if observed.all() else shard_rows(np.pad(observed, ((0, filling), (0, 0))), axis=0)
    return VisibleRows(shard_rows(visible, axis=0), shard_rows(weight), votes.num_items, mask)
