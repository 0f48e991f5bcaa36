"""Comparison of methods with each other and with the exact posterior."""

from latentens.comparison.data_tree import EXACT, data_trees
from latentens.comparison.dependence import add_independence, add_worth
from latentens.comparison.netcdf import load, save
from latentens.comparison.sweep import compare

__all__ = ["EXACT", "add_independence", "add_worth", "compare", "data_trees", "load", "save"]
