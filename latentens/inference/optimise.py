"""L-BFGS from many starting points side by side, the loss compiled once for all of them."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from scipy.optimize import OptimizeResult, minimize

from latentens.runtime.devices import fetch, num_workers
from latentens.runtime.parallel import in_threads, stop_if_asked
from latentens.runtime.precision import double_precision
from latentens.runtime.threads import one_blas_thread

Loss = Callable[[Any, Any], Float[Array, ""]]
GiveUp = Callable[[Float[np.ndarray, " element"], float, float], bool]
ValueAndGradient = Callable[[Float[np.ndarray, " element"]], tuple[float, Float[np.ndarray, " element"]]]
STALLED = 5
"""This many iterations together tell whether a start still gets anywhere."""

EARLY = 40
"""Before this many iterations the order of starts says little about the order of their ends."""

Start = TypeVar("Start")
End = TypeVar("End")


class Optima(NamedTuple):
    """Where each start ended."""

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


def continued(first: Optima, second: Optima) -> Optima:
    """Where each start ended that went on from where it had ended before."""
    curves = [np.concatenate(pair) for pair in zip(first.curves, second.curves, strict=True)]
    return second._replace(iterations=first.iterations + second.iterations, curves=curves)


class Descent(NamedTuple):
    """Where one start ended.

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


@one_blas_thread()
def minimise(
    loss: Loss,
    starts: Sequence[PyTree[Float[np.ndarray, "..."]]],
    data: PyTree,
    *,
    max_iterations: int,
    tolerance: float,
    description: str,
    least_gain: float = 0.0,
) -> Optima:
    """Minimise a function from several starts, as many at a time as there are cores.

    Each start runs on its own: in one vectorised program all would pay for the line searches of the slowest.

    Args:
        loss: `loss(point, data)`; hashable, since the compiled code is kept by it.
        starts: Starting points.
        data: Second argument of the loss.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when no entry of its gradient exceeds this.
        description: What the progress bar says.
        least_gain: A start ends too when `STALLED` iterations together gain less than this.
    """
    form = _Form.of(starts[0])

    def value_and_gradient(flat: Float[np.ndarray, " element"]) -> tuple[float, Float[np.ndarray, " element"]]:
        return fetch(_value_and_gradient(loss, form, flat, data))

    flat_starts = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)]) for start in starts]
    value_and_gradient(flat_starts[0])  # compiles
    run = partial(
        descend_from, value_and_gradient, max_iterations=max_iterations, tolerance=tolerance, least_gain=least_gain
    )
    optima = gathered(in_parallel(run, flat_starts, description))
    return optima._replace(points=stack([form.unflatten(point) for point in optima.points]))


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
) -> Descent:
    """Minimise a function of a vector from one start by L-BFGS.

    Args:
        value_and_gradient: The function and its gradient.
        start: Where to start.
        max_iterations: Limit on the iterations.
        tolerance: It has converged when no entry of the gradient exceeds this.
        least_gain: It ends too when as many iterations as `window` together gain less than this.
        window: That number of iterations.
        give_up: Asked after `EARLY` iterations, twice as many and so on, with the point, the loss and what the later
            half of them gained; ends it as well.
    """

    def watched(point: Float[np.ndarray, " element"]) -> tuple[float, Float[np.ndarray, " element"]]:
        stop_if_asked()
        value, gradient = value_and_gradient(point)
        return float(value), gradient

    curve = [watched(start)[0]]

    def end_if_stalled(intermediate_result: OptimizeResult) -> None:
        curve.append(float(intermediate_result.fun))
        if len(curve) > window:
            number, rest = divmod(len(curve) - 1, EARLY)
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
    """Run something from each start, in double precision and, on one device, as many threads as there are cores.

    What it needs compiled should be compiled before, or every thread does it for itself.
    """
    return in_threads(double_precision(run), starts, workers=num_workers(), description=description)


def stack(trees: Sequence[PyTree]) -> PyTree:
    """One tree whose leaves have a leading axis for the trees."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@dataclass(frozen=True)
class _Form:
    """How points lie in a vector; nothing is compiled to lay one out, as `ravel_pytree` would do for every shape."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, point: PyTree[Float[np.ndarray, "..."]]) -> "_Form":
        leaves, structure = jax.tree.flatten(point)
        return cls(structure, tuple(np.shape(leaf) for leaf in leaves))

    def unflatten(self, flat: Any) -> PyTree:
        """The point of a vector, of JAX or NumPy."""
        ends = np.cumsum([0, *map(math.prod, self.shapes)]).tolist()
        parts = zip(itertools.pairwise(ends), self.shapes, strict=True)
        return jax.tree.unflatten(self.structure, [flat[start:stop].reshape(shape) for (start, stop), shape in parts])


@partial(jax.jit, static_argnums=(0, 1))
def _value_and_gradient(loss: Loss, form: _Form, flat: Array, data: Any) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda point: loss(form.unflatten(point), data))(flat)
