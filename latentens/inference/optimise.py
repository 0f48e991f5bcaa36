"""L-BFGS from many starting points side by side, the loss compiled once for all of them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree
from scipy.optimize import OptimizeResult, minimize

from latentens.runtime.blocks import num_workers
from latentens.runtime.numerics import double_precision
from latentens.runtime.parallel import in_threads, stop_if_asked

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
    """A warning if the usual start ended lower than another.

    Args:
        start: The name of the start.
        end: The objective at its end.
        best: The objective at the end of the best start.
    """
    if best - end < SAME_OPTIMUM:
        return []
    return [f"the start from {start} ends in a local optimum, {end:,.3f}, and another start reaches {best:,.3f}"]


GiveUp = Callable[[Float[np.ndarray, " element"], float, float], bool]
ValueAndGradient = Callable[[Float[np.ndarray, " element"]], tuple[float, Float[np.ndarray, " element"]]]
STALLED = 20
"""Window, in iterations, over which a start must still improve."""

Start = TypeVar("Start")
End = TypeVar("End")


class Optima(NamedTuple):
    """The ends of all starts."""

    points: PyTree[Float[np.ndarray, "start ..."]]
    losses: Float[np.ndarray, " start"]
    slopes: Float[np.ndarray, " start"]
    """Largest entry of the gradient."""
    iterations: Int[np.ndarray, " start"]
    curves: list[Float[np.ndarray, " iteration"]]
    """The loss at the start and after each iteration."""

    @property
    def best(self) -> int:
        """The start that ended lowest."""
        return int(np.nanargmin(self.losses))

    def point(self, start: int) -> PyTree[Float[np.ndarray, "..."]]:
        """The point where a start ended."""
        return jax.tree.map(lambda leaf: leaf[start], self.points)


class Descent(NamedTuple):
    """The end of one start.

    Attributes:
        point: The point.
        loss: The loss there.
        slope: Largest entry of the gradient.
        curve: The loss at the start and after each iteration.
    """

    point: Float[np.ndarray, " element"]
    loss: float
    slope: float
    curve: Float[np.ndarray, " iteration"]


def gathered(descents: Sequence[Descent]) -> Optima:
    """The ends of several descents."""
    points, losses, slopes, curves = zip(*descents, strict=True)
    iterations = np.array([len(curve) - 1 for curve in curves])
    return Optima(np.stack(points), np.array(losses), np.array(slopes), iterations, list(curves))


def descend_from(
    value_and_gradient: ValueAndGradient,
    start: Float[np.ndarray, " element"],
    *,
    max_iterations: int,
    tolerance: float,
    least_gain: float = 0.0,
    window: int = STALLED,
    give_up: GiveUp | None = None,
    curve: Sequence[float] | Float[np.ndarray, " iteration"] = (),
) -> Descent:
    """Minimise a function of a vector from one start by L-BFGS.

    Args:
        value_and_gradient: The function and its gradient.
        start: Where to start.
        max_iterations: Limit on the iterations.
        tolerance: It has converged when no entry of the gradient exceeds this.
        least_gain: It also ends when the last `window` iterations together gain less than this.
        window: That number of iterations.
        give_up: Called after 2, 4, 8, … times `STALLED` iterations with the point, the loss and the gain of the later
            half of the iterations; true ends the descent. Earlier the order of starts hardly predicts that of their
            ends.
        curve: The losses so far, to continue an earlier descent.
    """

    def watched(point: Float[np.ndarray, " element"]) -> tuple[float, Float[np.ndarray, " element"]]:
        stop_if_asked()
        value, gradient = value_and_gradient(point)
        return float(value), gradient

    curve = list(curve) or [watched(start)[0]]

    def end_if_stalled(intermediate_result: OptimizeResult) -> None:
        curve.append(float(intermediate_result.fun))
        if len(curve) > window:
            number, rest = divmod(len(curve) - 1, 2 * STALLED)
            later_half = curve[(len(curve) - 1) // 2] - curve[-1]
            if curve[-1 - window] - curve[-1] < least_gain:
                raise StopIteration
            is_time = rest == 0 and number.bit_count() == 1
            if give_up is not None and is_time and give_up(intermediate_result.x, curve[-1], later_half):
                raise StopIteration

    end = minimize(
        watched,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=end_if_stalled,
        options={"maxiter": max_iterations, "maxfun": 20 * max_iterations, "gtol": tolerance, "ftol": 0, "maxcor": 20},
    )
    return Descent(end.x, float(end.fun), float(np.abs(end.jac).max(initial=0.0)), np.array(curve))


def in_parallel(run: Callable[[Start], End], starts: Sequence[Start], description: str) -> list[End]:
    """Run a function from each start in double precision, on one device in as many threads as there are cores.

    Compile what it needs beforehand, or every thread compiles it.
    """
    return in_threads(double_precision(run), starts, workers=num_workers(), description=description)


def stack(trees: Sequence[PyTree]) -> PyTree:
    """One tree whose leaves have a leading axis for the trees."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def hessian(
    function: Callable[[Float[jax.Array, " element"]], jax.Array],
    point: Float[jax.Array, " element"],
    columns_at_once: int = 8,
) -> Float[jax.Array, "element element"]:
    """The second derivatives of a function of a vector, some columns at a time to bound the memory."""
    slope = jax.grad(function)
    return jax.lax.map(
        lambda direction: jax.jvp(slope, (point,), (direction,))[1], jnp.eye(len(point)), batch_size=columns_at_once
    )
