"""Exact maximum-likelihood training: full batch over distinct rows, L-BFGS, several random starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit
from jaxtyping import Array, Float

from latentens.errors import LatentensError
from latentens.inference.optimise import Optima, joined, minimise
from latentens.rbm.machine import Machine, log_partition, log_unnormalised
from latentens.rbm.rows import Rows
from latentens.rbm.training.cost import exact_cost
from latentens.rbm.training.trained import Trained
from latentens.runtime.limits import check_time

SAME_OPTIMUM = 1e-4
"""Losses per item that differ by less than this are of one optimum."""


@dataclass(frozen=True)
class ExactTraining:
    """Maximise the exact, penalised likelihood `mean log p(x) − penalty/2 · ‖W‖²` by L-BFGS.

    Attributes:
        penalty: Weight of the L2 penalty, on W only and per item.
        restarts: Largest number of random starts; the best penalised likelihood wins. The second half is only run
            if no optimum was reached by most of the first half, which has at least two.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when no entry of its gradient exceeds this.
        spread: Standard deviation of the starting weights.
    """

    penalty: float = 1e-3
    restarts: int = 8
    max_iterations: int = 1000
    tolerance: float = 1e-5
    spread: float = 1.0

    def train(self, rows: Rows, num_hidden: int, *, key: jax.Array, starts: Sequence[Machine] = ()) -> Trained:
        """Train a machine with `num_hidden` hidden units.

        Args:
            rows: What to train on.
            num_hidden: Number of hidden units.
            key: Random key.
            starts: Machines to start from, in place of the first half of the random ones.
        """
        remedy = "use SampledTraining or fewer hidden units"
        check_time(exact_cost(rows, num_hidden).seconds, f"exact training of {num_hidden} hidden units", remedy)
        random = [
            jax.device_get(random_machine(rows, num_hidden, self.spread, start_key))
            for start_key in jax.random.split(key, self.restarts)
        ]
        first = max(2, -(-self.restarts // 2))
        optima = self._minimise(rows, starts or random[:first])
        if random[first:] and not _agree(optima.losses):
            optima = joined(optima, self._minimise(rows, random[first:]))
        if not np.isfinite(optima.losses).any():
            raise LatentensError("exact training failed from every start; use a penalty above zero or more restarts")
        best = optima.best
        order = [start for start in np.argsort(optima.losses) if np.isfinite(optima.losses[start])]
        return Trained(
            ends=tuple(Machine(*map(jnp.asarray, optima.point(start))) for start in order),
            curve=-optima.curves[best],
            diagnostics={
                "training": "exact",
                "objectives": -optima.losses,
                "iterations": int(optima.iterations[best]),
                "gradient": float(optima.slopes[best]),
                "converged": bool(optima.slopes[best] <= self.tolerance),
            },
        )

    def _minimise(self, rows: Rows, starts: Sequence[Machine]) -> Optima:
        return minimise(
            _loss,
            starts,
            (rows, self.penalty),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
            description="training exactly",
        )


def _agree(losses: Float[np.ndarray, " start"]) -> bool:
    """Whether most of several starts, at least two, ended at the best optimum of all."""
    reached = np.sum(losses < np.nanmin(losses) + SAME_OPTIMUM)
    return bool(reached >= 2 and reached > len(losses) / 2)


def penalised_loss(machine: Machine, rows: Rows, penalty: float | Float[Array, ""]) -> Float[Array, ""]:
    """`penalty/2 · ‖W‖² − mean log p(x)`: what exact training minimises."""
    mean = rows.weight @ log_unnormalised(machine, rows.visible, rows.observed) - log_partition(machine)
    return 0.5 * penalty * jnp.sum(machine.weights**2) - mean


def single_unit(rows: Rows, penalty: float, key: jax.Array) -> Machine:
    """The machine with one hidden unit, quickly: the Dawid–Skene maximum."""
    return ExactTraining(penalty, restarts=2, tolerance=1e-4).train(rows, 1, key=key).machine


@partial(jax.jit, static_argnums=1)
def random_machine(rows: Rows, num_hidden: int, spread: float | Float[Array, ""], key: jax.Array) -> Machine:
    """A machine with random weights whose units are balanced at the mean of the data."""
    means = rows.means
    weights = spread * jax.random.normal(key, (len(means), num_hidden))
    return uncentre(Machine(weights, logit(means), jnp.zeros(num_hidden)), means)


def uncentre(centred: Machine, means: Float[Array, " visible"]) -> Machine:
    """The machine whose energy is that of another one in the variables `x − means` and `h − 1/2`."""
    weights, visible_bias, hidden_bias = centred
    return Machine(weights, visible_bias - weights.sum(axis=1) / 2, hidden_bias - means @ weights)


def centre(machine: Machine, means: Float[Array, " visible"]) -> Machine:
    """The inverse of `uncentre`."""
    weights, visible_bias, hidden_bias = machine
    return Machine(weights, visible_bias + weights.sum(axis=1) / 2, hidden_bias + means @ weights)


def _loss(machine: Machine, data: tuple[Rows, float]) -> Float[Array, ""]:
    return penalised_loss(machine, *data)
