"""Unsupervised ensemble learning with every method next to the exact Bayes posterior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentens import comparison, datasets, evaluation, methods, models, rbm, reporting
    from latentens.comparison import compare, load, recommend, save
    from latentens.datasets import Dataset, simulate, simulate_like
    from latentens.evaluation import check_fit, check_independence, check_signal, effective_voters
    from latentens.methods.base import Fit, Method
    from latentens.methods.persistence import load_fit
    from latentens.programs import GenerativeModel, bayes_posterior, log_likelihood, pointwise_log_likelihood
    from latentens.reporting import report
    from latentens.votes import Votes

__all__ = [
    "Dataset",
    "Fit",
    "GenerativeModel",
    "Method",
    "Votes",
    "bayes_posterior",
    "check_fit",
    "check_independence",
    "check_signal",
    "compare",
    "comparison",
    "datasets",
    "effective_voters",
    "evaluation",
    "load",
    "load_fit",
    "log_likelihood",
    "methods",
    "models",
    "pointwise_log_likelihood",
    "rbm",
    "recommend",
    "report",
    "reporting",
    "save",
    "simulate",
    "simulate_like",
]

_HOMES = {
    "Dataset": "datasets",
    "Fit": "methods.base",
    "GenerativeModel": "programs",
    "Method": "methods.base",
    "Votes": "votes",
    "bayes_posterior": "programs",
    "check_fit": "evaluation",
    "check_independence": "evaluation",
    "check_signal": "evaluation",
    "effective_voters": "evaluation",
    "compare": "comparison",
    "load": "comparison",
    "load_fit": "methods.persistence",
    "log_likelihood": "programs",
    "pointwise_log_likelihood": "programs",
    "recommend": "comparison",
    "report": "reporting",
    "save": "comparison",
    "simulate": "datasets",
    "simulate_like": "datasets",
}
"""The module of each function and class; the other public names are packages."""


def __getattr__(name: str) -> Any:
    """Import what is re-exported on first use, so that the command's help does not wait for JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        value = import_module(f"{__name__}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
