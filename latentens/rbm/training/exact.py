"""Exact maximum-likelihood training: full batch over distinct rows, L-BFGS, several starts of which the best go on."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import OptimizeResult, minimize

from latentens.errors import LatentensError
from latentens.inference.optimise import STALLED
from latentens.rbm.exact import Flat, LogLikelihood
from latentens.rbm.machine import Machine
from latentens.rbm.rows import MEAN_PSEUDO, VisibleRows
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.units import AnyArray
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.parallel import one_blas_thread, stop_if_asked
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, NotNegative, Positive


@dataclass(frozen=True)
class ExactTraining(Training):
    """Maximise the exact, penalised likelihood `mean log p(x) − penalty/2 · ‖W‖²` by L-BFGS.

    The penalty is for each vote: the weights of a voter who voted on a tenth of the items have a tenth of it. A machine
    with one hidden unit is trained with that unit clamped on rows whose label is known.

    Starts compete: after some iterations the worse half is given up, after as many again half of the rest, and so on;
    the last two run until they converge. If they end at different optima, more starts are drawn. The best end wins.

    Attributes:
        penalty: Weight of the L2 penalty, on W only and per vote.
        restarts: Number of starts that compete: those that are handed to `train`, for one unit the one where labels are
            the items' votes, and random ones for the rest.
        batches: Largest number of such competitions; another one follows while the best two ends of all are farther
            apart than ten times the tolerance.
        trial: Iterations after which the worse half of the starts is given up; after a few the order of the starts
            says hardly anything about the order of their ends.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when no entry of its gradient exceeds this, or when 20 iterations together gain
            less than this in mean log-likelihood.
        weight_scale: Standard deviation of the weights of a random start.
    """

    penalty: NotNegative = 1e-3
    restarts: Count = 16
    batches: Count = 3
    trial: Count = 100
    max_iterations: Count = 1000
    tolerance: Positive = 1e-5
    weight_scale: Positive = 1.0

    @one_blas_thread()
    def _train(self, rows: VisibleRows, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> Trained:
        likelihood = LogLikelihood(rows, num_hidden, self.penalty)
        starts = list(starts)
        if num_hidden == 1:
            starts.append(from_vote_shares(rows))
        climbs: list[_Climb] = []
        for number in range(self.batches):
            batch_key = jax.random.fold_in(key, number)
            drawn = random_machines(rows, num_hidden, self.weight_scale, batch_key, max(0, self.restarts - len(starts)))
            batch = [_Climb(likelihood, start, self.max_iterations, self.tolerance) for start in [*starts, *drawn]]
            with np.errstate(over="ignore"):  # a step of the line search may be far too long
                _compete(batch, self.trial)
            climbs = [climb for climb in [*climbs, *batch] if np.isfinite(climb.curve[-1])]
            climbs.sort(key=lambda climb: climb.curve[-1])
            losses, starts = [climb.curve[-1] for climb in climbs if climb.ended], []
            if self.restarts == 1 or (len(losses) > 1 and losses[1] - losses[0] <= 10 * self.tolerance):
                break
        if not climbs:
            raise LatentensError("exact training failed from every start; use a penalty above zero or more restarts")
        best = climbs[0]
        return Trained(
            ends=tuple(likelihood.machine(climb.point) for climb in climbs),
            curve=-np.array(best.curve),
            diagnostics={
                "training": "exact",
                "objectives": np.array([-climb.curve[-1] for climb in climbs]),
                "starts_given_up": sum(not climb.ended for climb in climbs),
                "iterations": best.iterations,
                "gradient": best.slope,
                "converged": best.converged,
            },
        )


class _Climb:
    """One start on its way."""

    def __init__(self, likelihood: LogLikelihood, start: Machine, max_iterations: int, tolerance: float) -> None:
        self.likelihood, self.max_iterations, self.tolerance = likelihood, max_iterations, tolerance
        self.point: Flat = likelihood.flat(start)
        self.curve: list[float] = []
        """The loss at the start and after each iteration."""
        self.slope, self.ended, self.converged = np.inf, False, False

    @property
    def iterations(self) -> int:
        return max(0, len(self.curve) - 1)

    def go_on(self, iterations: int) -> None:
        """Some more iterations, unless it has ended."""
        iterations = min(iterations, self.max_iterations - self.iterations)
        if self.ended or iterations == 0:
            self.ended = True
            return
        if not self.curve:
            self.curve.append(self.likelihood.loss(self.point)[0])
        end = minimize(
            self._loss,
            self.point,
            jac=True,
            method="L-BFGS-B",
            callback=self._end_if_stalled,
            options={
                "maxiter": iterations,
                "maxfun": 20 * iterations,
                "gtol": self.tolerance,
                "ftol": 0,
                "maxcor": STALLED,
            },
        )
        self.point, self.slope = end.x, float(np.abs(end.jac).max(initial=0.0))
        self.converged = self.slope <= self.tolerance or self._stalled()
        self.ended = self.converged or end.nit < iterations or self.iterations >= self.max_iterations

    def _loss(self, flat: Flat) -> tuple[float, Flat]:
        stop_if_asked()
        return self.likelihood.loss(flat)

    def _end_if_stalled(self, intermediate_result: OptimizeResult) -> None:
        self.curve.append(float(intermediate_result.fun))
        if self._stalled():
            raise StopIteration

    def _stalled(self) -> bool:
        return len(self.curve) > STALLED and self.curve[-1 - STALLED] - self.curve[-1] < self.tolerance


def _compete(climbs: Sequence[_Climb], iterations: int) -> None:
    """Let the better half of the starts go on again and again, until two are left, which go all the way."""
    while len(climbs) > 2:
        for climb in track_late(climbs, "training exactly"):
            climb.go_on(iterations)
        order = np.argsort([climb.curve[-1] for climb in climbs], kind="stable")  # NaN comes last
        climbs = [climbs[number] for number in order[: -(-len(climbs) // 2)]]
    for climb in climbs:
        climb.go_on(climb.max_iterations)


def squared_weights(machine: Machine) -> Float[Array, ""]:
    """`‖W‖²`, whichever states are states 0."""
    return jnp.sum(centred_weights(machine) ** 2)


def centred_weights(machine: Machine) -> Float[AnyArray, "visible hidden"]:
    """W as it is for binary units; for others twice the tables W_ij over all states, centred both ways.

    A table of two by two states with one weight w, centred, has entries ±w/4, so that either has the singular value w.
    """
    visible, hidden = (np.eye(units.num_states) - 1 / units.num_states for units in machine[3:])
    if len(visible) == len(hidden) == 2:
        return machine.weights
    by_visible = visible[:, 1:] @ machine.weights.reshape(machine.num_visible, len(visible) - 1, -1)
    tables = by_visible.reshape(-1, len(hidden) - 1) @ hidden[1:]
    return 2 * tables.reshape(machine.num_visible * len(visible), -1)


def single_unit(rows: VisibleRows, penalty: float, key: jax.Array) -> Machine:
    """The machine with one hidden unit: the Dawid–Skene maximum."""
    return ExactTraining(penalty=penalty).train(rows._replace(label=None), 1, key=key).machine


def from_vote_shares(rows: VisibleRows) -> Machine:
    """The machine with one unit for which each item's label has the distribution of the item's votes."""
    units, pseudo = rows.units, rows.units.num_states * MEAN_PSEUDO
    tables = units.by_unit(np.asarray(rows.visible))
    cast = np.ones(tables.shape[:2]) if rows.observed is None else np.asarray(rows.observed)
    tables = np.concatenate([cast[:, :, None] - tables.sum(axis=2, keepdims=True), tables], axis=2)
    labels = (tables.sum(axis=1) + pseudo) / (cast.sum(axis=1)[:, None] + units.num_states * pseudo)
    if rows.label is not None:
        labels = np.where(rows.label[:, None] < 0, labels, np.eye(units.num_states)[rows.label])
    weighted = (labels * np.asarray(rows.weight)[:, None]).T
    counts = (weighted @ tables.reshape(len(tables), -1)).reshape(-1, *tables.shape[1:]).swapaxes(0, 1) + pseudo
    log_odds = np.log(counts[:, :, 1:]) - np.log(counts[:, :, :1])
    log_zero = np.log(counts[:, :, 0] / counts.sum(axis=2)).sum(axis=0) + np.log(weighted.sum(axis=1) + pseudo)
    weights = np.moveaxis(log_odds[:, 1:] - log_odds[:, :1], 1, 2)
    return Machine(weights.reshape(-1, units.width), log_odds[:, 0].ravel(), log_zero[1:] - log_zero[0], units, units)


def random_machines(
    rows: VisibleRows, num_hidden: int, weight_scale: float, key: jax.Array, number: int
) -> list[Machine]:
    """Machines with random weights whose units are balanced at the mean of the data.

    Binary units have weights of either sign. Of more states, those of a hidden unit stand for the same states of the
    visible ones, which a few starts of arbitrary order would seldom hit on.
    """
    units, means = rows.units, np.asarray(rows.means)
    of_states = np.concatenate([1 - units.by_unit(means).sum(axis=1, keepdims=True), units.by_unit(means)], axis=1)
    biases = (np.log(of_states[:, 1:]) - np.log(of_states[:, :1])).ravel()
    table = 1 + np.eye(units.width)  # equal entries on its diagonal
    machines = []
    for drawn in weight_scale * numpy_generator(key).normal(size=(number, rows.num_units, num_hidden)):
        weights = drawn if units.width == 1 else np.kron(np.abs(drawn), table)
        machines.append(uncentre(Machine(weights, biases, np.zeros(weights.shape[1]), units, units), means))
    return machines


def uncentre(centred: Machine, means: Float[AnyArray, " visible"]) -> Machine:
    """The machine whose energy is that of another one in the variables `x − means` and `h − 1/K`."""
    weights, visible_bias, hidden_bias = centred[:3]
    share = weights.sum(axis=1) / centred.hidden_units.num_states
    return centred._replace(visible_bias=visible_bias - share, hidden_bias=hidden_bias - means @ weights)


def centre(machine: Machine, means: Float[AnyArray, " visible"]) -> Machine:
    """The inverse of `uncentre`."""
    weights, visible_bias, hidden_bias = machine[:3]
    share = weights.sum(axis=1) / machine.hidden_units.num_states
    return machine._replace(visible_bias=visible_bias + share, hidden_bias=hidden_bias + means @ weights)
