"""GLAD, voters of different ability on items of different difficulty (Whitehill et al. 2009)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, log_expit, logsumexp, softmax

from latentens.inference.orient import orientation
from latentens.methods.base import Estimate, GoldCodes, GoldMethod, Posterior
from latentens.methods.independent.likelihood import named_params
from latentens.methods.indicator import in_blocks
from latentens.methods.labelled_rows import LabelledRows, labelled_rows
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.triplets import Triplets

ABILITY_MEAN = EASE_MEAN = 1.0
LARGEST_STEP = 1.0

Abilities = Float[np.ndarray, " voter"]
Eases = Float[np.ndarray, " row"]
LogAllowed = Float[np.ndarray, "row label"]


class Expected(NamedTuple):
    """What the votes say at given abilities and eases."""

    label_probs: Float[np.ndarray, "row label"]
    log_likelihood: Float[np.ndarray, " row"]
    surprise: Float[np.ndarray, " entry"]
    """Expected rightness of each vote minus its modelled probability of being right."""
    doubt: Float[np.ndarray, " entry"]
    """Modelled variance of each vote's being right."""


@dataclass(frozen=True)
class Glad(GoldMethod):
    """Voter j is right about item i with probability σ(α_j e^{β_i}); wrong answers are equally likely.

    Expectation–maximisation: posteriors of the labels, then a scoring step in each ease β_i and each ability α_j, with
    priors N(1, 1) for both and equal shares of the classes. The probabilities are the posterior of the label at the
    estimated ability and ease.

    Attributes:
        tolerance: Stop when a round gains less than this in mean log-posterior.
        max_iterations: Limit on the number of rounds.
    """

    tolerance: Positive = 1e-7
    max_iterations: Count = 300

    def _fit(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key  # nothing here is random
        rows = labelled_rows(votes, gold)
        ability, objective, iterations, converged = self._ascend(rows)
        estimated, ease = self._rows_given(ability, rows.votes, rows.log_allowed)
        free = gold is None and votes.num_classes == 2
        flip = free and orientation(estimated[rows.inverse], votes)[0] == 1
        ability = -ability if flip else ability
        diagnostics: dict[str, Any] = {
            "label_probs": "posterior of the label at the estimated ability and ease",
            "log_posterior": objective,
            "iterations": iterations,
            "converged": converged,
            "flipped": flip,
        }
        params = _params(ability, ease, rows.counts, votes.num_classes)
        return Estimate({**params, "ease": ease[rows.inverse]}, diagnostics)

    @in_blocks
    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        return self._rows_given(estimate.params["ability"], votes)[0]

    def _ascend(self, rows: LabelledRows) -> tuple[Abilities, float, int, bool]:
        """Abilities at the maximum, the log-posterior there, rounds, and whether it was reached."""
        votes, counts, log_allowed = rows.votes, rows.counts, rows.log_allowed
        ability, ease = np.full(votes.num_voters, ABILITY_MEAN), np.full(votes.num_items, EASE_MEAN)
        objective, entries = -np.inf, votes.triplets
        for iteration in track_late(range(1, self.max_iterations + 1), "GLAD: rounds of the limit"):
            stop_if_asked()
            expected = _expect(votes, ability, ease, log_allowed)
            before = objective
            objective = _log_posterior(expected, counts, ability, ease)
            if objective - before < self.tolerance * counts.sum():
                return ability, objective, iteration, True
            ease = ease + _ease_step(entries, expected, ability, ease)
            ability = ability + _ability_step(
                entries, _expect(votes, ability, ease, log_allowed), counts, ability, ease
            )
        return ability, objective, self.max_iterations, False

    def _rows_given(
        self, ability: Abilities, rows: Votes, log_allowed: LogAllowed | None = None
    ) -> tuple[Posterior, Eases]:
        """Posterior and ease of each row at given abilities, from average ease on."""
        ease = np.full(rows.num_items, EASE_MEAN)
        for _ in range(self.max_iterations):
            stop_if_asked()
            step = _ease_step(rows.triplets, _expect(rows, ability, ease, log_allowed), ability, ease)
            ease = ease + step
            if np.abs(step).max() < 1e-6:
                break
        return _expect(rows, ability, ease, log_allowed).label_probs, ease


def _expect(rows: Votes, ability: Abilities, ease: Eases, log_allowed: LogAllowed | None) -> Expected:
    """Posterior of the labels: log p(votes | k) = Σ log σ(−s) + Σ_{votes for k} s, up to what wrong votes share."""
    row, voter, vote = rows.triplets
    shape = rows.num_items, rows.num_classes
    strength = ability[voter] * np.exp(ease[row])
    log_wrong = log_expit(-strength) - np.log(rows.num_classes - 1)
    cell = row.astype(np.int64) * rows.num_classes + vote
    gains = strength + np.log(rows.num_classes - 1)
    for_class = np.bincount(cell, weights=gains, minlength=shape[0] * shape[1]).reshape(shape)
    if log_allowed is not None:
        for_class = for_class + log_allowed
    base = np.bincount(row, weights=log_wrong, minlength=rows.num_items) - np.log(rows.num_classes)
    probs, right = softmax(for_class, axis=1), expit(strength)
    return Expected(probs, base + logsumexp(for_class, axis=1), probs[row, vote] - right, right * (1 - right))


def _ease_step(entries: Triplets, expected: Expected, ability: Abilities, ease: Eases) -> Eases:
    strength = ability[entries.voter] * np.exp(ease[entries.item])
    gradient = np.bincount(entries.item, weights=expected.surprise * strength, minlength=len(ease))
    information = np.bincount(entries.item, weights=expected.doubt * strength**2, minlength=len(ease))
    step = (gradient - (ease - EASE_MEAN)) / (information + 1)
    return np.clip(step, -LARGEST_STEP, LARGEST_STEP)


def _ability_step(
    entries: Triplets, expected: Expected, counts: Int[np.ndarray, " row"], ability: Abilities, ease: Eases
) -> Abilities:
    scale, weight = np.exp(ease[entries.item]), counts[entries.item]
    gradient = np.bincount(entries.voter, weights=weight * expected.surprise * scale, minlength=len(ability))
    information = np.bincount(entries.voter, weights=weight * expected.doubt * scale**2, minlength=len(ability))
    step = (gradient - (ability - ABILITY_MEAN)) / (information + 1)
    return np.clip(step, -LARGEST_STEP, LARGEST_STEP)


def _log_posterior(expected: Expected, counts: Int[np.ndarray, " row"], ability: Abilities, ease: Eases) -> float:
    """Log-likelihood plus log-priors, every item having an ease of its own."""
    of_rows = expected.log_likelihood - (ease - EASE_MEAN) ** 2 / 2
    return float(counts @ of_rows - np.sum((ability - ABILITY_MEAN) ** 2) / 2)


def _params(
    ability: Abilities, ease: Eases, counts: Int[np.ndarray, " row"], num_classes: int
) -> dict[str, np.ndarray]:
    """Abilities, and each voter's probability of being right about the items at hand, whatever their class."""
    right = np.stack([counts @ expit(a * np.exp(ease)) for a in ability]) / counts.sum()
    wrong = ((1 - right) / (num_classes - 1))[:, None, None]
    confusion = np.where(np.eye(num_classes, dtype=bool), right[:, None, None], wrong)
    return {**named_params(np.full(num_classes, 1 / num_classes), confusion), "ability": ability}
