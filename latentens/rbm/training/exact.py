"""Exact maximum-likelihood training: full batch over distinct rows, L-BFGS, several random starts."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from latentens.errors import LatentensError
from latentens.inference.optimise import Optima, joined, minimise
from latentens.rbm.enumeration import enumeration_cost
from latentens.rbm.machine import Machine, log_partition, log_unnormalised
from latentens.rbm.rows import MEAN_PSEUDO, VisibleRows
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.units import AnyArray
from latentens.runtime.devices import fetch
from latentens.runtime.limits import check_time
from latentens.runtime.randomness import numpy_generator
from latentens.runtime.settings import Count, NotNegative, Positive

SAME_OPTIMUM = 1e-4
"""Losses per item that differ by less than this are of one optimum."""

EVALUATIONS = 1000
"""Evaluations of the likelihood in a training: a few starts of some hundred iterations."""


@dataclass(frozen=True)
class ExactTraining(Training):
    """Maximise the exact, penalised likelihood `mean log p(x) − penalty/2 · ‖W‖²` by L-BFGS.

    The penalty is for each vote: the weights of a voter who voted on a tenth of the items have a tenth of it. On top of
    it, voters may be drawn towards their mean, which is as much as those with few votes can be told from others.

    Starts that are handed to `train` take the place of the first half of the random ones.

    Attributes:
        penalty: Weight of the L2 penalty, on W only and per vote.
        pooling: Precision of the normal distribution around the mean of all voters that a voter's biases and weights
            are drawn from.
        restarts: Largest number of starts, which are random but for the first of a machine with one unit, where labels
            are the items' votes; the best penalised likelihood wins. The second half is only run
            if no optimum was reached by most of the first half, which has at least two.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when no entry of its gradient exceeds this.
        weight_scale: Standard deviation of the weights of a random start.
    """

    penalty: NotNegative = 1e-3
    restarts: Count = 8
    max_iterations: Count = 1000
    tolerance: Positive = 1e-5
    weight_scale: Positive = 1.0
    pooling: NotNegative = 0.0

    def _train(self, rows: VisibleRows, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> Trained:
        seconds = EVALUATIONS * enumeration_cost(rows, num_hidden).seconds
        check_time(seconds, f"exact training of {num_hidden} hidden units", "use SampledTraining or fewer hidden units")
        random = random_machines(rows, num_hidden, self.weight_scale, jax.random.split(key, self.restarts))
        first = max(2, -(-self.restarts // 2))
        if num_hidden == 1:
            random[0] = fetch(from_vote_shares(rows))
        optima = self._minimise(rows, starts or random[:first])
        if random[first:] and not _agree(optima.losses):
            optima = joined(optima, self._minimise(rows, random[first:]))
        order = _best_first(optima)
        return Trained(
            ends=tuple(Machine(*optima.point(start)) for start in order),
            curve=-optima.curves[order[0]],
            diagnostics={
                "training": "exact",
                "objectives": -optima.losses,
                "iterations": int(optima.iterations[order[0]]),
                "gradient": float(optima.slopes[order[0]]),
                "converged": bool(optima.slopes[order[0]] <= self.tolerance),
            },
        )

    def _minimise(self, rows: VisibleRows, starts: Sequence[Machine]) -> Optima:
        return minimise(
            _loss,
            starts,
            (rows, self.penalty, self.pooling),
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
            description="training exactly",
        )


def _agree(losses: Float[np.ndarray, " start"]) -> bool:
    """Whether most of several starts, at least two, ended at the best optimum of all."""
    reached = np.sum(losses < np.nanmin(losses) + SAME_OPTIMUM)
    return bool(reached >= 2 and reached > len(losses) / 2)


def _best_first(optima: Optima) -> list[int]:
    """The starts that ended at a finite loss, the lowest first."""
    order = [int(start) for start in np.argsort(optima.losses) if np.isfinite(optima.losses[start])]
    if not order:
        raise LatentensError("exact training failed from every start; use a penalty above zero or more restarts")
    return order


def penalised_loss(
    machine: Machine, rows: VisibleRows, penalty: float | Float[Array, ""], pooling: float | Float[Array, ""] = 0.0
) -> Float[Array, ""]:
    """`penalty/2 · Σ_i (votes of i / items) ‖W_i‖² + pooling/(2 items) · spread − mean log p(x)`."""
    mean = rows.weight @ log_unnormalised(machine, rows.visible, rows.observed) - log_partition(machine)
    shares = None if rows.observed is None else rows.vote_shares
    loss = 0.5 * penalty * squared_weights(machine, shares) - mean
    if rows.observed is None:
        return loss
    return loss + 0.5 * pooling / rows.num_items * _spread(machine)


def _spread(machine: Machine) -> Float[Array, ""]:
    """The sum of squared deviations of the voters' log-odds from their means over the voters."""
    bias = machine.visible_bias[:, None]
    tables = jnp.concatenate([bias, bias + machine.weights], axis=1)  # log-odds given each state of a hidden unit
    by_voter = machine.visible_units.centred(tables.T)  # whichever state is state 0
    return 2 * jnp.sum((by_voter - by_voter.mean(axis=1, keepdims=True)) ** 2)


