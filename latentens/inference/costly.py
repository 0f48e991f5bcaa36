"""Votes so many that a gradient takes long: its time is estimated by sizes, and few starts run to their end."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from latentens.inference.optimise import Loss, minimise
from latentens.programs.contract import inspect
from latentens.programs.marginal import Observations, sample_rows
from latentens.programs.model import GenerativeModel
from latentens.programs.row_layout import AllRows, DenseRows

LOOK_UP_SECONDS = 1e-8
"""What a vote takes in a likelihood and its gradient for each state of what votes depend on, looked up in a table."""

PRODUCT_SECONDS = 5e-10
"""The same for an element of an indicator matrix."""

COSTLY_SECONDS = 0.02
"""From here on a gradient is costly: a thousand of them for each of nine starts would take minutes."""

SCREENING_ROWS = 2**17
"""Starts compete on a sample of at most so many rows."""

SCREENING_ITERATIONS = 30
"""So many iterations tell which starts are worth going on with."""

SURVIVORS = 2
"""So many starts go on: one may be at a poorer optimum, and two that agree say more than one."""


def gradient_seconds(model: GenerativeModel, observations: Observations) -> float:
    """The time that a likelihood and its gradient are estimated to take on one core."""
    structure = inspect(model)
    states = np.prod([len(structure.hidden[name].support) for name in structure.vote_parents], dtype=float)
    rows = observations.rows
    if isinstance(rows, AllRows):
        return float(2 * PRODUCT_SECONDS * states * len(observations.counts))
    seconds = PRODUCT_SECONDS if isinstance(rows, DenseRows) else LOOK_UP_SECONDS
    return float(seconds * states * rows[0].size)


def is_costly(model: GenerativeModel, observations: Observations) -> bool:
    """Whether starts should compete before they run to their end."""
    return gradient_seconds(model, observations) > COSTLY_SECONDS


def screen(
    loss: Loss, starts: Sequence[Any], observations: Observations, *, num_rows: int = SCREENING_ROWS
) -> list[int]:
    """The starts that are lowest after some iterations on a sample of the rows, in their order.

    Args:
        loss: What is minimised, as in `minimise`.
        starts: Starting points.
        observations: All observations.
        num_rows: Size of the sample.
    """
    if len(starts) <= SURVIVORS:
        return list(range(len(starts)))
    sample = sample_rows(observations, num_rows)
    ends = minimise(
        loss, starts, sample, max_iterations=SCREENING_ITERATIONS, tolerance=0.0, description="screening of starts"
    )
    return sorted(np.argsort(ends.losses, kind="stable")[:SURVIVORS].tolist())
