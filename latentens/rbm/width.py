"""The rule for the width of a layer: how many hidden units the weights suggest, and how many held-out votes support."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from latentens.rbm.exact import ExactTraining, exact_log_likelihoods, stacked_log_likelihoods
from latentens.rbm.machine import Machine
from latentens.rbm.rows import RowSizes, VisibleRows
from latentens.rbm.stack import is_exact, rows_above
from latentens.rbm.training import Trained, Training, centred_weights
from latentens.runtime.numerics import double_precision
from latentens.runtime.settings import Count, NotNegative, PartialShare, Settings

FEWEST = 3
"""Units below a label that they determine (Kruskal 1977)."""

SingleUnit = Callable[[Bool[np.ndarray, " item"]], Machine]
"""Finds the machine with one unit from some items, in the order of the rows."""


class Gain(NamedTuple):
    """The gain in mean held-out log-likelihood from more hidden units, in nats per row."""

    mean: float
    standard_error: float

    @property
    def supported(self) -> bool:
        """Whether the gain exceeds two standard errors, the usual level."""
        return self.mean > 2 * self.standard_error


class Width(NamedTuple):
    """The result of the rule.

    Attributes:
        num_hidden: The number of hidden units.
        cumulative: Cumulative share of the singular values of the wide machine; all of it if one unit is enough.
        effective_rank: The effective rank of its weights; 1 if one unit is enough, NaN if no more than three
            are possible.
        gains: The gain of one hidden unit on held-out rows, of three over one, of a fourth over three, ….
        starts: Machines of that size where training may start, the best first.
    """

    num_hidden: int
    cumulative: Float[np.ndarray, " unit"]
    effective_rank: float
    gains: tuple[Gain, ...]
    starts: tuple[Machine, ...]


@dataclass(frozen=True)
class SingularValueRule(Settings):
    """As many hidden units as the weights have effective directions, and no more than held-out rows support.

    Notes:
        *Directions.* More units than needed are trained under an L2 penalty. A unit with vanishing weights starts to
        grow only if a direction of the data's covariance exceeds the machine's by more than four times the penalty.
        Sampling noise alone exceeds it by about `(1/2) √(voters/items)`, so a penalty of `(1/8) √(voters/items)` lets
        only signal grow; with K classes and V different votes, the indicators of a hidden unit have variance 1/K, those
        of a voter 1/V, and there are V − 1 of these, which makes it `√((V − 1) voters/items) / (2KV)`. The singular
        values s_k of W, as shares p_k of their sum, have the effective rank `exp(−Σ p_k log p_k)` (Roy & Vetterli
        2007); a layer has as many units as that, rounded up.

        *Support.* Machines are trained on part of the items, each with a machine of one unit on top of it, and the two
        together give the held-out votes a probability: a layer's units serve the label above them. More units are
        supported if they raise the mean held-out log-likelihood by more than two standard errors of the difference.
        One unit is the label itself. Two do not identify the label above them, since they have fewer probabilities
        than it has parameters, so next come three, then four, …, as long as each size is supported. The likelihood of
        the machine alone is not enough: on votes of a tree it would add a unit for the label beside one for each group,
        which makes the label above them worse.

        A machine with more parameters than items, as many units as voters, or too many states is not tried.

    Attributes:
        penalty: Weight of the L2 penalty on the wide machine; by default that of the noise.
        held_out: Share of the items that are held out; they are spread evenly over the items in the order of their
            votes, so that the split does not depend on a key.
        max_units: Train this many units, or as many as there are visible ones if these are fewer. None: always as
            many as visible units.
        training: How to train; by default exactly.
        max_entries: Largest number of table entries per evaluation of the exact likelihood, a few hundred states for
            ten voters; larger machines are not tried.
    """

    penalty: NotNegative | None = None
    held_out: PartialShare = 0.2
    max_units: Count | None = 8
    training: Training | None = None
    max_entries: Count = 2**16

    @double_precision
    def choose(self, rows: VisibleRows, *, key: jax.Array, single: SingleUnit | None = None) -> Width:
        """Choose the number of hidden units for these rows.

        Args:
            rows: The rows.
            key: Random key, for the starts of training.
            single: How one unit is found that others compete with; by default by training like theirs.
        """
        single_key, wide_key, nested_key = jax.random.split(key, 3)
        # no unit, then one: is there a label at all?
        held_out = held_out_items(int(rows.num_items), self.held_out)
        training, others = rows.split(held_out)
        one = single(~held_out) if single else self._training.train(training, 1, key=single_key).machine
        values = exact_log_likelihoods(one, others)
        none = jax.tree.map(np.zeros_like, one)._replace(visible_bias=training.biases)
        gains = [gain_of(exact_log_likelihoods(none, others), values, others)]
        # then three with a unit on top of them
        if not self.has_room(rows.sizes, int(rows.num_items), FEWEST):
            return Width(1, np.ones(1), 1.0, tuple(gains), (one,))
        before = values
        last, values = self._train_stack(training, others, FEWEST, nested_key)
        gains.append(gain := gain_of(before, values, others))
        if not gain.supported:
            return Width(1, np.ones(1), 1.0, tuple(gains), (one,))
        if not self.has_room(rows.sizes, int(rows.num_items), FEWEST + 1):
            return Width(FEWEST, np.ones(1), np.nan, tuple(gains), last.ends[:1])
        # then one more at a time, up to the effective rank of a wide machine
        wide = self._train_wide(rows, wide_key)
        shares, rank = effective_rank(unit_strengths(wide.machine))
        num_hidden = FEWEST
        for size in range(FEWEST + 1, math.ceil(rank) + 1):
            if not self.has_room(rows.sizes, int(rows.num_items), size):
                break
            before = values
            wider, values = self._train_stack(training, others, size, jax.random.fold_in(nested_key, size))
            gains.append(gain := gain_of(before, values, others))
            if not gain.supported:
                break
            num_hidden, last = size, wider
        return Width(num_hidden, shares, rank, tuple(gains), last.ends[:1])

    def has_room(self, sizes: RowSizes, num_items: int, num_hidden: int) -> bool:
        """Whether a machine of this size is tried.

        It has fewer hidden units than visible ones, no more parameters than there are items, and fewer than rows have
        probabilities; and its states are few enough to enumerate.
        """
        visible, hidden = sizes.num_units * (sizes.num_states - 1), num_hidden * (sizes.num_classes - 1)
        parameters = visible + hidden + visible * hidden
        return (
            num_hidden < sizes.num_units
            and parameters <= num_items
            and parameters < sizes.num_states**sizes.num_units
            and sizes.entries(num_hidden) <= self.max_entries
        )

    @property
    def _training(self) -> Training:
        # the number of supported units hardly depends on finding the best optimum
        return self.training or ExactTraining(restarts=4, batches=1)

    def _train_stack(
        self, rows: VisibleRows, others: VisibleRows, num_hidden: int, key: jax.Array
    ) -> tuple[Trained, Float[np.ndarray, " row"] | None]:
        """A machine, and the log-likelihoods of other rows under it with one unit on top; None if it is too large."""
        lower_key, key, upper_key = jax.random.split(key, 3)
        lower = self._training.train(rows, num_hidden, key=lower_key)
        above = rows_above(lower.machine, rows, None, key=key)
        upper = self._training.train(above, 1, key=upper_key).machine
        return lower, stacked_log_likelihoods(lower.machine, upper, others) if is_exact(lower.machine) else None

    def _train_wide(self, rows: VisibleRows, key: jax.Array) -> Trained:
        num_units = min(rows.num_units, self.max_units or rows.num_units)
        while num_units > FEWEST and rows.sizes.entries(num_units) > self.max_entries:
            num_units -= 1
        penalty = self.penalty
        if penalty is None:
            states = rows.units.num_states * rows.hidden_units.num_states
            penalty = math.sqrt(rows.visible.shape[1] / int(rows.num_items)) / (2 * states)
        training = self.training or ExactTraining(restarts=2, batches=1, weight_scale=0.1)
        return replace(training, penalty=penalty).train(rows, num_units, key=key)


def held_out_items(num_items: int, share: float) -> Bool[np.ndarray, " item"]:
    """Which items are held out: a share of them, at equal distances; at least one, and never all."""
    held_out = np.diff(np.floor(share * (np.arange(num_items + 1) + 0.5))) > 0
    if num_items > 1 and not 0 < held_out.sum() < num_items:
        held_out = np.arange(num_items) == num_items // 2
    return held_out


def gain_of(
    before: Float[np.ndarray, " row"] | None, after: Float[np.ndarray, " row"] | None, rows: VisibleRows
) -> Gain:
    """The gain from one model to a larger one by the log-likelihoods of rows; unknown ones count as no gain."""
    if before is None or after is None:
        return Gain(-np.inf, 0.0)
    differences, weight = after - before, np.asarray(rows.weight)
    mean = float(weight @ differences)
    return Gain(mean, float(np.sqrt(weight @ (differences - mean) ** 2 / max(int(rows.num_items) - 1, 1))))


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
