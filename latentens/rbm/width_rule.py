"""The rule for the width of a layer: how many hidden units the votes call for, and how many they support."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentens.rbm.enumeration import LONGEST_EVALUATION, enumeration_cost
from latentens.rbm.machine import Machine
from latentens.rbm.rows import RowSizes, VisibleRows
from latentens.rbm.scoring import exact_log_likelihoods
from latentens.rbm.stack import is_exact, rows_above, stacked_log_likelihoods
from latentens.rbm.training.choice import choose_training
from latentens.rbm.training.exact import EVALUATIONS, ExactTraining, centred_weights
from latentens.rbm.training.interface import Trained, Training
from latentens.runtime.devices import fetch
from latentens.runtime.limits import TIME_VARIABLE, time_limit
from latentens.runtime.precision import double_precision
from latentens.runtime.settings import Count, NotNegative, PartialShare, Settings

WIDE_SECONDS = 0.02
"""A wide machine has at most as many units as let its likelihood and gradient take this many seconds."""

POOLINGS = (0.1, 1.0, 10.0, 100.0)
"""Precisions with which voters may be drawn towards their mean: from none to nearly equal voters, by powers of ten."""


SIGNIFICANT = 2.0
"""A gain of more standard errors than this is no accident: the usual level, since several sizes are tried."""

FEWEST = 3
"""Units below a label that they determine (Kruskal 1977)."""

QUICK = ExactTraining(restarts=2, max_iterations=400, tolerance=3e-5)


def too_long_for_gaps(sizes: RowSizes, *, one_unit: bool = False) -> str | None:
    """Why rows with gaps get one unit by other means, in words: it would take too long. None if it would not.

    One unit is trained at every pooling and once more in the end, which together cost about two trainings, and three
    units once. Complete rows are cheap, since states are enumerated only once for all of them.

    Args:
        sizes: The sizes of the rows.
        one_unit: Whether the rows need not be asked for the width, since it is known to be one.
    """
    one, three = (EVALUATIONS * enumeration_cost(sizes, number).seconds for number in (1, FEWEST))
    seconds, limit = one if one_unit else 2 * one + three, time_limit(EVALUATIONS * LONGEST_EVALUATION)
    if not sizes.gaps or seconds <= limit:
        return None
    wanted = "to train one hidden unit exactly" if one_unit else "to ask the votes how many hidden units they support"
    return (
        f"{wanted}, on {sizes.num_rows:,} rows of {sizes.num_units:,} voters, would take about {seconds:,.0f} seconds, "
        f"more than the limit of {limit:,.0f}; raise it by {TIME_VARIABLE}, or leave voters with few votes out"
    )


class Gain(NamedTuple):
    """What one more hidden unit gains on held-out rows, in nats a row."""

    mean: float
    standard_error: float

    @property
    def supported(self) -> bool:
        """Whether the gain is significant."""
        return self.mean > SIGNIFICANT * self.standard_error


class Width(NamedTuple):
    """What the rule found.

    Attributes:
        num_hidden: The number of hidden units.
        cumulative: Cumulative share of the singular values of the wide machine; all of it if one unit is enough.
        effective_rank: The effective rank of its weights; 1 if one unit is enough.
        gains: What one hidden unit gains on held-out rows, what three gain beside it, what a fourth gains, ….
        starts: Machines of that size where training may start, the best first.
        pooling: The precision with which voters are drawn towards their mean.
    """

    num_hidden: int
    cumulative: Float[np.ndarray, " unit"]
    effective_rank: float
    gains: tuple[Gain, ...]
    starts: tuple[Machine, ...]
    pooling: float


@dataclass(frozen=True)
class SingularValueRule(Settings):
    """As many hidden units as the weights have effective directions, and no more than held-out rows support.

    **Directions.** More units than needed are trained under an L2 penalty. A unit with vanishing weights starts to grow
    only if a direction of the data's covariance exceeds the machine's by more than four times the penalty. Sampling
    noise alone exceeds it by about `(1/2) √(voters/items)`, so a penalty of `(1/8) √(voters/items)` lets only signal
    grow. The singular values s_k of W, as shares p_k of their sum, then have the effective rank `exp(−Σ p_k log p_k)`
    (Roy & Vetterli 2007), and a layer has as many units as that, rounded up.

    **Support.** Machines are trained on part of the items, each with a machine of one unit on top of it, and the two
    together give the other items' votes a probability: a layer's units are there for the label above them. More units
    are supported if they raise the mean log-likelihood of these items by more than two standard errors of the
    difference. One unit is the label itself. Two leave the label above them open, since they have fewer probabilities
    than it has parameters, so next come three, then four, …, as long as each size is supported. The likelihood of the
    machine alone would not do: on votes of a tree it asks for a unit for the label beside one for each group, and the
    label above them gets worse by it.

    Where votes are missing, voters may have too few of them to be learnt one by one. Then the precision with which
    their parameters are drawn towards the mean of all voters is chosen by the same held-out items.

    Attributes:
        penalty: Weight of the L2 penalty on the wide machine; by default that of the noise.
        held_out: Share of the items that are held out.
        max_units: Train this many units, or as many as there are visible ones if these are fewer. None: always as
            many as visible units.
        training: How to train; by default exactly where the size allows.
    """

    penalty: NotNegative | None = None
    held_out: PartialShare = 0.2
    max_units: Count | None = 8
    training: Training | None = None

    @double_precision
    def choose(self, rows: VisibleRows, *, key: jax.Array) -> Width:
        """Choose the number of hidden units for these rows."""
        split_key, single_key, wide_key, nested_key = jax.random.split(key, 4)
        parts = rows.split(self.held_out, split_key)
        scored = _Scored(parts, (0.0,) if rows.observed is None else (0.0, *POOLINGS), self.training)
        scored.add(1, single_key)
        single = Width(1, np.ones(1), 1.0, tuple(scored.gains), scored.ends[1][:2], scored.pooling)
        if not _has_room(rows, FEWEST):
            return single
        if not (gain := scored.gain(FEWEST, nested_key)).supported:
            return single._replace(gains=(*single.gains, gain))
        wide = self._train_wide(rows, wide_key)
        shares, rank = effective_rank(unit_strengths(wide.machine))
        num_hidden = 1
        for size in range(FEWEST, max(FEWEST, math.ceil(rank)) + 1):
            starts = [narrowed(machine, size) for machine in wide.ends]
            size_key = jax.random.fold_in(nested_key, size)
            if not _has_room(rows, size) or not scored.add(size, size_key, starts).supported:
                break
            num_hidden = size
        starts = [*scored.ends[num_hidden][:2], *(narrowed(machine, num_hidden) for machine in wide.ends)]
        return Width(num_hidden, shares, rank, tuple(scored.gains), tuple(starts), scored.pooling)

    def _train_wide(self, rows: VisibleRows, key: jax.Array) -> Trained:
        num_units = min(rows.num_units, self.max_units or rows.num_units)
        while num_units > 2 and enumeration_cost(rows, num_units).seconds > WIDE_SECONDS:
            num_units -= 1
        penalty = self.penalty
        if penalty is None:
            penalty = math.sqrt(rows.num_units / int(rows.num_items)) / 8
        training = self.training or choose_training(rows, num_units, exact=replace(QUICK, weight_scale=0.1))
        return replace(training, penalty=penalty).train(rows, num_units, key=key)


class _Scored:
    """Machines of growing size, trained on some rows and compared on others."""

    def __init__(
        self, parts: tuple[VisibleRows, VisibleRows], poolings: tuple[float, ...], training: Training | None
    ) -> None:
        self.training, self.poolings = training, poolings
        self.training_rows, self.held_out = parts
        self.gains: list[Gain] = []
        self.ends: dict[int, tuple[Machine, ...]] = {}  # of each size, where a later training of it starts as well
        self._values = _row_values(_without_units(self.training_rows), self.held_out)

    @property
    def pooling(self) -> float:
        """How far voters are drawn together."""
        return self.poolings[0]

    def gain(self, num_hidden: int, key: jax.Array) -> Gain:
        """What a machine of another size gains, from random starts."""
        return self._gain(self._score(num_hidden, key, ()))

    def add(self, num_hidden: int, key: jax.Array, starts: Sequence[Machine] = ()) -> Gain:
        """The same, and compare with this machine from now on; the first also settles how far voters are drawn."""
        best = self._score(num_hidden, key, starts)
        self.gains.append(self._gain(best))
        self._values, self.poolings = best.values, (best.pooling,)
        return self.gains[-1]

    def _gain(self, score: "_Score") -> Gain:
        weight = np.asarray(self.held_out.weight)
        return _paired_gain(score.values - self._values, weight, int(self.held_out.num_items))

    def _score(self, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> "_Score":
        """The held-out log-likelihoods at the pooling that is best for them."""
        scores: list[_Score] = []
        starts = [*starts, *self.ends.get(num_hidden, ())[:2]]
        for pooling in self.poolings:
            quick = QUICK if not scores else replace(QUICK, restarts=1)  # from where the last one ended
            trained = self._train(self.training_rows, num_hidden, replace(quick, pooling=pooling), key, starts)
            starts = [trained.machine]
            scores.append(_Score(pooling, self._values_under(trained.machine, key), trained.ends))
        weight = np.asarray(self.held_out.weight)
        best = max(scores, key=lambda score: float(weight @ score.values))
        self.ends[num_hidden] = best.ends
        return best

    def _values_under(self, machine: Machine, key: jax.Array) -> Float[np.ndarray, " row"]:
        """The log-likelihoods of the held-out rows under a machine and, if it has several units, one above it."""
        if machine.num_hidden == 1:
            return _row_values(machine, self.held_out)
        if not is_exact(machine):
            return _unknown(self.held_out)
        rows = rows_above(machine, self.training_rows, "exact", key=key)
        above = self._train(rows, 1, QUICK, key, ())
        return fetch(stacked_log_likelihoods(machine, above.machine, self.held_out))

    def _train(
        self, rows: VisibleRows, num_hidden: int, exact: ExactTraining, key: jax.Array, starts: Sequence[Machine]
    ) -> Trained:
        training = self.training or choose_training(rows, num_hidden, exact=exact)
        if isinstance(training, ExactTraining):
            training = replace(training, pooling=exact.pooling)
        return training.train(rows, num_hidden, key=key, starts=starts)


class _Score(NamedTuple):
    pooling: float
    values: Float[np.ndarray, " row"]
    ends: tuple[Machine, ...]


def _row_values(machine: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"]:
    """The log-likelihood of each row; for a machine too large to enumerate nothing is known, and nothing is gained."""
    values = exact_log_likelihoods(machine, rows)
    return _unknown(rows) if values is None else values


def _unknown(rows: VisibleRows) -> Float[np.ndarray, " row"]:
    return np.full(len(rows.weight), -np.inf)


def _paired_gain(differences: Float[np.ndarray, " row"], weight: Float[np.ndarray, " row"], num_items: int) -> Gain:
    if not np.isfinite(differences[weight > 0]).all():
        return Gain(-np.inf, 0.0)
    differences = np.where(weight > 0, differences, 0.0)
    mean = float(weight @ differences)
    return Gain(mean, float(np.sqrt(weight @ (differences - mean) ** 2 / max(num_items - 1, 1))))


def _has_room(rows: VisibleRows, num_hidden: int) -> bool:
    """Whether so many units are fewer than the visible ones, with no more parameters than rows have probabilities."""
    visible, hidden = rows.visible.shape[1], num_hidden * rows.units.width
    parameters = visible + hidden + visible * hidden
    return num_hidden < rows.num_units and parameters < rows.units.num_states**rows.num_units


def _without_units(rows: VisibleRows) -> Machine:
    """Voters who are independent of all: one hidden unit without weights."""
    width = rows.units.width
    shape = rows.visible.shape[1], width
    return Machine(jnp.zeros(shape), rows.units.log_odds(rows.means), jnp.zeros(width), rows.units, rows.units)


def effective_rank(strengths: Float[np.ndarray, " unit"]) -> tuple[Float[np.ndarray, " unit"], float]:
    """The cumulative shares of singular values, and the exponential of the entropy of the shares; 1 if all are 0."""
    total = strengths.sum()
    if total <= 0:
        return np.ones(len(strengths)), 1.0
    shares = strengths / total
    return np.cumsum(shares), float(np.exp(-np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)))))


def unit_strengths(machine: Machine) -> Float[np.ndarray, " unit"]:
    """Singular values of W, for more than two classes those of one unit added up, whichever states are states 0."""
    width = machine.hidden_units.width
    singular = np.linalg.svd(centred_weights(machine), compute_uv=False)[: width * machine.num_hidden]
    return np.pad(singular, (0, -len(singular) % width)).reshape(-1, width).sum(axis=1)


def narrowed(machine: Machine, num_hidden: int) -> Machine:
    """The machine with only some of its hidden units: those whose weights are longest and most independent."""
    units = machine.hidden_units
    left = np.moveaxis(units.by_unit(np.asarray(machine.weights)), 1, 0)
    kept: list[int] = []
    for _ in range(num_hidden):
        lengths = np.linalg.norm(left, axis=(1, 2))
        lengths[kept] = -1.0
        kept.append(int(np.argmax(lengths)))
        basis, scale, _ = np.linalg.svd(left[kept[-1]], full_matrices=False)
        basis = basis[:, scale > 1e-12 * scale.max(initial=1.0)]
        left = left - basis @ (basis.T @ left)
    columns = (np.array(kept)[:, None] * units.width + np.arange(units.width)).ravel()
    return machine._replace(weights=machine.weights[:, columns], hidden_bias=machine.hidden_bias[columns])
