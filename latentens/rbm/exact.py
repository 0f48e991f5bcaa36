"""Exact maximum-likelihood training: full batch over distinct rows, L-BFGS, several random starts."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import logit
from jaxtyping import Array, Float, Int

from latentens.errors import LatentensError
from latentens.rbm.energy import Machine, log_partition, log_unnormalised
from latentens.rbm.progress import track_late
from latentens.rbm.rows import Rows
from latentens.rbm.trained import Trained


@dataclass(frozen=True)
class ExactTraining:
    """Maximise the exact, penalised likelihood `mean log p(x) − penalty/2 · ‖W‖²` by L-BFGS.

    The starts share one compiled program and run one after another: side by side in one vectorised loop they wait
    for each other in every line search, which measured ten times slower on a CPU.

    Attributes:
        penalty: Weight of the L2 penalty, on W only and per item.
        restarts: Number of random starts; the best penalised likelihood wins.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when no entry of its gradient exceeds this.
        spread: Standard deviation of the starting weights.
    """

    penalty: float = 5e-4
    restarts: int = 8
    max_iterations: int = 500
    tolerance: float = 1e-5
    spread: float = 1.0

    def train(self, rows: Rows, num_hidden: int, *, key: jax.Array) -> Trained:
        """Train a machine with `num_hidden` hidden units."""
        options = {"num_hidden": num_hidden, "max_iterations": self.max_iterations}
        runs = [
            jax.device_get(_climb(rows, start_key, self.penalty, self.tolerance, self.spread, **options))
            for start_key in track_late(list(jax.random.split(key, self.restarts)), "training exactly")
        ]
        losses = np.array([run.loss for run in runs])
        if not np.isfinite(losses).any():
            raise LatentensError("exact training failed from every start; use a penalty above zero or more restarts")
        best = runs[int(np.nanargmin(losses))]
        return Trained(
            best.machine,
            curve=-best.curve[: best.iterations],
            diagnostics={
                "training": "exact",
                "objectives": -losses,
                "iterations": int(best.iterations),
                "gradient": float(best.slope),
                "converged": bool(best.slope <= self.tolerance),
            },
        )


class _Run(NamedTuple):
    machine: Machine
    optimiser: Any
    loss: Float[Array, ""]
    slope: Float[Array, ""]
    iterations: Int[Array, ""]
    curve: Float[Array, " iteration"]


def penalised_loss(machine: Machine, rows: Rows, penalty: float | Float[Array, ""]) -> Float[Array, ""]:
    """`penalty/2 · ‖W‖² − mean log p(x)`: what exact training minimises."""
    mean = rows.weight @ log_unnormalised(machine, rows.visible, rows.observed) - log_partition(machine)
    return 0.5 * penalty * jnp.sum(machine.weights**2) - mean


def single_unit(rows: Rows, penalty: float, key: jax.Array) -> Machine:
    """The machine with one hidden unit, quickly: the Dawid–Skene maximum."""
    return ExactTraining(penalty, restarts=2, tolerance=1e-4).train(rows, 1, key=key).machine


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


@partial(jax.jit, static_argnames=("num_hidden", "max_iterations"))
def _climb(
    rows: Rows, key: jax.Array, penalty: float, tolerance: float, spread: float, *, num_hidden: int, max_iterations: int
) -> _Run:
    """Train from one random start."""
    optimiser = optax.lbfgs()

    def loss(machine: Machine) -> Float[Array, ""]:
        return penalised_loss(machine, rows, penalty)

    def step(run: _Run) -> _Run:
        value, gradient = (optax.tree.get(run.optimiser, name) for name in ("value", "grad"))
        updates, state = optimiser.update(
            gradient, run.optimiser, run.machine, value=value, grad=gradient, value_fn=loss
        )
        value, gradient = (optax.tree.get(state, name) for name in ("value", "grad"))
        slope = optax.tree.norm(gradient, ord=jnp.inf)
        machine = optax.apply_updates(run.machine, updates)
        return _Run(machine, state, value, slope, run.iterations + 1, run.curve.at[run.iterations].set(value))

    def unfinished(run: _Run) -> Array:
        return (run.slope > tolerance) & (run.iterations < max_iterations)

    machine = random_machine(rows, num_hidden, spread, key)
    value, gradient = jax.value_and_grad(loss)(machine)
    state = optax.tree.set(optimiser.init(machine), value=value, grad=gradient)
    start = _Run(machine, state, value, jnp.array(jnp.inf), jnp.array(0), jnp.zeros(max_iterations))
    return jax.lax.while_loop(unfinished, step, start)
