"""Unsupervised ensemble learning with every method next to the exact Bayes posterior."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentens.compare import compare
    from latentens.model import GenerativeModel
    from latentens.report import report
    from latentens.simulation import Dataset, simulate
    from latentens.tables import bayes_posterior, log_likelihood
    from latentens.votes import Votes

__all__ = ["Dataset", "GenerativeModel", "Votes", "bayes_posterior", "compare", "log_likelihood", "report", "simulate"]

_HOMES = {
    "Dataset": "simulation",
    "GenerativeModel": "model",
    "Votes": "votes",
    "bayes_posterior": "tables",
    "compare": "compare",
    "log_likelihood": "tables",
    "report": "report",
    "simulate": "simulation",
}


class _Package(ModuleType):
    """Imports what it re-exports when first asked for it, so that the command's help need not wait for JAX."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{self.__name__}.{_HOMES[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """`compare` and `report` stay functions when the packages of these names are imported."""
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
