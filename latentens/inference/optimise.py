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
STALLED = 20
"""So many iterations together tell whether a start still gets anywhere."""

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
    """Where one start ended."""

    point: PyTree[Float[np.ndarray, "..."]]
    loss: float
    slope: float
    iterations: int


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
    run = partial(descend, loss, data=data, max_iterations=max_iterations, tolerance=tolerance, least_gain=least_gain)
    descend(loss, starts[0], data, max_iterations=0, tolerance=tolerance)  # compiles
    descents, curves = zip(*in_parallel(run, starts, description), strict=True)
    points, losses, slopes, iterations = zip(*descents, strict=True)
    return Optima(stack(points), np.array(losses), np.array(slopes), np.array(iterations), list(curves))


def descend(
    loss: Loss,
    start: PyTree[Float[np.ndarray, "..."]],
    data: PyTree,
    *,
    max_iterations: int,
    tolerance: float,
    least_gain: float = 0.0,
) -> tuple[Descent, Float[np.ndarray, " iteration"]]:
    """Minimise a function from one start by L-BFGS; also returns the loss after each iteration."""
    form = _Form.of(start)
    flat_start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)])

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        stop_if_asked()
        value, gradient = fetch(_value_and_gradient(loss, form, flat, data))
        return float(value), gradient

    curve = [value_and_gradient(flat_start)[0]]

    def end_if_stalled(intermediate_result: OptimizeResult) -> None:
        curve.append(float(intermediate_result.fun))
        if len(curve) > STALLED and curve[-1 - STALLED] - curve[-1] < least_gain:
            raise StopIteration

    end = minimize(
        value_and_gradient,
        flat_start,
        jac=True,
        method="L-BFGS-B",
        callback=end_if_stalled,
        options={"maxiter": max_iterations, "maxfun": 20 * max_iterations, "gtol": tolerance, "ftol": 0, "maxcor": 20},
    )
    slope = float(np.abs(end.jac).max(initial=0.0))
    return Descent(form.unflatten(end.x), float(end.fun), slope, int(end.nit)), np.array(curve)


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
