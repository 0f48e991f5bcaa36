"""Generative models, one file each; `README.md` in this folder shows how to add one."""

from latentens.models.class_conditional import ClassConditional
from latentens.models.confounder import Confounder
from latentens.models.dawid_skene import DawidSkene
from latentens.models.deep_belief_net import DeepBeliefNet
from latentens.models.graded_response import GradedResponse
from latentens.models.hierarchical_dawid_skene import HierarchicalDawidSkene
from latentens.models.item_difficulty import ItemDifficulty
from latentens.models.layered_graph import LayeredGraph
from latentens.models.mace import Mace
from latentens.models.one_coin import OneCoin
from latentens.models.top_down import TopDown
from latentens.models.tree import Tree
from latentens.models.truncated_gaussian import TruncatedGaussian

__all__ = [
    "ClassConditional",
    "Confounder",
    "DawidSkene",
    "DeepBeliefNet",
    "GradedResponse",
    "HierarchicalDawidSkene",
    "ItemDifficulty",
    "LayeredGraph",
    "Mace",
    "OneCoin",
    "TopDown",
    "Tree",
    "TruncatedGaussian",
]
