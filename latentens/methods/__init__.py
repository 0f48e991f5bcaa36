"""Methods that estimate labels from votes, one file each."""

from latentens.methods.base import Diagnostics, Estimate
from latentens.methods.consensus import Consensus
from latentens.methods.cubam import Cubam
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.ebcc import Ebcc
from latentens.methods.glad import Glad
from latentens.methods.latent_spectral import LatentSpectral
from latentens.methods.majority_vote import MajorityVote
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.rank_one import IterativeMaximumLikelihood, RestrictedLikelihood, SpectralMetaLearner
from latentens.methods.rbm_stack import RBMStack
from latentens.methods.sampled import Laplace, Nuts, Variational
from latentens.methods.stacked import Stacked
from latentens.methods.stated_confidence import StatedConfidence
from latentens.methods.tempered import Tempered
from latentens.methods.top_down_mle import LayeredGraphMLE, TopDownMLE
from latentens.methods.tree_mle import TreeMLE

__all__ = [
    "Consensus",
    "Cubam",
    "DawidSkeneEM",
    "Diagnostics",
    "Ebcc",
    "Estimate",
    "Glad",
    "IterativeMaximumLikelihood",
    "Laplace",
    "LatentSpectral",
    "LayeredGraphMLE",
    "MajorityVote",
    "MaximumLikelihood",
    "Nuts",
    "RBMStack",
    "RestrictedLikelihood",
    "SpectralMetaLearner",
    "Stacked",
    "StatedConfidence",
    "Tempered",
    "TopDownMLE",
    "TreeMLE",
    "Variational",
]
