"""Correlations between the voters and between the hidden units of each layer of an RBM stack."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from latentens.errors import VotesError
from latentens.methods.base import Fit
from latentens.methods.rbm_stack import stack_machines
from latentens.rbm.stack import hidden_representations
from latentens.votes import Votes
from latentens.votes.labels import MISSING


class LayerCorrelations(NamedTuple):
    """Correlations between the units of a layer, 0 with a unit that is constant."""

    marginal: Float[np.ndarray, "unit unit"]
    given_label: Float[np.ndarray, "unit unit"]
    """Of the deviations from the means of each label."""


def decorrelation(
    fit: Fit, votes: Votes, labels: Int[np.ndarray, " item"] | None = None, *, key: jax.Array
) -> list[LayerCorrelations]:
    """Correlations between the voters and, above them, between the hidden units of each layer of an RBM stack.

    Args:
        fit: The fit of a stack; of any other method there are the voters only.
        votes: The votes that it was fitted to, for two classes; a pair counts where both voted.
        labels: The label of each item; by default the estimated label probabilities serve as weights.
        key: Random key, for gaps in a large machine.
    """
    if votes.num_classes != 2:
        raise VotesError(f"correlations between voters are for two classes, but the votes have {votes.num_classes}")
    votes.refuse_repeats("a correlation between voters")
    probs = fit.label_probs if labels is None else np.eye(2)[labels]
    cast = votes.matrix != MISSING
    layers = [_correlations(np.where(cast, votes.matrix, 0.0), cast, probs)]
    if machines := stack_machines(fit.params):
        hidden = hidden_representations(machines, votes, key=key)
        layers += [_correlations(units, np.ones(units.shape, dtype=bool), probs) for units in hidden]
    return layers


def _correlations(
    values: Float[np.ndarray, "item unit"], cast: Bool[np.ndarray, "item unit"], probs: Float[np.ndarray, "item label"]
) -> LayerCorrelations:
    return LayerCorrelations(
        *(_within(values, cast.astype(np.float64), weights) for weights in (np.ones((len(values), 1)), probs))
    )


def _within(
    values: Float[np.ndarray, "item unit"],
    cast: Float[np.ndarray, "item unit"],
    weights: Float[np.ndarray, "item label"],
) -> Float[np.ndarray, "unit unit"]:
    """Correlations within labels; `sums[i, j]` is the sum of unit i over the items where j was observed too."""
    products = np.zeros((values.shape[1], values.shape[1]))
    together = np.zeros_like(products)
    for weight in weights.T:
        weighted = values * weight[:, None]
        count, sums = (cast * weight[:, None]).T @ cast, weighted.T @ cast
        products += weighted.T @ values - sums * sums.T / np.where(count > 0, count, 1.0)
        together += count
    covariance = products / np.where(together > 0, together, 1.0)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviation, deviation)
    usable = scale > 1e-12  # others are constant
    correlation = np.clip(covariance / np.where(usable, scale, 1.0), -1.0, 1.0)
    return np.where(np.eye(len(scale), dtype=bool), 1.0, np.where(usable, correlation, 0.0))
