"""Generative models, one file each; `README.md` in this folder shows how to add one."""

from latentens.models.dawid_skene import DawidSkene
from latentens.models.deep_belief_net import DeepBeliefNet
from latentens.models.layered_graph import LayeredGraph
from latentens.models.top_down import TopDown
from latentens.models.tree import Tree
from latentens.models.truncated_gaussian import TruncatedGaussian

__all__ = ["DawidSkene", "DeepBeliefNet", "LayeredGraph", "TopDown", "Tree", "TruncatedGaussian"]
