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
"""Its name in tables."""


def fitted_program(model: GenerativeModel, random_starts: int = 2) -> Method:
    """The method that knows the model but neither its parameters nor, in a tree, who is in which group."""
    if isinstance(model, Tree):
        return TreeMLE()
    if isinstance(model, LayeredGraph):
        return LayeredGraphMLE(model.layers)
    return MaximumLikelihood(model, starts=random_starts)


def own_program(datasets: Iterable[Dataset]) -> MethodFactory:
    """A function from the votes of each data set to the method that fits the model they come from.

    Args:
        datasets: Data sets whose model is known; their parameters need not be.
    """
    models = [(dataset.votes, dataset.model) for dataset in datasets]

    def method_for(votes: Votes) -> Method:
        for own, model in models:
            if own is votes and model is not None:
                return fitted_program(model)
        raise LatentensError("the model of these votes is not known")

    return method_for
