"""Generative programs: the contract, the tables a program is turned into, and their exact likelihoods."""

from latentens.programs.components import two_class_confusion
from latentens.programs.distributions import QuadratureNormal
from latentens.programs.likelihood import bayes_posterior, log_likelihood, pointwise_log_likelihood
from latentens.programs.model import GenerativeModel, Params

__all__ = [
    "GenerativeModel",
    "Params",
    "QuadratureNormal",
    "bayes_posterior",
    "log_likelihood",
    "pointwise_log_likelihood",
    "two_class_confusion",
]
