"""GLAD, voters of different ability on items of different difficulty (Whitehill et al. 2009)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.programs.tables import labelled_rows
from latentens.runtime.numerics import row_maxima
from latentens.runtime.parallel import in_threads, stop_if_asked
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.layout import Cells, Indicator, Values, vote_indicator

ABILITY_MEAN = EASE_MEAN = 1.0

Result = TypeVar("Result")

Abilities = Float[np.ndarray, " voter"]
Eases = Float[np.ndarray, " row"]
LogAllowed = Float[np.ndarray, "row label"]


@dataclass(frozen=True, eq=False)
class VotedRows:
    """Neighbouring rows of votes.

    Attributes:
        place: Where they are among all rows.
        cells: The votes that were cast.
        indicator: The same, laid out for products.
        log_allowed: Zero where a row can have a label, −∞ where it cannot; None if nothing is known.
        num_classes: Number of classes.
    """

    place: slice
    cells: Cells
    indicator: Indicator
    log_allowed: LogAllowed | None
    num_classes: int

    @classmethod
    def of(cls, votes: Votes, log_allowed: LogAllowed | None = None, start: int = 0) -> "VotedRows":
        """Lay out some votes, those of the rows from `start` on."""
        place = slice(start, start + votes.num_items)
        allowed = None if log_allowed is None else log_allowed[place]
        return cls(place, Cells.of(votes), vote_indicator(votes, votes.num_classes), allowed, votes.num_classes)

    @property
    def cast(self) -> Float[np.ndarray, " row"]:
        """The number of votes of each row."""
        return self.cells.sum_by_row(self.cells.ones, np.ones(self.cells.votes.shape[1]))

    def cast_for(self, of_voters: Abilities) -> Float[np.ndarray, "row label"]:
        """The sum of a quantity of voters over those who voted for each class."""
        columns = of_voters.repeat(self.num_classes)[:, None] * np.tile(np.eye(self.num_classes), (len(of_voters), 1))
        return self.indicator @ columns

    def for_voter(self, of_rows: Float[np.ndarray, "row label"]) -> Float[np.ndarray, " voter"]:
        """The sum over a voter's rows of a quantity of the class that was voted for."""
        by_vote = (self.indicator.T @ of_rows).reshape(-1, self.num_classes, self.num_classes)
        return np.trace(by_vote, axis1=1, axis2=2)


class Expected(NamedTuple):
    """Expectations at given abilities and eases; s = α e^β is the strength of a vote."""

    label_probs: Float[np.ndarray, "row label"]
    log_total: Float[np.ndarray, " row"]
    """log Σ_k exp(Σ_{votes for k} s), and what the votes for k gain where there are several ways to be wrong."""
    cast_for: Float[np.ndarray, "row label"]
    """The sum of the abilities of those who voted for each class."""
    decay: Values
    """e^−|s| of each vote."""
    sure: Values
    """σ(|s|) of each vote."""


