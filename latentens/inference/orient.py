"""Orientation: a fit without labels knows its classes only up to their order; the votes fix it, here and only here."""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from latentens.votes import Votes


def orientation(
    label_probs: Float[np.ndarray, "item label"], votes: Votes, counts: Int[np.ndarray, " item"] | None = None
) -> Int[np.ndarray, " label"]:
    """The order of the classes under which a posterior agrees best with the votes.

    Agreement is the sum over items of posterior times `vote_lifts`; the assignment of classes to labels that maximises
    it is taken. So of two classes, label 1 is the one in which 1 is voted more often than in the other, however
    frequent class and vote are. Where the order that the posterior came with does as well, it stays.

    Args:
        label_probs: The posterior.
        votes: The votes.
        counts: How often each item occurs; once if not given.

    Returns:
        `order` such that `label_probs[:, order]` is oriented: `order[k]` is the class that stands for label k.
    """
    counts = votes.counts if counts is None else counts
    lifts = vote_lifts(votes, counts)
    unvoted = label_probs.shape[1] - lifts.shape[1]  # labels for which nobody could vote
    weighted = label_probs if counts is None else label_probs * counts[:, None]
    return best_order(np.pad(lifts.T @ weighted, ((0, max(unvoted, 0)), (0, 0))))


def best_order(agreement: Float[np.ndarray, "label class"]) -> Int[np.ndarray, " label"]:
    """The class to stand for each label such that the sum of their agreements is greatest."""
    _, order = linear_sum_assignment(agreement, maximize=True)
    best, unchanged = agreement[np.arange(len(order)), order].sum(), np.trace(agreement)
    return np.arange(len(order)) if np.isclose(best, unchanged, rtol=1e-12) else order


def vote_shares(votes: Votes) -> Float[np.ndarray, "item label"]:
    """Each class's share of the votes of each item; equal shares where an item has no votes."""
    cast = votes.tally.sum(axis=1, keepdims=True)
    return np.where(cast > 0, votes.tally / np.maximum(cast, 1), 1 / votes.num_classes)


def vote_lifts(votes: Votes, counts: Int[np.ndarray, " item"] | None = None) -> Float[np.ndarray, "item label"]:
    """How far each class's share of the votes of an item lies above its mean over all items."""
    shares = vote_shares(votes)
    return shares - np.average(shares, axis=0, weights=votes.counts if counts is None else counts)
