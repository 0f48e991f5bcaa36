"""Votes: what was observed, how it is stored, and how it is read from files."""

from latentens.votes.counting import CountedVotes, count_votes_in
from latentens.votes.votes import Patterns, Triplets, Votes

__all__ = ["CountedVotes", "Patterns", "Triplets", "Votes", "count_votes_in"]