@dataclass(frozen=True)
class Glad(Method):
    """Voter j is right about item i with probability σ(α_j e^{β_i}); wrong answers are equally likely.

    Abilities α_j and eases β_i have priors N(1, 1), and classes are equally frequent. The probabilities are the
    posterior of the label at the estimated abilities and eases. Gold labels are used in every round. Votes for
    categories that are not labels, such as "tie", count as missing: as one more wrong answer they do harm.

    Notes:
        Each round of expectation–maximisation computes the posterior of the labels, then takes a scoring step in each
        ease and each ability. Gold labels also provide a second start; the better result is kept.

    Attributes:
        tolerance: Stop when a round gains less than this in mean log-posterior.
        max_iterations: Limit on the number of rounds.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Glad().fit(votes, key=jax.random.key(0))
        >>> fit.label_probs[3000:3002].round(2)
        array([[1., 0.],
               [1., 0.]])
    """

    counts_rows = True

    tolerance: Positive = 1e-7
    max_iterations: Count = 300

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key  # nothing here is random
        rows = labelled_rows(votes, gold)
        blocks = _blocks(rows.votes, None if gold is None else rows.log_allowed)
        starts = [np.full(votes.num_voters, ABILITY_MEAN)]
        if gold is not None:
            starts.append(_gold_ability(votes, gold))
        ends = [self._ascend(blocks, rows.counts, start) for start in starts]
        ability, objective, iterations, converged = max(ends, key=lambda end: end[1])
        estimated, ease = self._rows_given(ability, blocks)
        diagnostics = Diagnostics(
            "posterior of the label at the estimated ability and ease",
            iterations=iterations,
            converged=converged,
            extra={"log_posterior": objective},
        )
        params = _params(ability, ease, rows.counts, votes.num_classes)
        return Estimate({**params, "ease": ease[rows.inverse]}, diagnostics, label_probs=estimated[rows.inverse])

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """True with more than two classes, where a right vote is always one for the label itself."""
        return len(estimate.params["prevalence"]) > 2

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """Voters of the opposite ability."""
        params = estimate.params
        opposite = {"confusion": params["confusion"][:, order], "ability": -params["ability"]}
        return replace(estimate, params={**params, **opposite})

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return self._rows_given(estimate.params["ability"], _blocks(votes, None))[0]

    def _ascend(
        self, blocks: list[VotedRows], counts: Int[np.ndarray, " row"], ability: Abilities
    ) -> tuple[Abilities, float, int, bool]:
        """Abilities at the maximum, the log-posterior there, rounds, and whether it was reached."""
        ease, objective = np.full(len(counts), EASE_MEAN), -np.inf

        def step(voted: VotedRows) -> tuple[float, Abilities, Abilities]:
            """Move the eases of a block; its part of the log-posterior before, and of the step in the abilities."""
            eases, weights = ease[voted.place], counts[voted.place]
            expected = expect(voted, ability, eases)
            height = rows_log_posterior(voted, expected, weights, ability, eases)
            eases += _ease_step(voted, expected, ability, eases)
            return height, *_ability_information(voted, expect(voted, ability, eases), weights, ability, eases)

        for iteration in track_late(range(1, self.max_iterations + 1), "GLAD: rounds of the limit"):
            stop_if_asked()
            heights, gradients, information = zip(*_side_by_side(step, blocks), strict=True)
            before, objective = objective, sum(heights) - float(np.sum((ability - ABILITY_MEAN) ** 2)) / 2
            if objective - before < self.tolerance * counts.sum():
                return ability, objective, iteration, True
            ability = ability + _limited((sum(gradients) - (ability - ABILITY_MEAN)) / (sum(information) + 1))
        return ability, objective, self.max_iterations, False

    def _rows_given(
        self, ability: Abilities, blocks: list[VotedRows], least_step: float = 1e-6
    ) -> tuple[Posterior, Eases]:
        """Posterior and ease of each row at given abilities, starting from average ease."""

        def settle(voted: VotedRows) -> tuple[Posterior, Eases]:
            ease = np.full(len(voted.cast), EASE_MEAN)
            for _ in range(self.max_iterations):
                stop_if_asked()
                step = _ease_step(voted, expect(voted, ability, ease), ability, ease)
                ease += step
                if (np.abs(step) < least_step).all():
                    break
            return _label_probs(voted, voted.cast_for(ability), ease)[0], ease

        probs, ease = zip(*_side_by_side(settle, blocks), strict=True)
        return np.concatenate(probs), np.concatenate(ease)


def _gold_ability(votes: Votes, gold: GoldCodes) -> Abilities:
    """The ability of each voter by gold labels, at average ease: log-odds of being right, with one vote more each."""
    item, voter, vote = votes.triplets
    asked = gold[item] >= 0
    right, cast = (
        np.bincount(voter[asked], weights, votes.num_voters)
        for weights in (gold[item[asked]] == vote[asked], np.ones(asked.sum()))
    )
    return np.log((right + 1) / (cast - right + 1)) / np.exp(EASE_MEAN)


def _blocks(rows: Votes, log_allowed: LogAllowed | None) -> list[VotedRows]:
    return [VotedRows.of(part, log_allowed, start) for start, part in rows.blocks()]


def _side_by_side(work: Callable[[VotedRows], Result], blocks: list[VotedRows]) -> list[Result]:
    return [work(blocks[0])] if len(blocks) == 1 else in_threads(work, blocks)


def expect(voted: VotedRows, ability: Abilities, ease: Eases) -> Expected:
    """Posterior of the labels: log p(votes | k) = Σ log σ(−s) + Σ_{votes for k} s, up to what wrong votes share."""
    cast_for = voted.cast_for(ability)
    decay = voted.cells.products(-np.exp(ease)[:, None], np.abs(ability)[:, None])
    np.exp(decay, out=decay)
    return Expected(*_label_probs(voted, cast_for, ease), cast_for, decay, 1 / (1 + decay))


