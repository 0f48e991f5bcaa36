"""Exact likelihoods of a machine with their gradient in closed form, and training by them.

All of it is NumPy. Nothing has to be compiled, whatever the number of rows, units and states, and since BLAS runs on
one thread, sums are taken in one order on any number of cores: the same start ends at the same point.

With the indicators x of the visible and h of the hidden units, and all units observed,
`log p(x) = aᵀx + Σ_j log Σ_s exp(b_js + xᵀW_js) − log Z` and
`log Z = log Σ_h exp(bᵀh + Σ_i log Σ_v exp(a_iv + W_iv h))`.
Rows with gaps or repeated votes are mixtures over the hidden states, `p(x) = Σ_h p(h) Π_i p(x_i | h)^(votes of i)`.
Arrays have indicators first and rows or states last, so that sums over the few states of a unit run along long axes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.special import softmax

from latentens.errors import LatentensError
from latentens.inference.optimise import STALLED, descend_from
from latentens.rbm.machine import Machine, smaller_layer_states
from latentens.rbm.rows import VisibleRows
from latentens.rbm.training import Trained, Training, from_vote_shares, random_machines
from latentens.rbm.units import AnyArray, Units
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.runtime.parallel import one_blas_thread
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, NotNegative, Positive

Flat = Float[np.ndarray, " parameter"]
Gradient = tuple[Float[np.ndarray, "visible hidden"], Float[np.ndarray, " visible"], Float[np.ndarray, " hidden"]]
"""Slopes of W, a and b."""


class LogLikelihood:
    """The mean log-likelihood of rows as a function of a machine's parameters, less `penalty/2 · ‖W‖²`.

    If the machine has one hidden unit and labels of some rows are known, these rows contribute `log p(x, label)`.

    Args:
        rows: The rows.
        num_hidden: Number of hidden units.
        penalty: Weight of the L2 penalty, which a visible unit has in proportion to its number of votes.
    """

    def __init__(self, rows: VisibleRows, num_hidden: int, penalty: float = 0.0) -> None:
        self.units, self.hidden_units = rows.units, rows.hidden_units
        self.num_hidden, self.penalty = num_hidden, penalty
        self.weight = np.asarray(rows.weight)
        self.visible = np.ascontiguousarray(np.asarray(rows.visible).T)
        self.votes = None if rows.observed is None else _votes_by_state(rows)
        self.mean = self.visible @ self.weight
        self.shares = np.asarray(rows.vote_shares)
        self.impossible = None  # labels of rows whose label is another
        if num_hidden == 1 and rows.label is not None:
            labels = np.arange(self.hidden_units.num_states)[:, None]
            self.impossible = (rows.label >= 0) & (rows.label != labels)

    def machine(self, flat: Flat) -> Machine:
        """The machine with these parameters."""
        num_visible, width = len(self.visible), self.num_hidden * self.hidden_units.width
        weights, visible_bias, hidden_bias = np.split(flat, [num_visible * width, num_visible * (width + 1)])
        return Machine(weights.reshape(num_visible, width), visible_bias, hidden_bias, self.units, self.hidden_units)

    @staticmethod
    def flat(machine: Machine) -> Flat:
        """The parameters of a machine as one vector."""
        return np.concatenate([np.ravel(part) for part in machine[:3]])

    def loss(self, flat: Flat) -> tuple[float, Flat]:
        """The negative of the penalised log-likelihood, and its gradient."""
        machine = self.machine(flat)
        log_z, model = log_partition_slopes(machine)
        value, data = self._complete(machine) if self.votes is None else self._mixture(machine)
        penalty, slope = self._penalty(np.asarray(machine.weights))
        gradient = [ours - theirs for ours, theirs in zip(model, data, strict=True)]
        gradient[0] += slope
        return log_z - value + penalty, np.concatenate([part.ravel() for part in gradient])

    def _complete(self, machine: Machine) -> tuple[float, Gradient]:
        """The mean of `−F(x)`, and its gradient: the expectation of the hidden units given each row."""
        logits = np.asarray(machine.weights.T @ self.visible + machine.hidden_bias[:, None])
        if self.impossible is None:
            probs, log_norms = _softmax(logits, self.hidden_units)
        else:  # one unit
            joint = np.where(self.impossible, -np.inf, np.concatenate([np.zeros_like(logits[:1]), logits]))
            log_norms = _log_sum(joint, axis=0)[None]
            probs = np.exp(joint - log_norms)[1:]
        probs *= self.weight
        value = self.mean @ machine.visible_bias + log_norms.sum(axis=0) @ self.weight
        return float(value), (self.visible @ probs.T, self.mean, probs.sum(axis=1))

    def _mixture(self, machine: Machine) -> tuple[float, Gradient]:
        """`_complete` for rows with missing or repeated votes, given which hidden units are dependent."""
        assert self.votes is not None
        tables = state_tables(machine)
        log_votes = tables.log_votes.reshape(-1, len(tables.states))
        counts, mass, value = np.zeros_like(log_votes), np.zeros(len(tables.states)), 0.0
        for block in row_blocks(len(self.weight), len(tables.states)):
            votes, weight = self.votes[block], self.weight[block]
            # posterior of the hidden states given each row, and with it expected votes and states
            joint = votes @ log_votes + tables.log_mass
            if self.impossible is not None:
                joint = np.where(self.impossible[:, block].T, -np.inf, joint)
            of_row = _log_sum(joint, axis=1)
            value += float(weight @ of_row)
            probs = np.exp(joint - of_row[:, None]) * weight[:, None]
            counts += votes.T @ probs
            mass += probs.sum(axis=0)
        counts = counts.reshape(tables.log_votes.shape)
        # of the logits a + Wh: votes seen, less those expected; the mass of a state has all of its votes expected
        slope = counts + (mass - counts.sum(axis=1, keepdims=True)) * np.exp(tables.log_votes)
        slope = slope[:, 1:].reshape(-1, len(tables.states))
        return value, (slope @ tables.states, slope.sum(axis=1), mass @ tables.states)

    def _penalty(self, weights: Float[np.ndarray, "visible hidden"]) -> tuple[float, Float[np.ndarray, "..."]]:
        """`penalty/2 · ‖W‖²`, whichever states are states 0, and its gradient.

        The tables W_ij over all V × K states are centred both ways by `C = I − 1/V` and `D = I − 1/K`; as these are
        projections, the squared norm of twice the centred table is `4 tr(Wᵀ C W D)`, where C and D have lost their
        first row and column.
        """
        visible, hidden = (np.eye(units.width) - 1 / units.num_states for units in (self.units, self.hidden_units))
        tables = weights.reshape(len(self.shares), len(visible), -1, len(hidden))
        centred = np.einsum("uv,ivjs->iujs", visible, tables) @ hidden
        slope = 4 * self.penalty * self.shares[:, None, None, None] * centred
        return 0.5 * float(np.sum(slope * tables)), slope.reshape(weights.shape)


class StateTables(NamedTuple):
    """All states of a hidden layer, and the probabilities of the visible units given each."""

    states: Float[np.ndarray, "state hidden"]
    log_mass: Float[np.ndarray, " state"]
    """`log Σ_x exp(−E(x, h))`, that is `log p(h) + log Z`."""
    log_votes: Float[np.ndarray, "unit vote state"]
    """`log p(x_i = v | h)`."""


def state_tables(machine: Machine) -> StateTables:
    """Enumerate the hidden layer."""
    states = machine.hidden_units.states(machine.num_hidden)
    tables = machine.visible_units.by_unit(np.asarray(machine.visible_bias)[:, None] + machine.weights @ states.T, 0)
    tables = np.concatenate([np.zeros_like(tables[:, :1]), tables], axis=1)
    log_norms = _log_sum(tables, axis=1)
    return StateTables(states, states @ machine.hidden_bias + log_norms.sum(axis=0), tables - log_norms[:, None])


def log_partition_slopes(machine: Machine, *, block_elements: int = BLOCK_ELEMENTS) -> tuple[float, Gradient]:
    """`log Z` and its gradient, the expectations under the machine, by the states of the smaller layer in blocks."""
    if smaller_layer_states(machine) < machine.hidden_units.num_states**machine.num_hidden:
        log_z, (weights, hidden, visible) = log_partition_slopes(machine.transposed, block_elements=block_elements)
        return log_z, (weights.T, visible, hidden)
    weights, visible_bias, hidden_bias = (np.asarray(part) for part in machine[:3])
    units, num_units = machine.hidden_units, machine.num_hidden
    total, sums = -np.inf, (np.zeros_like(weights), np.zeros_like(visible_bias), np.zeros_like(hidden_bias))
    for block in row_blocks(units.num_states**num_units, len(visible_bias), block_elements):
        # of a block of states: its mass, and the expectations of x, h and xh within it
        states = units.states(num_units, block)
        probs, log_norms = _softmax(visible_bias[:, None] + weights @ states.T, machine.visible_units)
        log_mass = states @ hidden_bias + log_norms.sum(axis=0)
        of_block = _log_sum(log_mass, axis=0)
        mass = np.exp(log_mass - of_block)
        probs *= mass
        # running log-sum: expectations so far and those of the block are averaged by their mass
        before, total = total, np.logaddexp(total, of_block)
        old, new = np.exp(before - total), np.exp(of_block - total)
        sums = (
            old * sums[0] + new * (probs @ states),
            old * sums[1] + new * probs.sum(axis=1),
            old * sums[2] + new * (mass @ states),
        )
    return float(total), sums


def log_partition(machine: Machine) -> float:
    """`log Z`, by enumerating the states of the smaller layer."""
    return log_partition_slopes(machine)[0]


def log_probs(
    machine: Machine,
    visible: Float[AnyArray, "row visible"],
    observed: Bool[AnyArray, "row unit"] | Int[AnyArray, "row unit"] | None = None,
) -> Float[np.ndarray, " row"]:
    """The exact `log p(observed part of x)` of each row.

    Args:
        machine: The machine; its hidden layer is enumerated if any unit is unobserved or repeated.
        visible: Indicators of the visible units, added up over repeated votes; anything where they are unobserved.
        observed: Number of votes of each visible unit; None if all have one.
    """
    return log_likelihoods(machine, rows_of(machine, visible, observed))


def state_posterior(
    machine: Machine,
    visible: Float[AnyArray, "row visible"],
    observed: Bool[AnyArray, "row unit"] | Int[AnyArray, "row unit"] | None = None,
) -> Float[np.ndarray, "row state"]:
    """`p(h | observed part of x)` for every state h of the hidden layer, the last unit changing fastest.

    Arguments are those of `log_probs`.
    """
    return next(state_posteriors(machine, rows_of(machine, visible, observed), [slice(None)]))


def rows_of(machine: Machine, visible: AnyArray, observed: AnyArray | None = None) -> VisibleRows:
    """Rows of a machine's visible units, one item each."""
    observed = None if observed is None else np.asarray(observed)
    return VisibleRows(np.asarray(visible), np.ones(len(visible)), len(visible), observed, machine.visible_units)


