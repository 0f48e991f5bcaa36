"""Unsupervised ensemble learning with every method next to the exact Bayes posterior."""

from latentens.compare import compare
from latentens.model import GenerativeModel
from latentens.report import report
from latentens.simulation import Dataset, simulate
from latentens.tables import bayes_posterior, log_likelihood
from latentens.votes import Votes

__all__ = ["Dataset", "GenerativeModel", "Votes", "bayes_posterior", "compare", "log_likelihood", "report", "simulate"]
