"""Majority vote."""

from dataclasses import dataclass

import jax

from latentens.inference.orient import vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.votes import Votes
from latentens.votes.labels import listed


@dataclass(frozen=True)
class MajorityVote(Method):
    """The share of an item's votes that each class got; equal shares where an item has no votes.

    Votes for categories that are not labels, such as "tie", count for nothing. Gold labels make their own items certain and change nothing else.
    """

    counts_rows = True
    takes_other_votes = True

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key, gold  # there is nothing to estimate
        notes = [f"votes for {listed(votes.other_names)} count for nothing"] if len(votes.other_names) else []
        return Estimate(diagnostics=Diagnostics("vote shares, not the posterior of a model", notes=notes))

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """A class is what was voted for."""
        del estimate
        return True

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        del estimate
        return vote_shares(votes)
