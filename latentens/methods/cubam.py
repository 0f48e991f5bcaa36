"""CUBAM, annotators with competence and bias (Welinder, Branson, Belongie & Perona 2010)."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import erfcx, expit, log_ndtr, ndtr

from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.rows import in_blocks, require_two_classes
from latentens.programs.components import two_class_confusion
from latentens.programs.tables import labelled_rows
from latentens.runtime.numerics import FIVE_POINT_DERIVATIVES, numpy_generator
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.settings import Count
from latentens.votes import Votes
from latentens.votes.layout import Cells, Indicator, Values, vote_indicator

SIGNAL_SPREAD = 0.8
SIGNAL_GRID = np.linspace(-5, 5, 201)
NEWTON_STEPS = 20
NEWTON_TOLERANCE = 1e-6

Signals = Float[np.ndarray, "row dimension"]
LogAllowed = Float[np.ndarray, "row label"]


class Voters(NamedTuple):
    """Parameters of the voters."""

    weight: Float[np.ndarray, "voter dimension"]
    threshold: Float[np.ndarray, " voter"]


@dataclass(frozen=True)
class Cubam(Method):
    """Voter j says 1 of item i with probability Φ(w_j·z_i − τ_j), at the posterior maximum by alternation.

    Priors: z ~ ½N(1, .8²) + ½N(−1, .8²), w ~ N(1, 1), τ ~ N(0, 3²). The label is the sign of Σz; the probabilities are
    those of the two components of the prior at the estimated z. An item with a gold label has only that label's
    component.

    Attributes:
        dimensions: Dimensions of z and w.
        rounds: Rounds of the alternation. The estimates keep drifting for hundreds of rounds, and the labels with
            them; 30 is what published comparisons use.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Cubam().fit(votes, key=jax.random.key(0))
        >>> fit.label_probs[:2].round(2)
        array([[0.97, 0.03],
               [0.97, 0.03]])
    """

    dimensions: Count = 1
    rounds: Count = 30

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        require_two_classes(votes, self)
        rows = labelled_rows(votes, gold)
        cells, indicator, counts = Cells.of(rows.votes), vote_indicator(rows.votes, 2), rows.counts
        allowed = None if gold is None else rows.log_allowed
        voters, change = self._start(votes.num_voters, key), np.inf
        ahead = voters
        for _ in range(self.rounds - 1):
            stop_if_asked()
            signals = estimate_signals(cells, indicator, voters, allowed)
            updated = estimate_voters(cells, counts, signals, ahead)
            ahead = Voters(*(2 * new - old for new, old in zip(updated, voters, strict=True)))  # extrapolated
            change, voters = float(np.abs(updated.weight - voters.weight).max()), updated
        diagnostics = Diagnostics(
            "probability of the prior's two components at the estimated signal, not of the votes",
            iterations=self.rounds,
            converged=change < NEWTON_TOLERANCE,
            extra={"last_change_of_weights": change},
        )
        return Estimate(_params(voters), diagnostics)

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """Weights of the opposite sign."""
        del order  # there is only one other
        voters = Voters(-estimate.params["weight"], estimate.params["threshold"])
        return replace(estimate, params=_params(voters))

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        voters = Voters(estimate.params["weight"], estimate.params["threshold"])
        return component_probs(estimate_signals(Cells.of(votes), vote_indicator(votes, 2), voters))

    def _start(self, num_voters: int, key: jax.Array, perturbation: float = 0.01) -> Voters:
        """Equal voters; in several dimensions a little apart, as nothing else tells the dimensions from each other."""
        weight = np.ones((num_voters, self.dimensions))
        if self.dimensions > 1:
            weight += perturbation * numpy_generator(key).standard_normal(weight.shape)
        return Voters(weight, np.zeros(num_voters))


def estimate_signals(
    cells: Cells, indicator: Indicator, voters: Voters, log_allowed: LogAllowed | None = None
) -> Signals:
    """The z of each row that maximises its posterior; zero, between the classes, for a row without votes.

    The best point of a grid along (1, …, 1), an exact tie going to the lower one, then Newton steps.

    Args:
        cells: The votes that were cast.
        indicator: The same, laid out for products.
        voters: Weights and thresholds.
        log_allowed: Zero where a row can have a label, −∞ where it cannot; None if nothing is known.
    """
    log_allowed = np.zeros((indicator.shape[0], 2)) if log_allowed is None else log_allowed
    dimensions = voters.weight.shape[1]
    margins = voters.weight.sum(axis=1)[:, None] * SIGNAL_GRID - voters.threshold[:, None]
    table = np.stack([log_ndtr(-margins), log_ndtr(margins)], axis=1).reshape(-1, len(SIGNAL_GRID))
    components = np.stack([-dimensions * (SIGNAL_GRID - m) ** 2 / (2 * SIGNAL_SPREAD**2) for m in (-1, 1)])
    heights = indicator @ table + np.logaddexp(*components)
    for label, component in enumerate(components):
        heights[log_allowed[:, 1 - label] < 0] += component - np.logaddexp(*components)
    # in several dimensions the top is elsewhere, and which of several is found depends on the start
    start = _top_near_grid(heights) if dimensions == 1 else SIGNAL_GRID[heights.argmax(axis=1)]
    signals = np.repeat(start[:, None], dimensions, axis=1)
    for _ in range(NEWTON_STEPS):
        step, still = _signal_step(cells, signals, voters, log_allowed)
        signals += step
        if not still.any():
            break
    return np.where(cells.has_votes[:, None], signals, 0.0)


def _top_near_grid(heights: Float[np.ndarray, "row point"]) -> Float[np.ndarray, " row"]:
    """The top of the polynomial through the highest point of the grid and two on either side, if it has one."""
    best = heights.argmax(axis=1)
    middle = np.clip(best, 2, len(SIGNAL_GRID) - 3)
    around = np.take_along_axis(heights, middle[:, None] + np.arange(-2, 3), axis=1)
    first, second, third, fourth = (around @ FIVE_POINT_DERIVATIVES).T
    move = np.zeros(len(heights))
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(3):
            slope = first + move * (second + move * (third / 2 + move * fourth / 6))
            move -= slope / (second + move * (third + move * fourth / 2))
    sure = (best == middle) & (second < 0) & (np.abs(move) <= 1)
    return SIGNAL_GRID[best] + np.where(sure, move, 0.0) * (SIGNAL_GRID[1] - SIGNAL_GRID[0])


def _signal_step(
    cells: Cells, signals: Signals, voters: Voters, log_allowed: LogAllowed
) -> tuple[Signals, Bool[np.ndarray, " row"]]:
    """A Newton step of each row, and which rows need another one.

    In several dimensions the mixture prior is replaced by the normal that bounds it from below. In one its own
    curvature is used, as far as that does no more than double the step.
    """
    dimensions = signals.shape[1]
    first, second = _probit_derivatives(cells, _regressors(signals), _coefficients(voters))
    share = component_probs(signals, log_allowed)[:, 1:]
    towards = 2 * share - 1  # mean of the components, weighted
    gradient = (towards - signals) / SIGNAL_SPREAD**2 + cells.sum_by_row(first, voters.weight)
    hessian = cells.sum_by_row(second, _outer(voters.weight)).reshape(-1, dimensions, dimensions)
    hessian -= np.eye(dimensions) / SIGNAL_SPREAD**2
    if dimensions > 1:
        step = _newton_step(gradient, hessian)
        return step, _moves(step)
    missing = (4 * share * (1 - share) / SIGNAL_SPREAD**4)[:, :, None]
    step = _newton_step(gradient, hessian + np.minimum(missing, -hessian / 2))
    return step, _moves(step)


def estimate_voters(
    cells: Cells,
    counts: Int[np.ndarray, " row"],
    signals: Signals,
    voters: Voters,
    weight_mean: float = 1.0,
    weight_spread: float = 1.0,
    threshold_spread: float = 3.0,
) -> Voters:
    """The w and τ of each voter that maximise the posterior given z: weighted probit regressions, by Newton steps."""
    regressors, coefficients = _regressors(signals), _coefficients(voters)
    size = regressors.shape[1]
    mean = np.append(np.full(size - 1, weight_mean), 0.0)
    precision = np.append(np.full(size - 1, weight_spread**-2), threshold_spread**-2)
    weighted, weighted_outer = (array * counts[:, None] for array in (regressors, _outer(regressors)))
    for _ in range(NEWTON_STEPS):
        first, second = _probit_derivatives(cells, regressors, coefficients)
        gradient = cells.sum_by_voter(first, weighted) - precision * (coefficients - mean)
        hessian = cells.sum_by_voter(second, weighted_outer).reshape(-1, size, size)
        step = _newton_step(gradient, hessian - np.diag(precision))
        coefficients += step
        if not _moves(step).any():
            break
    return Voters(coefficients[:, :-1], coefficients[:, -1])


def _regressors(signals: Signals) -> Float[np.ndarray, "row k"]:
    return np.concatenate([signals, -np.ones((len(signals), 1))], axis=1)


def _coefficients(voters: Voters) -> Float[np.ndarray, "voter k"]:
    return np.concatenate([voters.weight, voters.threshold[:, None]], axis=1)


def _newton_step(gradient: Float[np.ndarray, "some k"], hessian: Float[np.ndarray, "some k k"]) -> np.ndarray:
    return np.clip(-np.linalg.solve(hessian, gradient[..., None])[..., 0], -1.0, 1.0)


def _moves(step: Float[np.ndarray, "some k"]) -> Bool[np.ndarray, " some"]:
    return np.abs(step).max(axis=1) >= NEWTON_TOLERANCE


def _probit_derivatives(
    cells: Cells, regressors: Float[np.ndarray, "row k"], coefficients: Float[np.ndarray, "voter k"]
) -> tuple[Values, Values]:
    """The first two derivatives of each vote's log Φ(t), t = ±margin: with m = φ(t)/Φ(t), ±m and −m(t + m)."""
    sign = 2.0 * cells.values - 1.0
    towards = cells.products(regressors, coefficients)
    towards *= sign
    mills = np.sqrt(2 / np.pi) / erfcx(towards * -np.sqrt(0.5))
    towards += mills
    towards *= -mills
    return sign * mills, towards


