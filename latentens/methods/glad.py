"""GLAD, voters of different ability on items of different difficulty (Whitehill et al. 2009)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from latentens.inference.orient import orientation
from latentens.methods.base import Estimate, GoldCodes, GoldMethod, Posterior
from latentens.methods.independent.likelihood import named_params
from latentens.methods.labelled_rows import labelled_rows
from latentens.runtime.parallel import in_threads, stop_if_asked
from latentens.runtime.progress import track_late
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.triplets import Triplets

ABILITY_MEAN = EASE_MEAN = 1.0
LARGEST_STEP = 1.0

EASE_GROUPS = 2**12
"""Voters' rates of being right are averaged over at most so many different eases."""

Result = TypeVar("Result")

Abilities = Float[np.ndarray, " voter"]
Eases = Float[np.ndarray, " row"]
LogAllowed = Float[np.ndarray, "row label"]


class Block(NamedTuple):
    """Neighbouring rows."""

    place: slice
    votes: Votes
    log_allowed: LogAllowed | None


class Expected(NamedTuple):
    """What the votes say at given abilities and eases."""

    label_probs: Float[np.ndarray, "row label"]
    log_likelihood: Float[np.ndarray, " row"]
    strength: Float[np.ndarray, " entry"]
    """Log-odds of each vote's being right."""
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

    counts_rows = True

    tolerance: Positive = 1e-7
    max_iterations: Count = 300

    def _fit(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key  # nothing here is random
        rows = labelled_rows(votes, gold)
        blocks = _blocks(rows.votes, None if gold is None else rows.log_allowed)
        ability, objective, iterations, converged = self._ascend(blocks, rows.counts)
        estimated, ease = self._rows_given(ability, blocks)
        free = gold is None and votes.num_classes == 2
        flip = free and orientation(estimated[rows.inverse], votes)[0] == 1
        if flip:
            ability, estimated = -ability, estimated[:, ::-1]
        diagnostics: dict[str, Any] = {
            "label_probs": "posterior of the label at the estimated ability and ease",
            "log_posterior": objective,
            "iterations": iterations,
            "converged": converged,
            "flipped": flip,
        }
        params = _params(ability, ease, rows.counts, votes.num_classes)
        return Estimate({**params, "ease": ease[rows.inverse]}, diagnostics, label_probs=estimated[rows.inverse])

    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        return self._rows_given(estimate.params["ability"], _blocks(votes, None))[0]

    def _ascend(self, blocks: list[Block], counts: Int[np.ndarray, " row"]) -> tuple[Abilities, float, int, bool]:
        """Abilities at the maximum, the log-posterior there, rounds, and whether it was reached."""
        ability, ease = np.full(blocks[0].votes.num_voters, ABILITY_MEAN), np.full(len(counts), EASE_MEAN)
        objective = -np.inf

        def step(block: Block) -> tuple[float, Abilities, Abilities]:
            """Move the eases of a block; its part of the log-posterior before, and of the step in the abilities."""
            eases, weights = ease[block.place], counts[block.place]
            expected = _expect(block.votes, ability, eases, block.log_allowed)
            height = _rows_log_posterior(expected, weights, eases)
            eases += _ease_step(block.votes.triplets, expected, eases)
            expected = _expect(block.votes, ability, eases, block.log_allowed)
            return height, *_ability_information(block.votes.triplets, expected, weights, ability, eases)

        for iteration in track_late(range(1, self.max_iterations + 1), "GLAD: rounds of the limit"):
            stop_if_asked()
            heights, gradients, information = zip(*_side_by_side(step, blocks), strict=True)
            before, objective = objective, sum(heights) - float(np.sum((ability - ABILITY_MEAN) ** 2)) / 2
            if objective - before < self.tolerance * counts.sum():
                return ability, objective, iteration, True
            ability = ability + _limited((sum(gradients) - (ability - ABILITY_MEAN)) / (sum(information) + 1))
        return ability, objective, self.max_iterations, False

    def _rows_given(self, ability: Abilities, blocks: list[Block]) -> tuple[Posterior, Eases]:
        """Posterior and ease of each row at given abilities, from average ease on."""

        def settle(block: Block) -> tuple[Posterior, Eases]:
            ease = np.full(block.votes.num_items, EASE_MEAN)
            for _ in range(self.max_iterations):
                stop_if_asked()
                step = _ease_step(block.votes.triplets, _expect(block.votes, ability, ease, block.log_allowed), ease)
                ease = ease + step
                if np.abs(step).max() < 1e-6:
                    break
            return _expect(block.votes, ability, ease, block.log_allowed).label_probs, ease

        probs, ease = zip(*_side_by_side(settle, blocks), strict=True)
        return np.concatenate(probs), np.concatenate(ease)


def _blocks(rows: Votes, log_allowed: LogAllowed | None) -> list[Block]:
    parts = ((slice(start, start + part.num_items), part) for start, part in rows.blocks())
    return [Block(place, part, None if log_allowed is None else log_allowed[place]) for place, part in parts]


def _side_by_side(work: Callable[[Block], Result], blocks: list[Block]) -> list[Result]:
    return [work(blocks[0])] if len(blocks) == 1 else in_threads(work, blocks)


def _expect(rows: Votes, ability: Abilities, ease: Eases, log_allowed: LogAllowed | None) -> Expected:
    """Posterior of the labels: log p(votes | k) = Σ log σ(−s) + Σ_{votes for k} s, up to what wrong votes share."""
    row, voter, vote = rows.triplets
    shape, others = (rows.num_items, rows.num_classes), np.log(rows.num_classes - 1)
    strength = ability[voter] * np.exp(ease)[row]
    odds = np.exp(-np.abs(strength))  # of the less likely of right and wrong
    log_wrong = -np.maximum(strength, 0.0) - np.log1p(odds) - others
    cell = row.astype(np.int64) * rows.num_classes + vote
    for_class = np.bincount(cell, weights=strength + others, minlength=shape[0] * shape[1]).reshape(shape)
    if log_allowed is not None:
        for_class = for_class + log_allowed
    base = np.bincount(row, weights=log_wrong, minlength=rows.num_items) - np.log(rows.num_classes)
    highest = for_class.max(axis=1, keepdims=True)
    probs = np.exp(for_class - highest)
    total = probs.sum(axis=1, keepdims=True)
    probs /= total
    less_likely = odds / (1 + odds)
    right = np.where(strength > 0, 1 - less_likely, less_likely)
    log_likelihood = base + (np.log(total) + highest)[:, 0]
    return Expected(probs, log_likelihood, strength, probs.ravel()[cell] - right, less_likely / (1 + odds))


def _ease_step(entries: Triplets, expected: Expected, ease: Eases) -> Eases:
    gradient = np.bincount(entries.item, weights=expected.surprise * expected.strength, minlength=len(ease))
    information = np.bincount(entries.item, weights=expected.doubt * expected.strength**2, minlength=len(ease))
    return _limited((gradient - (ease - EASE_MEAN)) / (information + 1))


def _ability_information(
    entries: Triplets, expected: Expected, counts: Int[np.ndarray, " row"], ability: Abilities, ease: Eases
) -> tuple[Abilities, Abilities]:
    """What the votes say about the abilities: gradient and information."""
    scale, weight = np.exp(ease)[entries.item], counts[entries.item]
    gradient = np.bincount(entries.voter, weights=weight * expected.surprise * scale, minlength=len(ability))
    return gradient, np.bincount(entries.voter, weights=weight * expected.doubt * scale**2, minlength=len(ability))


def _limited(step: np.ndarray) -> np.ndarray:
    return np.clip(step, -LARGEST_STEP, LARGEST_STEP)


def _rows_log_posterior(expected: Expected, counts: Int[np.ndarray, " row"], ease: Eases) -> float:
    """Log-likelihood plus log-priors of the eases, every item having one of its own."""
    return float(counts @ (expected.log_likelihood - (ease - EASE_MEAN) ** 2 / 2))


def _params(
    ability: Abilities, ease: Eases, counts: Int[np.ndarray, " row"], num_classes: int
) -> dict[str, np.ndarray]:
    """Abilities, and each voter's probability of being right about the items at hand, whatever their class."""
    scale, weight = _grouped_eases(ease, counts)
    right = np.array([weight @ expit(a * scale) for a in ability]) / counts.sum()
    wrong = ((1 - right) / (num_classes - 1))[:, None, None]
    confusion = np.where(np.eye(num_classes, dtype=bool), right[:, None, None], wrong)
    return {**named_params(np.full(num_classes, 1 / num_classes), confusion), "ability": ability}


def _grouped_eases(ease: Eases, counts: Int[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray]:
    """`e^β` and how many items have it; many eases are brought together with others that nearly equal them.

    A group is so narrow that its mean stands for it: with 2¹² groups what is averaged changes by less than 1e-6.
    """
    if len(ease) > 2 * EASE_GROUPS:
        edges = np.linspace(ease.min(), ease.max(), EASE_GROUPS + 1)
        group = np.searchsorted(edges[1:-1], ease)
        weight = np.bincount(group, counts, EASE_GROUPS)
        ease = np.bincount(group, counts * ease, EASE_GROUPS) / np.maximum(weight, 1)
        counts = weight
    return np.exp(ease), counts
