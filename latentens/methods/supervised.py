"""The supervised reference: a small neural network that was shown another data set's labels."""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from latentens.datasets import Dataset
from latentens.errors import VotesError
from latentens.methods.base import Fit, Method, Posterior
from latentens.methods.indicator import row_predictor, vote_indicator
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes


@dataclass(frozen=True)
class Supervised:
    """A multilayer perceptron from votes to labels.

    Not a `Method`: it is fitted to a labelled `Dataset`, and methods to votes, which hold no label. Fit it to one data
    set and `predict` the votes of another of the same voters; a missing vote is no input.

    Attributes:
        hidden_layers: Units of each hidden layer.
        restarts: Random starts, of which the smallest loss on the training data is kept.
        max_iterations: Iterations of L-BFGS at most.
    """

    hidden_layers: tuple[int, ...] = (4, 2)
    restarts: int = 3
    max_iterations: int = 500

    def fit(self, dataset: Dataset, *, key: jax.Array) -> Fit:
        """Train on the items whose label is known.

        Args:
            dataset: Votes and labels. What the result says of these same votes has seen their labels.
            key: Random key; the same key gives the same result.
        """
        start, votes = time.perf_counter(), dataset.votes
        known = np.flatnonzero(dataset.labels >= 0)
        if len(np.unique(dataset.labels[known])) < 2:
            raise VotesError(f"{dataset.name} has not two classes among its labels, and supervised training needs them")
        inputs, labels = vote_indicator(votes.take(known), votes.num_classes), dataset.labels[known]
        seeds = numpy_generator(key).integers(2**31, size=self.restarts)
        network = min((self._train(inputs, labels, int(seed)) for seed in seeds), key=lambda trained: trained.loss_)

        def label_probs(rows: Votes) -> Posterior:
            probs = np.zeros((rows.num_items, votes.num_classes))
            probs[:, network.classes_] = network.predict_proba(vote_indicator(rows, votes.num_classes))
            return probs

        predictor = row_predictor(label_probs, votes)
        diagnostics: dict[str, Any] = {
            "label_probs": "output of a network trained on true labels",
            "trained_on": dataset.name,
            "loss": float(network.loss_),
            "iterations": int(network.n_iter_),
            "converged": bool(network.n_iter_ < self.max_iterations),
        }
        fitted = predictor(votes)
        return Fit(fitted, predictor, diagnostics={**diagnostics, "seconds": time.perf_counter() - start})

    def _train(self, inputs: Any, labels: np.ndarray, seed: int) -> MLPClassifier:
        network = MLPClassifier(self.hidden_layers, solver="lbfgs", max_iter=self.max_iterations, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told in the diagnostics
            return network.fit(inputs, labels)


@dataclass(frozen=True)
class SupervisedReference(Method):
    """The supervised network as a row of a comparison: trained on another data set of the same voters.

    Attributes:
        training: The labelled data set; never the one that it is compared on.
        network: The network.
    """

    training: Dataset = field(repr=False)
    network: Supervised = field(default_factory=Supervised)

    def _fit(self, votes: Votes, key: jax.Array) -> Fit:
        trained = self.network.fit(self.training, key=key)
        return Fit(trained.predictor(votes), trained.predictor, diagnostics=trained.diagnostics)
