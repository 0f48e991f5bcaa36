"""Whether the states of a machine can be enumerated: a question of sizes, asked before training and before scoring."""

from latentens.rbm.rows import RowSizes, VisibleRows
from latentens.rbm.units import MOST_STATES

MOST_ENTRIES = 2**25
"""Exact likelihoods are computed up to this many entries of tables over states: about a quarter of a second each."""


def enumerated_entries(rows: VisibleRows | RowSizes, num_hidden: int) -> float:
    """How many entries one evaluation of the exact likelihood goes through; infinite if there are too many states.

    The smaller layer is enumerated once, for each visible unit; the hidden layer once more for each vote if rows have
    gaps.

    Args:
        rows: The rows, or their sizes.
        num_hidden: Number of hidden units, which have as many states as the visible ones.
    """
    sizes = rows.sizes if isinstance(rows, VisibleRows) else rows
    states = sizes.num_states ** (num_hidden if sizes.gaps else min(sizes.num_units, num_hidden))
    if states > MOST_STATES:
        return float("inf")
    entries = states * (sizes.num_states - 1) * max(sizes.num_units, num_hidden)
    return float(entries + (states * sizes.num_votes if sizes.gaps else 0))


def can_enumerate(rows: VisibleRows | RowSizes, num_hidden: int) -> bool:
    """Whether exact likelihoods are affordable."""
    return enumerated_entries(rows, num_hidden) <= MOST_ENTRIES
