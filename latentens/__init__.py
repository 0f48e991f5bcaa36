"""Unsupervised ensemble learning with every method next to the exact Bayes posterior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentens import checks, comparison, datasets, methods, models, rbm, recommendation, reporting, scores
    from latentens.checks import check_fit, check_independence, check_signal, effective_voters
    from latentens.comparison import compare, load, save
    from latentens.datasets import Dataset, simulate, simulate_like
    from latentens.methods.base import Estimate, Fit, Method
    from latentens.methods.persistence import load_fit
    from latentens.programs import GenerativeModel, bayes_posterior, log_likelihood, pointwise_log_likelihood
    from latentens.recommendation import recommend
    from latentens.reporting import report
    from latentens.votes import Votes

__all__ = [
    "Dataset",
    "Estimate",
    "Fit",
    "GenerativeModel",
    "Method",
    "Votes",
    "bayes_posterior",
    "check_fit",
    "check_independence",
    "check_signal",
    "checks",
    "compare",
    "comparison",
    "datasets",
    "effective_voters",
    "load",
    "load_fit",
    "log_likelihood",
    "methods",
    "models",
    "pointwise_log_likelihood",
    "rbm",
    "recommend",
    "recommendation",
    "report",
    "reporting",
    "save",
    "scores",
    "simulate",
    "simulate_like",
]

_HOMES = {
    "Dataset": "datasets",
    "Estimate": "methods.base",
    "Fit": "methods.base",
    "GenerativeModel": "programs",
    "Method": "methods.base",
    "Votes": "votes",
    "bayes_posterior": "programs",
    "check_fit": "checks",
    "check_independence": "checks",
    "check_signal": "checks",
    "effective_voters": "checks",
    "compare": "comparison",
    "load": "comparison",
    "load_fit": "methods.persistence",
    "log_likelihood": "programs",
    "pointwise_log_likelihood": "programs",
    "recommend": "recommendation",
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