def log_likelihoods(machine: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"]:
    """`log p(x)` of each row."""
    log_z = log_partition(machine)
    if rows.observed is None:
        visible = np.asarray(rows.visible).T
        logits = np.asarray(machine.weights).T @ visible + np.asarray(machine.hidden_bias)[:, None]
        return machine.visible_bias @ visible + _softmax(logits, machine.hidden_units)[1].sum(axis=0) - log_z
    tables = state_tables(machine)
    return _log_mixture(rows, tables.log_votes, tables.log_mass - log_z)


def exact_log_likelihoods(machine: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"] | None:
    """`log p(x)` of each row; None for a machine too large to enumerate."""
    return log_likelihoods(machine, rows) if rows.sizes.can_enumerate(machine.num_hidden) else None


def stacked_log_likelihoods(machine: Machine, above: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"]:
    """`log Σ_h p(x | h) p(h)` of each row: x given h by a machine, h by the machine above it (Hinton et al. 2006)."""
    tables = state_tables(machine)
    return _log_mixture(rows, tables.log_votes, log_likelihoods(above, rows_of(above, tables.states)))


def expected_given_rows(
    machine: Machine,
    rows: VisibleRows,
    table: Float[np.ndarray, "state value"],
    *,
    block_elements: int = BLOCK_ELEMENTS,
) -> Float[np.ndarray, "row value"]:
    """The mean of a function of the hidden state, given each row."""
    blocks = row_blocks(len(rows.weight), len(table), block_elements)
    return np.concatenate([posterior @ table for posterior in state_posteriors(machine, rows, blocks)])


def hidden_distribution(machine: Machine, rows: VisibleRows, *, block_elements: int = BLOCK_ELEMENTS) -> VisibleRows:
    """Every hidden state with its probability under the rows: once for those without label, once for each label."""
    states = machine.hidden_units.states(machine.num_hidden)
    label = np.full(len(rows.weight), -1) if rows.label is None else rows.label
    labels = np.unique(label)
    weight = np.where(label == labels[:, None], rows.weight, 0.0)
    blocks = row_blocks(len(rows.weight), len(states), block_elements)
    posteriors = zip(blocks, state_posteriors(machine, rows, blocks), strict=True)
    passed_on = sum(weight[:, block] @ posterior for block, posterior in posteriors)
    return VisibleRows(
        np.tile(states, (len(labels), 1)),
        np.ravel(passed_on),
        rows.num_items,
        None,
        machine.hidden_units,
        None if rows.label is None else np.repeat(labels, len(states)),
    )


def state_posteriors(
    machine: Machine, rows: VisibleRows, blocks: Sequence[slice]
) -> Iterator[Float[np.ndarray, "row state"]]:
    """`p(h | x)` for every hidden state h, block by block of rows."""
    if rows.observed is None:  # hidden units are independent given a row
        states = machine.hidden_units.states(machine.num_hidden)
        for block in blocks:
            logits = np.asarray(rows.visible)[block] @ machine.weights + machine.hidden_bias
            yield softmax(logits @ states.T, axis=1)
        return
    tables, votes = state_tables(machine), _votes_by_state(rows)
    for block in blocks:
        yield softmax(votes[block] @ tables.log_votes.reshape(-1, len(tables.states)) + tables.log_mass, axis=1)


def _log_mixture(
    rows: VisibleRows, log_votes: Float[np.ndarray, "unit vote state"], log_shares: Float[np.ndarray, " state"]
) -> Float[np.ndarray, " row"]:
    """`log Σ_h p(h) p(x | h)` of each row."""
    votes, tables = _votes_by_state(rows), log_votes.reshape(-1, log_votes.shape[-1])
    blocks = row_blocks(len(rows.weight), len(log_shares))
    return np.concatenate([_log_sum(votes[block] @ tables + log_shares, axis=1) for block in blocks])


def _votes_by_state(rows: VisibleRows) -> csr_array:
    """`VisibleRows.votes_by_state` for products with tables over states."""
    return csr_array(rows.votes_by_state.reshape(len(rows.weight), -1))


def _softmax(
    logits: Float[np.ndarray, "indicator row"], units: Units
) -> tuple[Float[np.ndarray, "indicator row"], Float[np.ndarray, "unit row"]]:
    """The probability of each indicator, and the log normaliser of each unit; the logit of state 0 is 0."""
    tables = units.by_unit(logits, axis=0)
    top = np.maximum(tables.max(axis=1), 0.0)
    powers = np.exp(tables - top[:, None])
    norms = powers.sum(axis=1) + np.exp(-top)
    powers /= norms[:, None]
    return powers.reshape(logits.shape), top + np.log(norms)


def _log_sum(values: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """`log Σ exp`; SciPy's takes longer than all else on small arrays."""
    top = values.max(axis=axis)
    return top + np.log(np.exp(values - np.expand_dims(top, axis)).sum(axis=axis))


@dataclass(frozen=True)
class ExactTraining(Training):
    """Maximise the exact, penalised likelihood `mean log p(x) − penalty/2 · ‖W‖²` by L-BFGS.

    The penalty is for each vote: the weights of a voter who voted on a tenth of the items have a tenth of it. A machine
    with one hidden unit is trained with that unit clamped on rows whose label is known.

    Notes:
        Starts compete: after some iterations the worse half is stopped, after as many again half of the rest, and so
        on; the last two run until they converge. If they end at different optima, more starts are drawn.

    Attributes:
        penalty: Weight of the L2 penalty, on W only and per vote.
        restarts: Number of starts that compete: those that are handed to `train`, for one unit the one where labels are
            the items' votes, and random ones for the rest.
        batches: Largest number of such competitions; another one follows while the best two ends of all are farther
            apart than ten times the tolerance.
        trial: Iterations after which the worse half of the starts is stopped; after only a few, the order of the starts
            hardly predicts the order of their ends.
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
            batch = [_Climb(likelihood.flat(start)) for start in [*starts, *drawn]]
            with np.errstate(over="ignore"):  # a step of the line search may be far too long
                _compete(batch, likelihood, self)
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


@dataclass
class _Climb:
    """The state of one start: its point, its losses at the start and after each iteration, and how it ended."""

    point: Flat
    curve: Sequence[float] | Float[np.ndarray, " iteration"] = ()
    slope: float = np.inf
    converged: bool = False
    ended: bool = False

    @property
    def iterations(self) -> int:
        return max(0, len(self.curve) - 1)

    def go_on(self, likelihood: LogLikelihood, training: ExactTraining, iterations: int) -> None:
        """Some more iterations, unless it has ended."""
        done, tolerance = self.iterations, training.tolerance
        iterations = min(iterations, training.max_iterations - done)
        if self.ended or iterations == 0:
            self.ended = True
            return
        end = descend_from(
            likelihood.loss,
            self.point,
            max_iterations=iterations,
            tolerance=tolerance,
            least_gain=tolerance,
            curve=self.curve,
        )
        self.point, self.curve, self.slope = end.point, end.curve, end.slope
        stalled = len(end.curve) > STALLED and end.curve[-1 - STALLED] - end.curve[-1] < tolerance
        self.converged = end.slope <= tolerance or bool(stalled)
        self.ended = self.converged or self.iterations < done + iterations or self.iterations >= training.max_iterations


def _compete(climbs: Sequence[_Climb], likelihood: LogLikelihood, training: ExactTraining) -> None:
    """Continue the better half of the starts again and again, until two are left, which run to their ends."""
    while len(climbs) > 2:
        for climb in track_late(climbs, "training exactly"):
            climb.go_on(likelihood, training, training.trial)
        order = np.argsort([climb.curve[-1] for climb in climbs], kind="stable")  # NaN comes last
        climbs = [climbs[number] for number in order[: -(-len(climbs) // 2)]]
    for climb in climbs:
        climb.go_on(likelihood, training, training.max_iterations)


def single_unit(rows: VisibleRows, penalty: float, key: jax.Array) -> Machine:
    """The machine with one hidden unit: the Dawid–Skene maximum."""
    return ExactTraining(penalty=penalty).train(rows._replace(label=None), 1, key=key).machine
