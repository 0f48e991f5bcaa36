"""Methods that estimate labels from votes, one file each."""

from latentens.methods.rbm_stack import RBMStack
from latentens.methods.vote import MajorityVote

__all__ = ["MajorityVote", "RBMStack"]
