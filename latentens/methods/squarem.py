"""Squared extrapolation of a monotone fixed-point iteration (SQUAREM, Varadhan & Roland 2008).

Where two rounds lead from θ₀ to θ₁ and θ₂, in square roots of probabilities or counts, let r = θ₁ − θ₀ and
v = θ₂ − θ₁ − r. The climb goes on from θ₀ + 2αr + α²v with α = |r| / |v|; α = 1 is θ₂. A jump that lands lower than θ₁
is undone by the caller, so that the objective never falls, and further ones are shorter.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

PLAIN_ROUNDS = 10
"""Number of plain rounds before the first jump: far from an optimum a jump could lead to another one."""

FIRST_JUMP = LONGER_JUMP = 4.0
"""The first bound on α, and the factor by which a bound changes that was too low or too high."""

Lengths = Float[np.ndarray, "*start"]


def squared_jump(
    points: Sequence[Sequence[np.ndarray]], longest: Lengths, axis: int | None = None
) -> tuple[list[np.ndarray], Lengths]:
    """Where a jump lands, arrays of squared roots, and its length α for each start.

    Args:
        points: For each array of parameters, its values before and after two rounds.
        longest: Bounds of α.
        axis: The axis along which starts lie side by side; None if the arrays are those of one start.
    """
    paths, steps, bends = [], 0.0, 0.0
    for begin, middle, end in (map(np.sqrt, part) for part in points):
        step, bend = middle - begin, end - 2 * middle + begin
        others = None if axis is None else tuple(i for i in range(begin.ndim) if i != axis)
        steps, bends = steps + np.sum(step**2, axis=others), bends + np.sum(bend**2, axis=others)
        paths.append((begin, step, bend))
    length = np.clip(np.sqrt(steps / np.maximum(bends, np.finfo(float).tiny)), 1.0, longest)
    landed = []
    for begin, step, bend in paths:
        alpha = length if axis is None else np.expand_dims(length, [i for i in range(begin.ndim) if i != axis])
        landed.append(np.square(begin + 2 * alpha * step + alpha**2 * bend))
    return landed, length


def next_bound(length: Lengths, longest: Lengths, is_good: np.ndarray | bool) -> Lengths:
    """Bounds of the next jumps: longer where a jump as long as allowed was good, shorter where one had to be undone."""
    longer = np.where(length == longest, LONGER_JUMP * longest, longest)
    return np.where(is_good, longer, np.maximum(length / LONGER_JUMP, 1.0))
