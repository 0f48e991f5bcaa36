"""Whether the states of a machine can be enumerated: a question of sizes, asked before training and before scoring."""

from typing import NamedTuple

from latentens.rbm.rows import RowSizes, VisibleRows
from latentens.rbm.units import MOST_STATES

OPERATIONS_PER_SECOND = 1e9
"""Floating-point operations per second of enumeration, exponentials and logarithms included, on an average core."""

STATE_OPERATIONS = 10
"""Operations for each unit of each state that is enumerated, gradient included; exponentials count for several."""

GAP_OPERATIONS = 4
"""Operations for each unit of each state of each row that has gaps."""

LONGEST_EVALUATION = 0.3
"""A machine is enumerated if its likelihood and gradient are estimated to take at most this many seconds."""


class EnumerationCost(NamedTuple):
    """What one evaluation of the exact likelihood and its gradient takes."""

    states: int
    """States that are enumerated."""
    seconds: float
    """The estimated time."""

    @property
    def affordable(self) -> bool:
        """Whether the machine can be enumerated."""
        return self.seconds <= LONGEST_EVALUATION and self.states <= MOST_STATES


def enumeration_cost(rows: VisibleRows | RowSizes, num_hidden: int) -> EnumerationCost:
    """Estimate the cost by sizes: the smaller layer is enumerated once, the hidden one for each row with gaps.

    Args:
        rows: The rows, or their sizes.
        num_hidden: Number of hidden units, which have as many states as the visible ones.
    """
    sizes = rows.sizes if isinstance(rows, VisibleRows) else rows
    num_visible, width = ((sizes.num_states - 1) * number for number in (sizes.num_units, num_hidden))
    operations = float(sizes.num_rows * num_visible * width) * 2
    states = sizes.num_states ** min(sizes.num_units, num_hidden)
    operations += float(states) * max(num_visible, width) * STATE_OPERATIONS
    if sizes.gaps:
        states = sizes.num_states**num_hidden
        operations += float(sizes.num_rows) * states * num_visible * GAP_OPERATIONS
    return EnumerationCost(states, operations / OPERATIONS_PER_SECOND)
