"""Several starts, several optima: which ones were found, and by how many starts."""

import numpy as np
from jaxtyping import Float

SAME_OPTIMUM = 0.01
"""Optima whose objectives differ by less than this many nats count as one."""


def group_starts(objectives: Float[np.ndarray, " start"]) -> list[list[int]]:
    """The starts that reached each distinct optimum, the best optimum and the best start first."""
    groups: list[list[int]] = []
    for start in np.argsort(-objectives, kind="stable").tolist():
        if groups and objectives[groups[-1][0]] - objectives[start] < SAME_OPTIMUM:
            groups[-1].append(start)
        else:
            groups.append([start])
    return groups


def list_optima(objectives: Float[np.ndarray, " start"]) -> list[dict[str, float | int]]:
    """The distinct optima, best first, and how many starts reached each."""
    groups = group_starts(objectives)
    return [{"objective": float(objectives[starts[0]]), "starts": len(starts)} for starts in groups]


def local_optimum_warnings(start: str, end: float, best: float) -> list[str]:
    """What to say if the usual start ended lower than another.

    Args:
        start: What the start is called.
        end: The objective where it ended.
        best: The objective where the best start ended.
    """
    if best - end < SAME_OPTIMUM:
        return []
    return [f"the start from {start} ends in a local optimum, {end:,.3f}, and another start reaches {best:,.3f}"]
