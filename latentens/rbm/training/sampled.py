"""Sampled training: contrastive divergence, persistent or not, on shuffled mini-batches."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import logit
from jaxtyping import Array, Bool, Float, Int

from latentens.errors import LatentensError
from latentens.rbm.annealing import estimate_log_partition, gibbs_sweep, sample_exactly
from latentens.rbm.machine import Machine, free_energy, log_partition
from latentens.rbm.rows import Rows
from latentens.rbm.training.exact import centre, single_unit, uncentre
from latentens.rbm.training.trained import Trained
from latentens.runtime.progress import track_late

LARGEST_EXACT_SCORE = 14
"""The held-out likelihood is exact if the smaller layer has at most this many units, annealed above."""

EPOCH_ITEMS = 2**17
"""At most this many items are drawn from the rows as training set."""


@dataclass(frozen=True)
class SampledTraining:
    """Stochastic gradient ascent of the likelihood, its gradient estimated by Gibbs chains.

    Attributes:
        penalty: Weight of the L2 penalty `penalty/2 · ‖W‖²`.
        sparsity: Weight of the L1 penalty `sparsity · Σ|W|`.
        learning_rate: Step size at the start, times the number of visible units: the steepest direction of the
            likelihood is about as steep as there are units that move together.
        schedule: How the step size falls to zero over all epochs, if it does.
        momentum: Share of the last step that is repeated.
        gibbs_steps: k, the sweeps of each chain between two updates.
        persistent: Whether chains continue from update to update (PCD) or start at the data (CD).
        jumps: Whether persistent chains may also jump to samples of the machine with one unit, and so to the other
            label, between updates.
        batch_size: Items in a mini-batch, and number of chains.
        epochs: Passes through the training items.
        held_out: Share of the items that only serve to score; 0 trains on all items for all epochs and scores once.
        patience: Stop after that many epochs without a better held-out likelihood; the best machine is kept.
        informed: Whether the first unit starts at the Dawid–Skene maximum, so that chains, which rarely change the
            label, start on both of its sides.
        spread: Standard deviation of the starting input of a hidden unit: that of a weight times √visible units.
    """

    penalty: float = 5e-4
    sparsity: float = 0.0
    learning_rate: float = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    momentum: float = 0.9
    gibbs_steps: int = 1
    persistent: bool = True
    jumps: bool = True
    batch_size: int = 128
    epochs: int = 20
    held_out: float = 0.1
    patience: int = 10
    informed: bool = True
    spread: float = 1.0

    def train(self, rows: Rows, num_hidden: int, *, key: jax.Array) -> Trained:
        """Train a machine with `num_hidden` hidden units."""
        split_key, single_key, start_key, epoch_key, score_key = jax.random.split(key, 5)
        training, held_out = self._split(rows, split_key)
        batch_size = min(self.batch_size, len(training))
        single = single_unit(rows, self.penalty, single_key)
        centred = self._start(rows, num_hidden, single, start_key)
        state = self.optimiser(rows.visible.shape[1], len(training) // batch_size).init(centred)
        learner = _Learner(centred, state, rows.visible[training[:batch_size]])
        best, best_epoch = centred, 0
        scores = [float(_score(centred, single, rows, held_out, score_key))]
        for epoch in track_late(range(1, self.epochs + 1), "training by sampling"):
            learner = _epoch(learner, single, rows, training, jax.random.fold_in(epoch_key, epoch), self, batch_size)
            if self.held_out or epoch == self.epochs:
                scores.append(float(_score(learner.centred, single, rows, held_out, score_key)))
                self._check(scores)
            if self.held_out == 0 or scores[-1] > max(scores[:-1]):
                best, best_epoch = learner.centred, epoch
            if epoch - best_epoch >= self.patience:
                break
        diagnostics = {"training": "sampled", "iterations": epoch, "best_epoch": best_epoch}
        return Trained((uncentre(best, rows.means),), np.array(scores), diagnostics)

    def _start(self, rows: Rows, num_hidden: int, single: Machine, key: jax.Array) -> Machine:
        """One unit as exact training finds it alone, the others at random."""
        centred = centre(single, rows.means)
        weights = (
            jax.random.normal(key, (rows.visible.shape[1], num_hidden)) * self.spread / rows.visible.shape[1] ** 0.5
        )
        if not self.informed:
            return Machine(weights, logit(rows.means), jnp.zeros(num_hidden))
        return Machine(
            weights.at[:, 0].set(centred.weights[:, 0]),
            centred.visible_bias,
            jnp.zeros(num_hidden).at[0].set(centred.hidden_bias[0]),
        )

    def optimiser(self, num_visible: int, batches: int) -> optax.GradientTransformation:
        """The optimiser for that many visible units and mini-batches in an epoch."""
        first, steps = self.learning_rate / num_visible, max(1, self.epochs * batches)
        rate = {
            "constant": first,
            "linear": optax.linear_schedule(first, 0.0, steps),
            "cosine": optax.cosine_decay_schedule(first, steps),
        }[self.schedule]
        return optax.sgd(rate, momentum=self.momentum or None)

    def _split(self, rows: Rows, key: jax.Array) -> tuple[Int[Array, " item"], Int[Array, " item"]]:
        """Rows of the training items and of those held out, in random order, each row as often as its weight says."""
        weight = np.asarray(rows.weight)
        total = min(EPOCH_ITEMS, max(64, round(1 / weight[weight > 0].min())))
        positions = (np.arange(total) + 0.5) / total
        index = np.searchsorted(np.cumsum(weight), positions * weight.sum()).clip(max=len(weight) - 1)
        shuffled = jax.random.permutation(key, jnp.asarray(index))
        size = min(total - 1, round(self.held_out * total))
        return shuffled[size:], shuffled[:size] if size else shuffled

    def _check(self, scores: list[float]) -> None:
        """Raise an error if training diverges: no number, or far worse than before the first step."""
        if not np.isfinite(scores[-1]) or scores[-1] < 2 * scores[0] - 1:
            raise LatentensError(
                f"sampled training diverged (log-likelihood an item {scores[-1]:.4g}, at the start {scores[0]:.4g}); "
                f"lower the learning rate of {self.learning_rate:g} or the momentum of {self.momentum:g}"
            )


class _Learner(NamedTuple):
    centred: Machine
    """What is learnt: the machine in centred variables, where the gradient is far better conditioned."""
    optimiser: Any
    chains: Float[Array, "chain visible"]


def contrastive_loss(
    machine: Machine,
    data: Float[Array, "row visible"],
    chains: Float[Array, "chain visible"],
    penalty: float,
    sparsity: float,
) -> Float[Array, ""]:
    """Its gradient estimates that of the penalised negative log-likelihood if the chains are samples of the machine."""
    contrast = free_energy(machine, data).mean() - free_energy(machine, chains).mean()
    return contrast + 0.5 * penalty * jnp.sum(machine.weights**2) + sparsity * jnp.sum(jnp.abs(machine.weights))


def run_chains(
    machine: Machine, chains: Float[Array, "chain visible"], key: jax.Array, num_sweeps: int
) -> Float[Array, "chain visible"]:
    """Gibbs chains, some sweeps on."""
    keys = jax.random.split(key, num_sweeps)
    return jax.lax.scan(lambda state, sweep_key: (gibbs_sweep(machine, state, sweep_key), None), chains, keys)[0]


def jump(
    machine: Machine, base: Machine, chains: Float[Array, "chain visible"], key: jax.Array
) -> Float[Array, "chain visible"]:
    """Offer each chain an exact sample of a small machine, by a Metropolis–Hastings step that keeps `machine`'s law."""
    offer_key, accept_key = jax.random.split(key)
    offers = sample_exactly(base, len(chains), offer_key)
    log_gain = free_energy(machine, chains) - free_energy(machine, offers)
    log_bias = free_energy(base, chains) - free_energy(base, offers)
    accepted = jnp.log(jax.random.uniform(accept_key, (len(chains),))) < log_gain - log_bias
    return jnp.where(accepted[:, None], offers, chains)


