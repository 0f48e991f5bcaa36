"""Comparison of methods with each other and with the exact posterior."""

from latentens.compare.files import load, save
from latentens.compare.layout import EXACT, data_trees, full_scores
from latentens.compare.sweep import compare

__all__ = ["EXACT", "compare", "data_trees", "full_scores", "load", "save"]
