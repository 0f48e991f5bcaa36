"""Methods that estimate labels from votes, one file each."""

from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.nuts import Nuts
from latentens.methods.vote import MajorityVote

__all__ = ["MajorityVote", "MaximumLikelihood", "Nuts"]
