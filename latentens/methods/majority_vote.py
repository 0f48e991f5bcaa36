"""Majority vote."""

from dataclasses import dataclass

import jax

from latentens.inference.orient import vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.votes import Votes


@dataclass(frozen=True)
class MajorityVote(Method):
    """The share of an item's votes for each class, soft votes included; equal shares for items without votes.

    Gold labels make their own items certain and change nothing else.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.MajorityVote().fit(votes, key=jax.random.key(0))
        >>> fit.label_probs[3000:3002].round(2)
        array([[0.8, 0.2],
               [0.8, 0.2]])
    """

    counts_rows = True
    takes_soft_votes = True

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del votes, key, gold  # there is nothing to estimate
        return Estimate(diagnostics=Diagnostics("vote shares, not the posterior of a model"))

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """True: votes name the classes."""
        del estimate
        return True

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        del estimate
        return vote_shares(votes)
