"""The supervised reference: a small neural network that was shown another data set's labels."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from latentens.datasets import Dataset
from latentens.errors import VotesError
from latentens.methods.base import Diagnostics, Estimate, Fit, Posterior, Predictor, finished
from latentens.methods.rows import in_blocks
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count
from latentens.votes import Votes
from latentens.votes.layout import vote_indicator

LAYER = ("weights", "bias")
"""The arrays of a layer of the network."""


@dataclass(frozen=True)
class Supervised(Predictor):
    """A multilayer perceptron from votes to labels.

    Not a `Method`: it is fitted to a labelled `Dataset`, and methods to votes, which hold no label. Fit it to one data
    set and `predict` the votes of another of the same voters; missing votes are zeros.

    Attributes:
        hidden_layers: Number of units of each hidden layer.
        restarts: Number of random starts; the one with the smallest loss on the training data is kept.
        max_iterations: Limit on the iterations of L-BFGS.
    """

    hidden_layers: tuple[Count, ...] = (4, 2)
    restarts: Count = 3
    max_iterations: Count = 500

    def fit(self, dataset: Dataset, *, key: jax.Array) -> Fit:
        """Train on the items whose label is known.

        Args:
            dataset: Votes and labels. What the result says of these same votes has seen their labels.
            key: Random key; the same key gives the same result.
        """
        start = time.perf_counter()
        return finished(self, self.estimate(dataset, key), dataset.votes, start)

    def estimate(self, dataset: Dataset, key: jax.Array) -> Estimate:
        """The trained network as arrays."""
        votes, known = dataset.votes, np.flatnonzero(dataset.labels >= 0)
        if len(np.unique(dataset.labels[known])) < 2:
            raise VotesError(f"{dataset.name} has labels of fewer than two classes, too few for supervised training")
        inputs, labels = vote_indicator(votes.take(known), votes.num_categories), dataset.labels[known]
        seeds = numpy_generator(key).integers(2**31, size=self.restarts)
        network = min((self._train(inputs, labels, int(seed)) for seed in seeds), key=lambda trained: trained.loss_)
        diagnostics = Diagnostics(
            "output of a network trained on true labels",
            iterations=int(network.n_iter_),
            converged=bool(network.n_iter_ < self.max_iterations),
            extra={"trained_on": dataset.name, "loss": float(network.loss_)},
        )
        layers = enumerate(zip(network.coefs_, network.intercepts_, strict=True))
        state = {f"{name}_{layer}": part for layer, pair in layers for name, part in zip(LAYER, pair, strict=True)}
        return Estimate(diagnostics=diagnostics, state={"classes": network.classes_, **state})

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        values: Any = vote_indicator(votes, votes.num_categories)
        for layer in range(len(self.hidden_layers) + 1):
            weights, bias = (estimate.state[f"{name}_{layer}"] for name in LAYER)
            values = (values if layer == 0 else np.maximum(values, 0.0)) @ weights + bias
        probs = np.zeros((votes.num_items, votes.num_classes))
        of_one = expit(values)
        found = np.hstack([1 - of_one, of_one]) if values.shape[1] == 1 else softmax(values, axis=1)
        probs[:, estimate.state["classes"]] = found
        return probs

    def _train(self, inputs: Any, labels: np.ndarray, seed: int) -> Any:
        network = MLPClassifier(self.hidden_layers, solver="lbfgs", max_iter=self.max_iterations, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # reported in the diagnostics
            return network.fit(inputs, labels)
