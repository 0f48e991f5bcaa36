"""Majority vote."""

from dataclasses import dataclass

import jax

from latentens.inference.orient import vote_shares
from latentens.methods.base import Fit, Method
from latentens.votes import Votes


@dataclass(frozen=True)
class MajorityVote(Method):
    """The share of an item's votes that each class got; equal shares where an item has no votes."""

    def _fit(self, votes: Votes, key: jax.Array) -> Fit:
        del key  # nothing here is random
        meaning = "vote shares, not the posterior of a model"
        return Fit(vote_shares(votes), vote_shares, diagnostics={"label_probs": meaning})
