"""Votes: what was observed, how it is stored, and how it is read from files."""

from latentens.votes.votes import Patterns, Triplets, Votes

__all__ = ["Patterns", "Triplets", "Votes"]
