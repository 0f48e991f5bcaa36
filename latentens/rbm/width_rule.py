"""The rule for the width of a layer: how many hidden units the votes call for, and how many they support."""

import math
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
from latentens.rbm.training.choice import choose_training
from latentens.rbm.training.exact import EVALUATIONS, ExactTraining, centred_weights
from latentens.rbm.training.interface import Trained, Training
from latentens.runtime.limits import TIME_VARIABLE, time_limit
from latentens.runtime.precision import double_precision
from latentens.runtime.settings import Count, NotNegative, PartialShare, Settings

WIDE_SECONDS = 0.02
"""A wide machine has at most as many units as let its likelihood and gradient take this many seconds."""

POOLINGS = (0.1, 1.0, 10.0, 100.0)
"""Precisions with which voters may be drawn towards their mean: from none to nearly equal voters, by powers of ten."""


SIGNIFICANT = 2.0
"""A gain of more standard errors than this is no accident: the usual level, since several sizes are tried."""

QUICK = ExactTraining(restarts=2, max_iterations=400, tolerance=3e-5)


def too_long_for_gaps(sizes: RowSizes, *, one_unit: bool = False) -> str | None:
    """Why rows with gaps get one unit by other means, in words: it would take too long. None if it would not.

    One unit is trained at every pooling and once more in the end, which together cost about two trainings, and two
    units once. Complete rows are cheap, since states are enumerated only once for all of them.

    Args:
        sizes: The sizes of the rows.
        one_unit: Whether the rows need not be asked for the width, since it is known to be one.
    """
    one, two = (EVALUATIONS * enumeration_cost(sizes, number).seconds for number in (1, 2))
    seconds, limit = one if one_unit else 2 * one + two, time_limit(EVALUATIONS * LONGEST_EVALUATION)
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
        gains: What the first hidden unit gains on held-out rows, what the second gains, ….
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

    **Support.** Machines of 1, 2, … units are trained on part of the items. A unit more is supported if it raises the
    mean log-likelihood of the other items by more than two standard errors of the difference. A layer has at most as
    many units as are supported one after the other, and at least one. Rows of so few voters that a machine can already
    have any distribution, such as three binary ones with one unit, support no more.

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
        single = scored.ends[:2]
        if _is_saturated(rows, 1) or not scored.add(2, nested_key).supported:
            return Width(1, np.ones(1), 1.0, tuple(scored.gains), single, scored.pooling)
        wide = self._train_wide(rows, wide_key)
        shares, rank = effective_rank(unit_strengths(wide.machine))
        wanted = min(math.ceil(rank), rows.num_units)
        num_hidden = min(2, wanted)
        while num_hidden < wanted and not _is_saturated(rows, num_hidden):
            starts = [narrowed(machine, num_hidden + 1) for machine in wide.ends]
            if not scored.add(num_hidden + 1, jax.random.fold_in(nested_key, num_hidden), starts).supported:
                break
            num_hidden += 1
        starts = [narrowed(machine, num_hidden) for machine in wide.ends]
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
        self.ends: tuple[Machine, ...] = ()
        self.pooling = poolings[0]
        self._values = _row_values(_without_units(self.training_rows), self.held_out)

    def add(self, num_hidden: int, key: jax.Array, starts: list[Machine] | None = None) -> Gain:
        """Train a machine with one unit more; the first one also settles how far voters are drawn together."""
        best: tuple[float, float, Float[np.ndarray, " row"], tuple[Machine, ...]] | None = None
        weight = np.asarray(self.held_out.weight)
        for pooling in self.poolings:
            training = QUICK if best is None else replace(QUICK, restarts=1)  # from where the last one ended
            trained = self._train(num_hidden, replace(training, pooling=pooling), key, starts or [])
            starts = [trained.machine]
            values = _row_values(trained.machine, self.held_out)
            score = float(weight @ values)
            if best is None or score > best[0]:
                best = score, pooling, values, trained.ends
        assert best is not None
        _, self.pooling, values, self.ends = best
        self.gains.append(_paired_gain(values - self._values, weight, int(self.held_out.num_items)))
        self._values, self.poolings = values, (self.pooling,)
        return self.gains[-1]

    def _train(self, num_hidden: int, exact: ExactTraining, key: jax.Array, starts: list[Machine]) -> Trained:
        training = self.training or choose_training(self.training_rows, num_hidden, exact=exact)
        if isinstance(training, ExactTraining):
            training = replace(training, pooling=exact.pooling)
        return training.train(self.training_rows, num_hidden, key=key, starts=starts)


def _row_values(machine: Machine, rows: VisibleRows) -> Float[np.ndarray, " row"]:
    """The log-likelihood of each row; for a machine too large to enumerate nothing is known, and nothing is gained."""
    values = exact_log_likelihoods(machine, rows)
    return np.full(len(rows.weight), -np.inf) if values is None else values


def _paired_gain(differences: Float[np.ndarray, " row"], weight: Float[np.ndarray, " row"], num_items: int) -> Gain:
    if not np.isfinite(differences[weight > 0]).all():
        return Gain(-np.inf, 0.0)
    differences = np.where(weight > 0, differences, 0.0)
    mean = float(weight @ differences)
    return Gain(mean, float(np.sqrt(weight @ (differences - mean) ** 2 / max(num_items - 1, 1))))


def _is_saturated(rows: VisibleRows, num_hidden: int) -> bool:
    """Whether a machine has as many parameters as rows have probabilities, so that more units are for nothing."""
    visible, hidden = rows.visible.shape[1], num_hidden * rows.units.width
    return visible + hidden + visible * hidden >= rows.units.num_states**rows.num_units - 1


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
