"""How well a tempered posterior predicts hidden votes."""

import numpy as np
from jaxtyping import Float

from latentens.methods.tempering.held_out import HiddenVotes
from latentens.methods.tempering.temperature import temper

POOLING = 3.0
"""A voter's confusion matrix is drawn to that of all voters as if by this many more votes per class."""

RIGHT, WRONG = 0.6, 0.1
"""Pseudo-counts of the confusion matrix of all voters, on and off the diagonal."""

TOLERANCE = 1e-6
MOST_ROUNDS = 50

Counts = Float[np.ndarray, "label voter vote"]
ByLabel = Float[np.ndarray, "label hidden"]


class VoteScore:
    """The log-probability of each item's hidden votes as a function of the temperature.

    A hidden vote x of voter j has probability Σ_y p_τ(y | other votes) θ_j(x | y). At each temperature the confusion
    matrices θ are those that predict the hidden votes best, shrunk to their mean over voters; each vote is predicted by
    a θ_j from which its own contribution has been removed. They are found by expectation–maximisation.
    """

    def __init__(self, hidden: HiddenVotes) -> None:
        num_classes = hidden.label_probs.shape[1]
        self._hidden, self._shape = hidden, (num_classes, hidden.num_voters, num_classes)
        _, self._item = np.unique(hidden.item, return_inverse=True)
        self._cell = hidden.voter.astype(np.int64) * num_classes + hidden.vote

    def __call__(self, temperature: float) -> Float[np.ndarray, " item"]:
        """The score of each item that has hidden votes."""
        probs = temper(self._hidden.label_probs, temperature).T.copy()
        own = self._responsibilities(probs)
        counts = self._count(own)
        totals = counts.sum(axis=2)[:, self._hidden.voter]
        predicted = (probs * (self._of_votes(counts) - own) / (totals - own)).sum(axis=0)
        return np.bincount(self._item, np.log(predicted))

    def _responsibilities(self, probs: ByLabel) -> ByLabel:
        """The posterior of the label given the hidden vote too, at the confusion matrices that predict best."""
        own, before = probs, -np.inf
        for _ in range(MOST_ROUNDS):
            counts = self._count(own)
            joint = probs * self._of_votes(counts / counts.sum(axis=2, keepdims=True))
            total = joint.sum(axis=0)
            own = joint / total
            score = float(np.log(total).mean())
            if score - before < TOLERANCE:
                break
            before = score
        return own

    def _count(self, weights: ByLabel) -> Counts:
        """How often each voter cast each vote for each label, `POOLING` votes shared among voters included."""
        size = self._shape[1] * self._shape[2]
        counts = np.stack([np.bincount(self._cell, part, size) for part in weights]).reshape(self._shape)
        return pooled(counts)

    def _of_votes(self, table: Counts) -> ByLabel:
        """The entries of a table that belong to each hidden vote."""
        return table.reshape(len(table), -1)[:, self._cell]


def pooled(counts: Counts) -> Counts:
    """Counts with `POOLING` more votes of each voter for each label, divided as the votes of all voters are."""
    together = counts.sum(axis=1) + WRONG + (RIGHT - WRONG) * np.eye(len(counts))
    return counts + POOLING * (together / together.sum(axis=1, keepdims=True))[:, None]
