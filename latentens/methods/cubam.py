"""CUBAM, annotators with competence and bias (Welinder, Branson, Belongie & Perona 2010)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, log_ndtr, ndtr

from latentens.inference.orient import orientation
from latentens.methods.base import Estimate, Method, Posterior
from latentens.methods.indicator import in_blocks, require_two_classes, vote_indicator
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.randomness import numpy_generator
from latentens.runtime.settings import Count
from latentens.votes import Votes

SIGNAL_SPREAD = 0.8
WEIGHT_MEAN, WEIGHT_SPREAD = 1.0, 1.0
THRESHOLD_SPREAD = 3.0
SIGNAL_GRID = np.linspace(-5, 5, 201)
NEWTON_STEPS = 20
NEWTON_TOLERANCE = 1e-6
PERTURBATION = 0.01

Signals = Float[np.ndarray, "row dimension"]


class Voters(NamedTuple):
    """Parameters of the voters."""

    weight: Float[np.ndarray, "voter dimension"]
    threshold: Float[np.ndarray, " voter"]


class Entries(NamedTuple):
    """The votes that were cast, one entry each: +1 or −1."""

    row: Int[np.ndarray, " entry"]
    voter: Int[np.ndarray, " entry"]
    sign: Float[np.ndarray, " entry"]


@dataclass(frozen=True)
class Cubam(Method):
    """Voter j says 1 of item i with probability Φ(w_j·z_i − τ_j), at the posterior maximum by alternation.

    Priors: z ~ ½N(1, .8²) + ½N(−1, .8²), w ~ N(1, 1), τ ~ N(0, 3²). The label is the sign of Σz; the probabilities are
    those of the two components of the prior at the estimated z.

    Attributes:
        dimensions: Dimensions of z and w.
        rounds: Rounds of the alternation. The estimates keep drifting for hundreds of rounds, and the labels with
            them; 30 is what published comparisons use.
    """

    dimensions: Count = 1
    rounds: Count = 30

    def _fit(self, votes: Votes, key: jax.Array) -> Estimate:
        require_two_classes(votes, self)
        rows, counts, _ = votes.patterns
        entries = _entries(rows)
        voters, change = self._start(votes.num_voters, key), np.inf
        for _ in range(self.rounds - 1):
            stop_if_asked()
            signals = estimate_signals(rows, voters)
            updated = estimate_voters(entries, counts, signals, voters)
            change, voters = float(np.abs(updated.weight - voters.weight).max()), updated
        probs = component_probs(estimate_signals(rows, voters))[votes.patterns.inverse]
        flip = orientation(probs, votes)[0] == 1
        voters = Voters(-voters.weight if flip else voters.weight, voters.threshold)
        diagnostics: dict[str, Any] = {
            "label_probs": "probability of the prior's two components at the estimated signal, not of the votes",
            "iterations": self.rounds,
            "converged": change < NEWTON_TOLERANCE,
            "last_change_of_weights": change,
            "flipped": bool(flip),
        }
        return Estimate(_params(voters), diagnostics)

    @in_blocks
    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        voters = Voters(estimate.params["weight"], estimate.params["threshold"])
        return component_probs(estimate_signals(votes, voters))

    def _start(self, num_voters: int, key: jax.Array) -> Voters:
        """Equal voters; in several dimensions a little apart, as nothing else tells the dimensions from each other."""
        weight = np.ones((num_voters, self.dimensions))
        if self.dimensions > 1:
            weight += PERTURBATION * numpy_generator(key).standard_normal(weight.shape)
        return Voters(weight, np.zeros(num_voters))


def estimate_signals(rows: Votes, voters: Voters) -> Signals:
    """The z of each row that maximises its posterior; zero, between the classes, for a row without votes.

    The best point of a grid along (1, …, 1), an exact tie going to the lower one, then Newton steps.
    """
    entries, dimensions = _entries(rows), voters.weight.shape[1]
    margins = voters.weight.sum(axis=1)[:, None] * SIGNAL_GRID - voters.threshold[:, None]
    table = np.stack([log_ndtr(-margins), log_ndtr(margins)], axis=1).reshape(-1, len(SIGNAL_GRID))
    log_prior = np.logaddexp(*(-dimensions * (SIGNAL_GRID - m) ** 2 / (2 * SIGNAL_SPREAD**2) for m in (-1, 1)))
    best = (vote_indicator(rows, 2) @ table + log_prior).argmax(axis=1)
    signals = np.repeat(SIGNAL_GRID[best][:, None], dimensions, axis=1)
    for _ in range(NEWTON_STEPS):
        step = _signal_step(entries, signals, voters)
        signals = signals + step
        if np.abs(step).max() < NEWTON_TOLERANCE:
            break
    has_votes = np.bincount(entries.row, minlength=rows.num_items) > 0
    return np.where(has_votes[:, None], signals, 0.0)


def _signal_step(entries: Entries, signals: Signals, voters: Voters) -> Signals:
    """A Newton step in which the mixture prior is replaced by the normal that bounds it from below."""
    slope, curvature = _probit_derivatives(entries, signals, voters)
    weight = voters.weight[entries.voter]
    towards = 2 * component_probs(signals)[:, 1:] - 1  # mean of the components, weighted
    gradient = (towards - signals) / SIGNAL_SPREAD**2 + _sums(entries.row, slope[:, None] * weight, len(signals))
    hessian = _sums(entries.row, _outer(weight) * curvature[:, None, None], len(signals))
    hessian -= np.eye(signals.shape[1]) / SIGNAL_SPREAD**2
    return np.clip(-np.linalg.solve(hessian, gradient[..., None])[..., 0], -1.0, 1.0)


def estimate_voters(entries: Entries, counts: Int[np.ndarray, " row"], signals: Signals, voters: Voters) -> Voters:
    """The w and τ of each voter that maximise the posterior given z: weighted probit regressions, by Newton steps."""
    regressors = np.concatenate([signals, -np.ones((len(signals), 1))], axis=1)[entries.row]
    coefficients = np.concatenate([voters.weight, voters.threshold[:, None]], axis=1)
    dimensions = signals.shape[1]
    mean = np.append(np.full(dimensions, WEIGHT_MEAN), 0.0)
    precision = np.append(np.full(dimensions, WEIGHT_SPREAD**-2), THRESHOLD_SPREAD**-2)
    outer, weights = _outer(regressors), counts[entries.row]
    for _ in range(NEWTON_STEPS):
        current = Voters(coefficients[:, :dimensions], coefficients[:, dimensions])
        slope, curvature = _probit_derivatives(entries, signals, current)
        gradient = _sums(entries.voter, regressors * (weights * slope)[:, None], len(coefficients))
        gradient -= precision * (coefficients - mean)
        hessian = _sums(entries.voter, outer * (weights * curvature)[:, None, None], len(coefficients))
        step = -np.linalg.solve(hessian - np.diag(precision), gradient[..., None])[..., 0]
        coefficients = coefficients + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < NEWTON_TOLERANCE:
            break
    return Voters(coefficients[:, :dimensions], coefficients[:, dimensions])


def _probit_derivatives(
    entries: Entries, signals: Signals, voters: Voters
) -> tuple[Float[np.ndarray, " entry"], Float[np.ndarray, " entry"]]:
    """First and second derivative of each vote's log Φ(±margin) in its margin w·z − τ."""
    margin = np.einsum("ek,ek->e", voters.weight[entries.voter], signals[entries.row]) - voters.threshold[entries.voter]
    towards = entries.sign * margin
    mills = np.exp(-(towards**2) / 2 - log_ndtr(towards)) / np.sqrt(2 * np.pi)
    return entries.sign * mills, -mills * (towards + mills)


