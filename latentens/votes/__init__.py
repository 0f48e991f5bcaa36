"""Votes: the observed data, how they are stored, and how they are read from files."""

from latentens.votes.counting import CountedVotes, count_votes_in
from latentens.votes.votes import Patterns, Triplets, Votes

__all__ = ["CountedVotes", "Patterns", "Triplets", "Votes", "count_votes_in"]
