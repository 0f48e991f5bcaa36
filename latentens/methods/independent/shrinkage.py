"""Shrinkage of confusion matrices whose strengths the votes choose: empirical Bayes inside expectation–maximisation.

A vote of voter j on an item of class k is right with probability a_jk; if it is wrong, it is v with probability w_jkv.
Each of these is drawn to a simpler form that rests on more votes:

    a_j  ~ Beta(s₁, mean a)               the voter's accuracy, to that of all voters
    a_jk ~ Beta(s₂, mean a_j)             its accuracy on a class, to its own on all classes (one coin)
    w_jk ~ Dirichlet(s₃, mean even)       its mistakes on a class, to even ones (one probability per voter and class)

Each strength is the power of two at which the expected counts have the highest evidence (beta-binomial and
Dirichlet-multinomial), so that twelve votes or twelve thousand, three classes or thirty need no setting.

Drawing to what all voters say about a class, its accuracy and its mistakes, was tried as well: a class that nobody
recognises can then become a second kind of a frequent one, and the evidence follows it there.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import entr, gammaln, rel_entr

from latentens.methods.independent.label_counts import Expected, VotePrior

Form = Literal["confusion", "class", "coin"]
Counts = Float[np.ndarray, "label start voter vote"]

STRENGTHS = 2.0 ** np.arange(0, 25)
"""The strengths that can be chosen, in votes: one at least (Jeffreys' prior of a share), at most what voters cast on
average."""


class Shrinkage(NamedTuple):
    """The strengths s₁, s₂ and s₃, as places among `STRENGTHS`; given counts, what is added to them."""

    voter: int
    voter_class: int
    mistakes: int

    @property
    def strengths(self) -> Float[np.ndarray, " level"]:
        """In votes."""
        return STRENGTHS[list(self)]

    def given(self, expected: Expected) -> VotePrior:
        """What to add in each start. The log-density is that of the simple forms less the divergence from them.

        In these terms log p = −s₁ Σ_j KL(a, a_j) − s₂ Σ_jk KL(a_j, a_jk) − s₃ Σ_jk KL(even, w_jk), so that starts with
        different accuracies a_j can be compared.
        """
        num_classes = len(expected.votes)
        voter, voter_class, mistakes = self.strengths
        pairs = _right_and_wrong(expected.votes)
        overall, accuracy = _accuracies(pairs, voter)
        added = np.broadcast_to(voter_class * accuracy, pairs.shape)
        offset = num_classes * voter_class * entr(accuracy).sum(axis=(1, 2))
        offset -= voter * rel_entr(overall[:, None], accuracy).sum(axis=(1, 2))
        is_right = np.eye(num_classes, dtype=bool)[:, None, None]
        if num_classes == 2:
            return VotePrior(np.where(is_right, added[..., :1], added[..., 1:]), None, 1.0, offset)
        offset += num_classes * accuracy.shape[1] * mistakes * np.log(num_classes - 1)
        votes = np.where(is_right, added[..., :1], mistakes / (num_classes - 1))
        # Mistakes are added to as if s₃ more had been made; how many there are is for the accuracy to say.
        return VotePrior(votes, added[..., 1] - mistakes, 1.0, offset)


def choose_shrinkage(
    counts: Float[np.ndarray, "label voter vote"], before: Shrinkage | None = None, form: Form = "confusion"
) -> Shrinkage:
    """The strengths with the highest evidence.

    Args:
        counts: How often each voter is expected to have cast each vote on each class.
        before: Strengths of the round before, from which each moves by one place at most; all are tried without.
        form: What a voter has: a `confusion` matrix, one accuracy per `class` (s₃ is as large as can be) or one for all
            classes (`coin`: s₂ is, too).
    """
    num_classes = len(counts)
    # No voter is drawn harder than by the votes that voters have on average.
    most = max(int(np.searchsorted(STRENGTHS, counts.sum() / counts.shape[1], side="right")), 1)
    near = before or (None, None, None)
    pairs = _right_and_wrong(counts[:, None])
    overall, _ = _accuracies(pairs, 0.0)
    voter = _most_evident(pairs.sum(axis=0)[0], overall[0], most, near[0])
    _, accuracy = _accuracies(pairs, STRENGTHS[voter])
    largest = len(STRENGTHS) - 1
    voter_class = largest if form == "coin" else _most_evident(pairs[:, 0], accuracy[0], most, near[1])
    if num_classes == 2:
        return Shrinkage(voter, voter_class, 0)
    if form != "confusion":
        return Shrinkage(voter, voter_class, largest)
    is_wrong = ~np.eye(num_classes, dtype=bool)[:, None]
    even = is_wrong / (num_classes - 1)
    return Shrinkage(voter, voter_class, _most_evident(np.where(is_wrong, counts, 0.0), even, most, near[2]))


def _right_and_wrong(counts: Counts) -> Float[np.ndarray, "label start voter 2"]:
    right = np.einsum("ksjk->ksj", counts)
    return np.stack([right, np.maximum(counts.sum(axis=3) - right, 0.0)], axis=-1)


def _accuracies(
    pairs: Float[np.ndarray, "label start voter 2"], strength: float
) -> tuple[Float[np.ndarray, "start 2"], Float[np.ndarray, "start voter 2"]]:
    """The shares of right and wrong votes of all voters, and of each voter, drawn to those of all."""
    of_voters = pairs.sum(axis=0)
    total = of_voters.sum(axis=1) + 1  # Laplace's rule
    overall = total / total.sum(axis=1, keepdims=True)
    drawn = of_voters + strength * overall[:, None]
    return overall, drawn / np.maximum(drawn.sum(axis=2, keepdims=True), np.finfo(float).tiny)


def _most_evident(counts: np.ndarray, mean: np.ndarray, most: int, near: int | None) -> int:
    """The place of the strength with the highest evidence among the first ones, or the better neighbour of a place."""
    low, high = (0, most) if near is None else (max(min(near, most - 1) - 1, 0), min(near + 2, most))
    evidence = [log_evidence(counts, STRENGTHS[place] * mean) for place in range(low, high)]
    return low + int(np.argmax(evidence))


def log_evidence(counts: Float[np.ndarray, "*group category"], prior: Float[np.ndarray, "*#group category"]) -> float:
    """The log-probability of counts, in the order seen, whose shares are drawn from Dirichlet distributions.

    Categories with a prior of zero are impossible and left out.
    """
    safe = np.where(prior > 0, prior, 1.0)
    cells = np.where(prior > 0, gammaln(counts + safe) - gammaln(safe), 0.0)
    total = np.broadcast_to(prior.sum(axis=-1), counts.shape[:-1])
    return float(cells.sum() + (gammaln(total) - gammaln(total + counts.sum(axis=-1))).sum())
