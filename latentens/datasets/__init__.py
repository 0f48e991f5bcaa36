"""Data sets: votes with the labels, models and parameters that are known."""

from latentens.datasets.dataset import Dataset, simulate, simulate_like
from latentens.datasets.from_files import from_files, read_labels, read_votes
from latentens.datasets.named import PAPER_ITEMS, PAPER_MODELS, ROOT_VARIABLE, load, paper_params, simulate_paper

__all__ = [
    "PAPER_ITEMS",
    "PAPER_MODELS",
    "ROOT_VARIABLE",
    "Dataset",
    "from_files",
    "load",
    "paper_params",
    "read_labels",
    "read_votes",
    "simulate",
    "simulate_like",
    "simulate_paper",
]