def component_probs(signals: Signals, log_allowed: LogAllowed | None = None) -> Float[np.ndarray, "row label"]:
    """Which component of the prior a signal is of: σ(2 Σz / .8²), or that of a known label."""
    log_odds = 2 * signals.sum(axis=1) / SIGNAL_SPREAD**2
    if log_allowed is not None:
        log_odds = log_odds + log_allowed[:, 1] - log_allowed[:, 0]
    return np.stack([expit(-log_odds), expit(log_odds)], axis=1)


def _outer(vectors: Float[np.ndarray, "some k"]) -> Float[np.ndarray, "some kk"]:
    """All products of two entries of each vector."""
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(len(vectors), -1)


def _params(voters: Voters) -> dict[str, np.ndarray]:
    """Weights and thresholds, and the rates that they imply for items drawn from the prior."""
    strength = voters.weight.sum(axis=1)
    spread = np.sqrt(1 + SIGNAL_SPREAD**2 * np.sum(voters.weight**2, axis=1))
    return {
        "prevalence": np.full(2, 0.5),  # fixed by the prior
        "confusion": two_class_confusion(
            sensitivity=ndtr((strength - voters.threshold) / spread),
            specificity=ndtr((strength + voters.threshold) / spread),
        ),
        "weight": voters.weight,
        "threshold": voters.threshold,
    }
