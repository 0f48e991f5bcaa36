"""Majority vote."""

from dataclasses import dataclass

import jax
import numpy as np

from latentens.fit import Fit, Method, Posterior
from latentens.votes import Votes


@dataclass(frozen=True)
class MajorityVote(Method):
    """The share of an item's votes that each class got; equal shares where an item has no votes."""

    def _fit(self, votes: Votes, key: jax.Array) -> Fit:
        del key  # nothing here is random
        meaning = "label_probs are vote shares, not the posterior of a model"
        return Fit(vote_shares(votes), vote_shares, diagnostics={"label_probs": meaning})


def vote_shares(votes: Votes) -> Posterior:
    """Each class's share of the votes of each item."""
    cast = votes.tally.sum(axis=1, keepdims=True)
    return np.where(cast > 0, votes.tally / np.maximum(cast, 1), 1 / votes.num_classes)