def component_probs(signals: Signals) -> Float[np.ndarray, "row label"]:
    """Which component of the prior a signal is of: σ(2 Σz / .8²)."""
    log_odds = 2 * signals.sum(axis=1) / SIGNAL_SPREAD**2
    return np.stack([expit(-log_odds), expit(log_odds)], axis=1)


def _entries(rows: Votes) -> Entries:
    row, voter, vote = rows.triplets
    return Entries(row, voter, 2.0 * vote - 1.0)


def _outer(vectors: Float[np.ndarray, "entry k"]) -> Float[np.ndarray, "entry k k"]:
    return vectors[:, :, None] * vectors[:, None, :]


def _sums(index: Int[np.ndarray, " entry"], values: Float[np.ndarray, "entry ..."], length: int) -> np.ndarray:
    """Sums of the values that have the same index."""
    flat = values.reshape(len(values), -1)
    columns = [np.bincount(index, weights=column, minlength=length) for column in flat.T]
    return np.stack(columns, axis=1).reshape(length, *values.shape[1:])


def _params(voters: Voters) -> dict[str, np.ndarray]:
    """Weights and thresholds, and the rates that they imply for items drawn from the prior."""
    strength = voters.weight.sum(axis=1)
    spread = np.sqrt(1 + SIGNAL_SPREAD**2 * np.sum(voters.weight**2, axis=1))
    return {
        "prevalence": np.asarray(0.5),  # fixed by the prior
        "sensitivity": ndtr((strength - voters.threshold) / spread),
        "specificity": ndtr((strength + voters.threshold) / spread),
        "weight": voters.weight,
        "threshold": voters.threshold,
    }