def squared_weights(machine: Machine, shares: Float[Array, " unit"] | None = None) -> Float[Array, ""]:
    """`‖W‖²`, whichever states are states 0; the part of each visible unit times its share, if there are any."""
    squares = centred_weights(machine) ** 2
    if shares is None:
        return jnp.sum(squares)
    return shares @ squares.reshape(len(shares), -1).sum(axis=1)


def centred_weights(machine: Machine) -> Float[AnyArray, "visible hidden"]:
    """W as it is for binary units; for others twice the tables W_ij over all states, centred both ways.

    A table of two by two states with one weight w, centred, has entries ±w/4, so that either has the singular value w.
    """
    visible, hidden = machine.visible_units, machine.hidden_units
    if visible.width == hidden.width == 1:
        return machine.weights
    by_hidden = hidden.centred(machine.weights).reshape(len(machine.weights), -1)
    return 2 * visible.centred(by_hidden.T).reshape(by_hidden.shape[1], -1).T


def _loss(machine: Machine, data: tuple[VisibleRows, float, float]) -> Float[Array, ""]:
    return penalised_loss(machine, *data)


def single_unit(rows: VisibleRows, penalty: float, key: jax.Array) -> Machine:
    """The machine with one hidden unit, quickly: the Dawid–Skene maximum."""
    starts = random_machines(rows, 1, 1.0, jax.random.split(key, 2))
    description = "one hidden unit"
    optima = minimise(_loss, starts, (rows, penalty, 0.0), max_iterations=1000, tolerance=1e-4, description=description)
    return Machine(*optima.point(_best_first(optima)[0]))


@jax.jit
def from_vote_shares(rows: VisibleRows) -> Machine:
    """The machine with one unit for which each item's label has the distribution of the item's votes."""
    units, pseudo = rows.units, rows.units.num_states * MEAN_PSEUDO
    tables = units.by_unit(rows.visible)
    cast = jnp.ones(tables.shape[:2]) if rows.observed is None else rows.observed
    tables = jnp.concatenate([cast[:, :, None] - tables.sum(axis=2, keepdims=True), tables], axis=2)
    labels = (tables.sum(axis=1) + pseudo) / (cast.sum(axis=1)[:, None] + units.num_states * pseudo)
    counts = jnp.einsum("r,rs,riv->isv", rows.weight, labels, tables) + pseudo
    log_odds = jnp.log(counts[:, :, 1:]) - jnp.log(counts[:, :, :1])
    log_zero = jnp.log(counts[:, :, 0] / counts.sum(axis=2)).sum(axis=0) + jnp.log(rows.weight @ labels)
    weights = jnp.moveaxis(log_odds[:, 1:] - log_odds[:, :1], 1, 2)
    return Machine(weights.reshape(-1, units.width), log_odds[:, 0].ravel(), log_zero[1:] - log_zero[0], units, units)


def random_machines(
    rows: VisibleRows, num_hidden: int, weight_scale: float, keys: Key[Array, " start"]
) -> list[Machine]:
    """Machines with random weights whose units are balanced at the mean of the data.

    Binary units have weights of either sign. Of more states, those of a hidden unit stand for the same states of the
    visible ones, which a few starts of arbitrary order would seldom hit on.
    """
    units, means = rows.units, fetch(rows.means)
    biases = fetch(units.log_odds(means))
    machines = []
    for key in keys:
        drawn = weight_scale * numpy_generator(key).normal(size=(rows.num_units, num_hidden))
        table = 1 + np.eye(units.width)  # equal entries on its diagonal
        weights = drawn if units.width == 1 else np.kron(np.abs(drawn), table)
        machines.append(uncentre(Machine(weights, biases, np.zeros(weights.shape[1]), units, units), means))
    return machines


def uncentre(centred: Machine, means: Float[Array, " visible"]) -> Machine:
    """The machine whose energy is that of another one in the variables `x − means` and `h − 1/K`."""
    weights, visible_bias, hidden_bias = centred[:3]
    share = weights.sum(axis=1) / centred.hidden_units.num_states
    return centred._replace(visible_bias=visible_bias - share, hidden_bias=hidden_bias - means @ weights)


def centre(machine: Machine, means: Float[Array, " visible"]) -> Machine:
    """The inverse of `uncentre`."""
    weights, visible_bias, hidden_bias = machine[:3]
    share = weights.sum(axis=1) / machine.hidden_units.num_states
    return machine._replace(visible_bias=visible_bias + share, hidden_bias=hidden_bias + means @ weights)
