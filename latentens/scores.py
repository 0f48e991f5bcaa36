"""Scores of estimated posteriors: arrays in, numbers out. Items whose label is −1 (unknown) do not count."""

import numpy as np
from jaxtyping import Float, Int

Labels = Int[np.ndarray, " item"]
Posterior = Float[np.ndarray, "item label"]

SMALLEST = np.finfo(np.float64).tiny


def balanced_accuracy(labels: Labels, predicted: Labels) -> float:
    """Mean over the classes that occur of the share of their items that are predicted right."""
    classes = np.unique(labels[labels >= 0])
    return float(np.mean([np.mean(predicted[labels == k] == k) for k in classes]))


def log_score(labels: Labels, probs: Posterior) -> float:
    """Mean of −log p(true label), in nats; zero is best."""
    known = labels >= 0
    return float(-np.mean(np.log(np.maximum(probs[known, labels[known]], SMALLEST))))


def mean_kl(exact: Posterior, probs: Posterior) -> float:
    """Mean over items of the Kullback–Leibler divergence of an estimate from the exact posterior, in nats."""
    ratio = np.log(np.maximum(exact, SMALLEST)) - np.log(np.maximum(probs, SMALLEST))
    return float(np.mean(np.sum(exact * ratio, axis=1)))
