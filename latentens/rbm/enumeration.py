"""Whether the states of a machine can be enumerated: a question of sizes, asked before training and before scoring."""

from typing import NamedTuple

from latentens.rbm.rows import VisibleRows
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


def enumeration_cost(rows: VisibleRows, num_hidden: int) -> EnumerationCost:
    """Estimate the cost by sizes: the smaller layer is enumerated once, the hidden one for each row with gaps.

    Args:
        rows: The rows.
        num_hidden: Number of hidden units, which have as many states as the visible ones.
    """
    num_rows, num_visible = rows.visible.shape
    width = num_hidden * rows.units.width
    operations = float(num_rows * num_visible * width) * 2
    states = rows.units.num_states ** min(rows.num_units, num_hidden)
    operations += float(states) * max(num_visible, width) * STATE_OPERATIONS
    if rows.observed is not None:
        states = rows.units.num_states**num_hidden
        operations += float(num_rows) * states * num_visible * GAP_OPERATIONS
    return EnumerationCost(states, operations / OPERATIONS_PER_SECOND)