@partial(jax.jit, static_argnames="num_sweeps")
def fill_gaps(
    machine: Machine,
    visible: Float[Array, "row visible"],
    observed: Bool[Array, "row visible"],
    key: jax.Array,
    num_sweeps: int = 10,
) -> Float[Array, "row visible"]:
    """Draw the unobserved visible units given the observed ones, by Gibbs sweeps that leave these as they are."""
    start_key, key = jax.random.split(key)
    start = jax.random.bernoulli(start_key, jax.nn.sigmoid(machine.visible_bias), visible.shape)

    def sweep(filled: Float[Array, "row visible"], sweep_key: jax.Array) -> tuple[Float[Array, "row visible"], None]:
        return jnp.where(observed, visible, gibbs_sweep(machine, filled, sweep_key)), None

    return jax.lax.scan(sweep, jnp.where(observed, visible, start), jax.random.split(key, num_sweeps))[0]


@partial(jax.jit, static_argnames=("options", "batch_size"))
def _epoch(
    learner: _Learner,
    single: Machine,
    rows: Rows,
    training: Int[Array, " item"],
    key: jax.Array,
    options: SampledTraining,
    batch_size: int,
) -> _Learner:
    """One pass through the training items in a new random order."""
    order_key, batch_key = jax.random.split(key)
    num_batches = len(training) // batch_size
    order = jax.random.permutation(order_key, training)[: num_batches * batch_size].reshape(num_batches, batch_size)
    optimiser = options.optimiser(rows.visible.shape[1], num_batches)
    means = rows.means

    def loss(centred: Machine, data: Array, chains: Array) -> Float[Array, ""]:
        return contrastive_loss(uncentre(centred, means), data, chains, options.penalty, options.sparsity)

    def update(learner: _Learner, scanned: tuple[Array, Array]) -> tuple[_Learner, None]:
        batch, update_key = scanned
        gap_key, chain_key, jump_key = jax.random.split(update_key, 3)
        machine, data = uncentre(learner.centred, means), rows.visible[batch]
        if rows.observed is not None:
            data = fill_gaps(machine, data, rows.observed[batch], gap_key)
        start = learner.chains if options.persistent else data
        chains = run_chains(machine, start, chain_key, options.gibbs_steps)
        if options.persistent and options.jumps:
            chains = jump(machine, single, chains, jump_key)
        gradient = jax.grad(loss)(learner.centred, data, chains)
        steps, state = optimiser.update(gradient, learner.optimiser, learner.centred)
        return _Learner(optax.apply_updates(learner.centred, steps), state, chains), None

    return jax.lax.scan(update, learner, (order, jax.random.split(batch_key, num_batches)))[0]


@jax.jit
def _score(centred: Machine, base: Machine, rows: Rows, items: Int[Array, " item"], key: jax.Array) -> Float[Array, ""]:
    """Mean log-likelihood of some items, exact or annealed from `base`; unobserved votes are drawn."""
    partition_key, gap_key = jax.random.split(key)
    machine, visible = uncentre(centred, rows.means), rows.visible[items]
    if rows.observed is not None:
        visible = fill_gaps(machine, visible, rows.observed[items], gap_key)
    if min(machine.weights.shape) <= LARGEST_EXACT_SCORE:
        log_z = log_partition(machine)
    else:
        log_z = estimate_log_partition(
            machine, base, key=partition_key, num_chains=128, num_temperatures=300
        ).log_partition
    return -free_energy(machine, visible).mean() - log_z
