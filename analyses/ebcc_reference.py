"""EBCC as its paper writes it, without any of the short cuts of `latentens.methods.Ebcc`: what that is timed against.

Variational Bayes by whole arrays (item, class, subtype) and (voter, class, subtype, vote), a sparse product for each
class and each vote, all subtypes to the end. A start ends when no probability of a class moves by more than 1e-3.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import digamma

from latentens.inference.orient import vote_shares
from latentens.votes import Votes

MOVE = 1e-3


class Reference(NamedTuple):
    """One start of the reference."""

    held: np.ndarray
    """(item, class, subtype): how likely each is to hold the item."""
    rounds: int

    @property
    def label_probs(self) -> np.ndarray:
        """The posterior of the label."""
        return self.held.sum(axis=2)


def ebcc_reference(votes: Votes, seed: int, num_subtypes: int = 10, max_rounds: int = 500) -> Reference:
    """One start from vote shares that are divided among subtypes at random."""
    said = votes_for(votes)
    generator = np.random.default_rng(seed)
    probs = vote_shares(votes)
    held = probs[:, :, None] * generator.dirichlet(np.ones(num_subtypes), probs.shape)
    for rounds in range(1, max_rounds + 1):
        before = probs
        held = one_round(said, held)
        probs = held.sum(axis=2)
        if np.abs(probs - before).max() < MOVE:
            return Reference(held, rounds)
    return Reference(held, max_rounds)


def votes_for(votes: Votes) -> list[sparse.csr_array]:
    """For each vote a matrix (item, voter) that is one where it was cast."""
    item, voter, vote = votes.triplets
    matrices = []
    for k in range(votes.num_classes):
        chosen = vote == k
        ones = np.ones(chosen.sum())
        matrices.append(sparse.csr_array((ones, (item[chosen], voter[chosen])), shape=votes.shape))
    return matrices


def one_round(said: list[sparse.csr_array], held: np.ndarray) -> np.ndarray:
    """Dirichlet posteriors from responsibilities, and responsibilities from these."""
    _, classes, subtypes = held.shape
    right = np.eye(classes, dtype=bool)
    voted = np.zeros((said[0].shape[1], classes, subtypes, classes))
    for vote in range(classes):
        for label in range(classes):
            voted[:, label, :, vote] = said[vote].T @ held[:, label] + (4.0 if right[label, vote] else 1.0)
    of_subtypes = held.sum(axis=0)
    log_classes = expected_log(1.0 + of_subtypes.sum(axis=1))
    log_subtypes = expected_log(0.1 / subtypes + of_subtypes)
    log_votes = expected_log(voted)
    logits = np.tile(log_classes[:, None] + log_subtypes, (len(held), 1, 1))
    for vote in range(classes):
        for label in range(classes):
            logits[:, label] += said[vote] @ log_votes[:, label, :, vote]
    logits -= logits.max(axis=(1, 2), keepdims=True)
    joint = np.exp(logits)
    return joint / joint.sum(axis=(1, 2), keepdims=True)


def expected_log(concentrations: np.ndarray) -> np.ndarray:
    return digamma(concentrations) - digamma(concentrations.sum(axis=-1, keepdims=True))
