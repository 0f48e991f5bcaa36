"""Sampled training: contrastive divergence, persistent or not, on shuffled mini-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from latentens.errors import LatentensError
from latentens.rbm.exact import exact_log_likelihoods, single_unit
from latentens.rbm.machine import Machine, free_energy, log_partition, smaller_layer_states
from latentens.rbm.rows import VisibleRows
from latentens.rbm.sampling import estimate_log_partition, fill_gaps, jump, run_chains
from latentens.rbm.training import Trained, Training, centre, squared_weights, uncentre
from latentens.rbm.units import MOST_EXACT_STATES
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import double_precision
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, NotNegative, PartialShare, Positive

if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class SampledTraining(Training):
    """Stochastic gradient ascent of the likelihood, its gradient estimated by Gibbs chains.

    If `train` is given starts, the first replaces the random one.

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
        patience: Stop after this many epochs without a better held-out likelihood; the best machine is kept.
        informed: Whether the first unit starts at the Dawid–Skene maximum, so that chains, which rarely change the
            label, start on both of its sides.
        input_scale: Standard deviation of the input of a hidden unit at a random start: that of a weight times the
            square root of the number of visible units.
        max_items: Largest number of items that are drawn from the rows as training set.
    """

    penalty: NotNegative = 5e-4
    sparsity: NotNegative = 0.0
    learning_rate: Positive = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    momentum: PartialShare = 0.9
    gibbs_steps: Count = 1
    persistent: bool = True
    jumps: bool = True
    batch_size: Count = 128
    epochs: Count = 20
    held_out: PartialShare = 0.1
    patience: Count = 10
    informed: bool = True
    input_scale: NotNegative = 1.0
    max_items: Count = 2**17

    def _train(self, rows: VisibleRows, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> Trained:
        rows.refuse_repeats("sampled training")
        rows = rows._replace(label=None)
        split_key, single_key, start_key, epoch_key, score_key = jax.random.split(key, 5)
        training, held_out = self._split(rows, split_key)
        batch_size = min(self.batch_size, len(training))
        single = single_unit(rows, self.penalty, single_key)
        centred = centre(starts[0], rows.means) if starts else self._start(rows, num_hidden, single, start_key)
        state = self.optimiser(rows.visible.shape[1], len(training) // batch_size).init(centred)
        learner = _Learner(centred, state, rows.visible[training[:batch_size]])
        best, best_epoch = centred, 0
        scores = [float(_score(centred, single, rows, held_out, score_key))]
        for epoch in track_late(range(1, self.epochs + 1), "training by sampling"):
            stop_if_asked()
            learner = _epoch(learner, single, rows, training, jax.random.fold_in(epoch_key, epoch), self, batch_size)
            if self.held_out or epoch == self.epochs:
                scores.append(float(_score(learner.centred, single, rows, held_out, score_key)))
                self._check(scores)
            if self.held_out == 0 or scores[-1] > max(scores[:-1]):
                best, best_epoch = learner.centred, epoch
            if epoch - best_epoch >= self.patience:
                break
        diagnostics = {"training": "sampled", "iterations": epoch, "best_epoch": best_epoch}
        return Trained((fetch(uncentre(best, rows.means)),), np.array(scores), diagnostics)

    def _start(self, rows: VisibleRows, num_hidden: int, single: Machine, key: jax.Array) -> Machine:
        """One unit as exact training finds it alone, the others at random."""
        num_visible, width = rows.visible.shape[1], rows.hidden_units.width
        weights = jax.random.normal(key, (num_visible, num_hidden * width)) * self.input_scale / num_visible**0.5
        bias = jnp.zeros(num_hidden * width)
        if not self.informed:
            return Machine(weights, rows.biases, bias, rows.units, rows.hidden_units)
        centred = centre(single, rows.means)
        return centred._replace(
            weights=weights.at[:, :width].set(centred.weights), hidden_bias=bias.at[:width].set(centred.hidden_bias)
        )

    def optimiser(self, num_visible: int, batches: int) -> "optax.GradientTransformation":
        """The optimiser for these numbers of visible units and of mini-batches in an epoch."""
        import optax  # slow to import, and needed only here

        first, steps = self.learning_rate / num_visible, max(1, self.epochs * batches)
        rate = {
            "constant": first,
            "linear": optax.linear_schedule(first, 0.0, steps),
            "cosine": optax.cosine_decay_schedule(first, steps),
        }[self.schedule]
        return optax.sgd(rate, momentum=self.momentum or None)

    def _split(self, rows: VisibleRows, key: jax.Array) -> tuple[Int[Array, " item"], Int[Array, " item"]]:
        """Rows of the training items and of those held out, in random order."""
        total = min(self.max_items, max(64, int(rows.num_items)))
        shuffled = jax.random.permutation(key, jnp.asarray(rows.row_of_items(total)))
        size = min(total - 1, round(self.held_out * total))
        return shuffled[size:], shuffled[:size] if size else shuffled

    def _check(self, scores: list[float]) -> None:
        """Raise an error if training diverges: NaN, or far worse than before the first step."""
        if not np.isfinite(scores[-1]) or scores[-1] < 2 * scores[0] - 1:
            raise LatentensError(
                f"sampled training diverged (log-likelihood per item {scores[-1]:.4g}, at the start {scores[0]:.4g}); "
                f"lower the learning rate of {self.learning_rate:g} or the momentum of {self.momentum:g}"
            )


class _Learner(NamedTuple):
    centred: Machine
    """The machine in centred variables, where the gradient is far better conditioned."""
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
    return contrast + 0.5 * penalty * squared_weights(machine) + sparsity * jnp.sum(jnp.abs(machine.weights))


@partial(jax.jit, static_argnames=("options", "batch_size"))
def _epoch(
    learner: _Learner,
    single: Machine,
    rows: VisibleRows,
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
        return _Learner(jax.tree.map(jnp.add, learner.centred, steps), state, chains), None

    return jax.lax.scan(update, learner, (order, jax.random.split(batch_key, num_batches)))[0]


@jax.jit
def _score(
    centred: Machine, base: Machine, rows: VisibleRows, items: Int[Array, " item"], key: jax.Array
) -> Float[Array, ""]:
    """Mean log-likelihood of some items, exact or annealed from `base`; unobserved votes are drawn."""
    partition_key, gap_key = jax.random.split(key)
    machine, visible = uncentre(centred, rows.means), rows.visible[items]
    if rows.observed is not None:
        visible = fill_gaps(machine, visible, rows.observed[items], gap_key)
    if smaller_layer_states(machine) <= MOST_EXACT_STATES:
        log_z = log_partition(machine)
    else:
        log_z = estimate_log_partition(
            machine, base, key=partition_key, num_chains=128, num_temperatures=300
        ).log_partition
    return -free_energy(machine, visible).mean() - log_z


class Likelihood(NamedTuple):
    """The mean log-likelihood of rows, in nats.

    Attributes:
        mean: The value; NaN for a machine too large to enumerate on rows with gaps.
        standard_error: Its standard error by annealing; zero if the value is exact.
    """

    mean: float
    standard_error: float


@double_precision
def mean_log_likelihood(machine: Machine, rows: VisibleRows, *, key: jax.Array) -> Likelihood:
    """The mean log-likelihood of rows; the key serves annealing."""
    values = exact_log_likelihoods(machine, rows)
    if values is not None:
        return Likelihood(float(rows.weight @ values), 0.0)
    if rows.observed is not None:
        return Likelihood(float("nan"), float("nan"))
    return annealed_mean(machine, rows, key)


def annealed_mean(machine: Machine, rows: VisibleRows, key: jax.Array, *, base_penalty: float = 1e-3) -> Likelihood:
    """An estimate for complete rows and a machine of any size.

    Args:
        machine: The machine.
        rows: The rows.
        key: Random key.
        base_penalty: Penalty on the one-unit machine from which annealing starts, which keeps its units uncertain.
    """
    base_key, key = jax.random.split(key)
    estimate = estimate_log_partition(machine, single_unit(rows, base_penalty, base_key), key=key)
    mean = -rows.weight @ free_energy(machine, rows.visible) - estimate.log_partition
    return Likelihood(float(mean), float(estimate.standard_error))
