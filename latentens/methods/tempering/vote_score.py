"""How well a tempered posterior predicts hidden votes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from latentens.methods.tempering.held_out import HiddenVotes
from latentens.methods.tempering.temperature import temper

POOLING = 3.0
"""A voter's confusion matrix is drawn to that of all voters as if by this many more votes per class."""

RIGHT, WRONG = 0.6, 0.1
"""Pseudo-counts of the confusion matrix of all voters, on and off the diagonal."""

TOLERANCE = 1e-5
MOST_ROUNDS = 20

Counts = Float[np.ndarray, "label voter vote"]
Base = Float[np.ndarray, " label"]
ByLabel = Float[np.ndarray, "label hidden"]


class VoteScore:
    """The mean log-probability of each item's hidden votes as a function of the temperature.

    A hidden vote x of voter j has probability Σ_y p_τ(y | other votes) θ_j(x | y). At each temperature the confusion
    matrices θ are those that predict best the votes on other items, shrunk to their mean over voters. There are two of
    them, and the score is the mean of both log-probabilities: one from the items that the fit has seen, and one from
    the hidden votes of the other folds, to which other fits were made. By the second a posterior is worth something
    only if its labels mean the same in a fit to other items.
    """

    def __init__(self, votes: Sequence[HiddenVotes], seen: Sequence[HiddenVotes], base: Base | None = None) -> None:
        self._votes, self._seen = [_Asked(part, base) for part in votes], [_Asked(part, base) for part in seen]

    def __call__(self, temperature: float) -> Float[np.ndarray, " item"]:
        """The score of each item that has hidden votes, fold by fold."""
        counts = [part.counts(temperature) for part in self._votes]
        scores = []
        for fold, (part, seen) in enumerate(zip(self._votes, self._seen, strict=True)):
            elsewhere = [other for number, other in enumerate(counts) if number != fold]
            learnt = [seen.counts(temperature), *([sum(elsewhere[1:], start=elsewhere[0])] if elsewhere else [])]
            scores.append(np.mean([part.score(temperature, shares(pooled(each))) for each in learnt], axis=0))
        return np.concatenate(scores)


class _Asked:
    """Hidden votes, laid out."""

    def __init__(self, hidden: HiddenVotes, base: Base | None) -> None:
        self._base = base
        num_classes = hidden.label_probs.shape[1]
        self._label_probs, self._shape = hidden.label_probs, (num_classes, hidden.num_voters, num_classes)
        _, self._item = np.unique(hidden.item, return_inverse=True)
        self._cell = hidden.voter.astype(np.int64) * num_classes + hidden.vote

    def score(self, temperature: float, confusion: Counts) -> Float[np.ndarray, " item"]:
        """The log-probability of each item's hidden votes at given confusion matrices."""
        predicted = (temper(self._label_probs, temperature, self._base).T * self._of_votes(confusion)).sum(axis=0)
        return np.bincount(self._item, np.log(predicted))

    def counts(self, temperature: float) -> Counts:
        """How often each voter cast each vote on each label, where the confusion matrices predict these votes best."""
        probs = temper(self._label_probs, temperature, self._base).T.copy()
        own, before = probs, -np.inf
        for _ in range(MOST_ROUNDS):
            joint = probs * self._of_votes(shares(pooled(self._count(own))))
            total = joint.sum(axis=0)
            own = joint / total
            score = float(np.log(total).mean())
            if score - before < TOLERANCE:
                break
            before = score
        return self._count(own)

    def _count(self, weights: ByLabel) -> Counts:
        size = self._shape[1] * self._shape[2]
        return np.stack([np.bincount(self._cell, part, size) for part in weights]).reshape(self._shape)

    def _of_votes(self, table: Counts) -> ByLabel:
        """The entries of a table that belong to each hidden vote."""
        return table.reshape(len(table), -1)[:, self._cell]


def pooled(counts: Counts) -> Counts:
    """Counts with `POOLING` more votes of each voter for each label, divided as the votes of all voters are."""
    together = counts.sum(axis=1) + WRONG + (RIGHT - WRONG) * np.eye(len(counts))
    return counts + POOLING * (together / together.sum(axis=1, keepdims=True))[:, None]


def shares(counts: Counts) -> Counts:
    """Confusion matrices."""
    return counts / counts.sum(axis=2, keepdims=True)
