"""The program that a data set comes from, fitted to its votes: how well one does who knows the family of models."""

from collections.abc import Iterable

from latentens.comparison.sweep import MethodFactory
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.methods import LayeredGraphMLE, MaximumLikelihood, TreeMLE
from latentens.methods.base import Method
from latentens.models import LayeredGraph, Tree
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes

OWN_PROGRAM = "own program"
"""What it is called in tables."""


def fitted_program(model: GenerativeModel, random_starts: int = 2) -> Method:
    """The method that knows the model but neither its parameters nor, in a tree, who is in which group."""
    if isinstance(model, Tree):
        return TreeMLE()
    if isinstance(model, LayeredGraph):
        return LayeredGraphMLE(model.layers)
    return MaximumLikelihood(model, starts=random_starts)


def own_program(datasets: Iterable[Dataset]) -> MethodFactory:
    """What makes, for the votes of each data set, the method that fits the model they come from.

    Args:
        datasets: Data sets whose model is known, its parameters need not be.
    """
    known = [(dataset.votes, dataset.model) for dataset in datasets]

    def method_for(votes: Votes) -> Method:
        for own, model in known:
            if own is votes and model is not None:
                return fitted_program(model)
        raise LatentensError("which model these votes come from is not known")

    return method_for