def _label_probs(
    voted: VotedRows, cast_for: Float[np.ndarray, "row label"], ease: Eases
) -> tuple[Posterior, Float[np.ndarray, " row"]]:
    for_class = cast_for * np.exp(ease)[:, None]
    if voted.num_classes > 2:  # a right vote is worth more, the more ways there are to be wrong
        for_class += np.log(voted.num_classes - 1) * voted.cast_for(np.ones(voted.cells.votes.shape[1]))
    if voted.log_allowed is not None:
        for_class = for_class + voted.log_allowed
    highest = row_maxima(for_class)
    joint = np.exp(for_class - highest[:, None])
    total = joint.sum(axis=1)
    return joint / total[:, None], np.log(total) + highest


def _log_likelihoods(
    voted: VotedRows, expected: Expected, ability: Abilities, ease: Eases
) -> Float[np.ndarray, " row"]:
    """Log-likelihoods of the rows; Σ log σ(−s) = −Σ max(s, 0) − Σ log(1 + e^−|s|)."""
    positive = voted.cells.sum_by_row(voted.cells.ones, np.maximum(ability, 0.0)) * np.exp(ease)
    rest = voted.cells.sum_by_row(np.log1p(expected.decay), np.ones(len(ability)))
    shared = voted.cast * np.log(voted.num_classes - 1) + np.log(voted.num_classes)
    return expected.log_total - positive - rest - shared


def _ease_step(voted: VotedRows, expected: Expected, ability: Abilities, ease: Eases) -> Eases:
    """The gradient is Σ_j (p_i(x_ij) − σ(s)) s, in which σ(s) s = σ(|s|) |s| + min(s, 0)."""
    sure, scale, size = expected.sure, np.exp(ease), np.abs(ability)
    negative = voted.cells.sum_by_row(voted.cells.ones, np.minimum(ability, 0.0))
    right = np.einsum("ik,ik->i", expected.label_probs, expected.cast_for)
    gradient = (right - voted.cells.sum_by_row(sure, size) - negative) * scale
    information = voted.cells.sum_by_row(sure * expected.decay * sure, size**2) * scale**2
    return _limited((gradient - (ease - EASE_MEAN)) / (information + 1))


def _ability_information(
    voted: VotedRows, expected: Expected, counts: Int[np.ndarray, " row"], ability: Abilities, ease: Eases
) -> tuple[Abilities, Abilities]:
    """Gradient and information of the abilities; for a negative ability, σ(s) = 1 − σ(|s|)."""
    sure, weight = expected.sure, counts * np.exp(ease)
    right = voted.for_voter(expected.label_probs * weight[:, None])
    modelled = voted.cells.sum_by_voter(sure, weight)
    cast = voted.cells.sum_by_voter(voted.cells.ones, weight)
    gradient = right - np.where(ability < 0, cast - modelled, modelled)
    return gradient, voted.cells.sum_by_voter(sure * expected.decay * sure, weight * np.exp(ease))


def _limited(step: np.ndarray, largest: float = 1.0) -> np.ndarray:
    return np.clip(step, -largest, largest)


def rows_log_posterior(
    voted: VotedRows, expected: Expected, counts: Int[np.ndarray, " row"], ability: Abilities, ease: Eases
) -> float:
    """Log-likelihood plus log-priors of the eases, every item having one of its own."""
    return float(counts @ (_log_likelihoods(voted, expected, ability, ease) - (ease - EASE_MEAN) ** 2 / 2))


def _params(
    ability: Abilities, ease: Eases, counts: Int[np.ndarray, " row"], num_classes: int
) -> dict[str, np.ndarray]:
    """Abilities, and each voter's probability of being right on the items of the fit, whatever their class."""
    scale = np.exp(ease)
    right = np.array([counts @ expit(a * scale) for a in ability]) / counts.sum()
    wrong = ((1 - right) / (num_classes - 1))[:, None, None]
    confusion = np.where(np.eye(num_classes, dtype=bool), right[:, None, None], wrong)
    return {"prevalence": np.full(num_classes, 1 / num_classes), "confusion": confusion, "ability": ability}
