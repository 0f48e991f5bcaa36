"""Fit: what every method returns. Method: what every method is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Float, Int

from latentens.runtime.precision import double_precision
from latentens.votes import Votes

Posterior = Float[np.ndarray, "item label"]


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a method.

    Attributes:
        label_probs: Estimated posterior of each item's label.
        predictor: Gives the same for other items' votes.
        params: Estimated parameters by name, where the method has any.
        diagnostics: How the fit went: log-likelihood, iterations, convergence, seconds, ….
        draws: Posterior draws by name, with leading axes (chain, draw), for a sampled fit.
    """

    label_probs: Posterior
    predictor: Callable[[Votes], Posterior]
    params: Mapping[str, np.ndarray] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    draws: Mapping[str, np.ndarray] | None = None

    @property
    def labels(self) -> Int[np.ndarray, " item"]:
        """The most probable label of each item; an exact tie goes to the lowest class."""
        return self.label_probs.argmax(axis=1)

    @double_precision
    def predict(self, votes: Votes) -> Posterior:
        """The posterior of the labels of new items, by the fitted parameters."""
        return self.predictor(votes)


class Method(ABC):
    """A frozen dataclass of hyperparameters that turns votes into a `Fit`; it never sees a label."""

    @final
    def fit(self, votes: Votes, *, key: jax.Array) -> Fit:
        """Estimate the labels.

        Args:
            votes: The votes.
            key: Random key; the same key gives the same result.
        """
        return _timed(self._fit, votes, key)

    @abstractmethod
    def _fit(self, votes: Votes, key: jax.Array) -> Fit:
        """Do the work of `fit`, in double precision."""


class GoldMethod(ABC):
    """A method that can also use the true labels of some items, if the user hands them over."""

    @final
    def fit(self, votes: Votes, *, key: jax.Array, gold: Int[np.ndarray, " item"] | None = None) -> Fit:
        """Estimate the labels.

        Args:
            votes: The votes.
            key: Random key; the same key gives the same result.
            gold: The true label of each item that has one, −1 for the others.
        """
        return _timed(self._fit, votes, key, gold)

    @abstractmethod
    def _fit(self, votes: Votes, key: jax.Array, gold: Int[np.ndarray, " item"] | None) -> Fit:
        """Do the work of `fit`, in double precision."""


@double_precision
def _timed(work: Callable[..., Fit], *args: Any) -> Fit:
    start = time.perf_counter()
    fitted = work(*args)
    return replace(fitted, diagnostics={**fitted.diagnostics, "seconds": time.perf_counter() - start})
