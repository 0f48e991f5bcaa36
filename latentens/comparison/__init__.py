"""Comparison of methods with each other and with the exact posterior."""

from latentens.comparison.data_tree import data_trees, from_tree, load_comparison, save_comparison, to_tree
from latentens.comparison.result import EXACT, Comparison, DatasetResult, Outcome
from latentens.comparison.sweep import add_independence, add_worth, compare

__all__ = [
    "EXACT",
    "Comparison",
    "DatasetResult",
    "Outcome",
    "add_independence",
    "add_worth",
    "compare",
    "data_trees",
    "from_tree",
    "load_comparison",
    "save_comparison",
    "to_tree",
]
