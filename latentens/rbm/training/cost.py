"""What exact training would cost, so that the choice between exact and sampled can be made, and told, beforehand."""

import logging
from functools import lru_cache
from typing import NamedTuple

from rich.console import Console

from latentens.rbm.rows import Rows

OPERATIONS_A_SECOND = 1e9
"""Floating-point operations a second of enumeration, exponentials and logarithms included, on an average core."""

STATE_OPERATIONS = 10
"""Operations for each unit of each state that is enumerated, gradient included; exponentials count for several."""

GAP_OPERATIONS = 4
"""Operations for each unit of each state of each row that has gaps."""

EVALUATIONS = 1000
"""Evaluations of the likelihood in a training: a few starts of some hundred iterations."""

WORTH_TELLING = 10.0
"""Seconds from which the estimate of exact training is printed, not only logged."""


class Cost(NamedTuple):
    """The estimate of one exact training."""

    states: int
    """States that are enumerated."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.states:,} states, about {self.seconds:,.1f} s"


def exact_cost(rows: Rows, num_hidden: int) -> Cost:
    """Estimate exact training: the smaller layer is enumerated once, the hidden one for each row with gaps."""
    num_rows, num_visible = rows.visible.shape
    operations = float(num_rows * num_visible * num_hidden) * 2
    states = 2 ** min(num_visible, num_hidden)
    operations += float(states) * max(num_visible, num_hidden) * STATE_OPERATIONS
    if rows.observed is not None:
        states = 2**num_hidden
        operations += float(num_rows) * states * num_visible * GAP_OPERATIONS
    return Cost(states, operations * EVALUATIONS / OPERATIONS_A_SECOND)


@lru_cache(maxsize=256)
def announce(message: str, *, loudly: bool) -> None:
    """Say something once: to the log and, if it matters, on standard error."""
    logging.getLogger("latentens").info(message)
    if loudly:
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
