"""The lemma: a machine with one hidden unit is the Dawid–Skene model, and the other way round, for any K classes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, softmax

from latentens.errors import LatentensError, ParameterError
from latentens.rbm.machine import Machine
from latentens.rbm.units import Units


class DawidSkeneParams(NamedTuple):
    """The parameters of the Dawid–Skene model."""

    prevalence: Float[np.ndarray, " label"]
    confusion: Float[np.ndarray, "voter label vote"]


def rbm_to_dawid_skene(machine: Machine) -> DawidSkeneParams:
    """The parameters of the Dawid–Skene model that a machine with one hidden unit is.

    `θ_i[s, v] = softmax_v(a_i[v] + W_i[v, s])` and `π_s ∝ exp(b[s]) Π_i Σ_v exp(a_i[v] + W_i[v, s])`. With two classes,
    where state 0 has no bias and no weight: sensitivity `σ(a_i + W_i)`, specificity `σ(−a_i)`.
    """
    if machine.num_hidden != 1:
        raise LatentensError(
            f"only a machine with one hidden unit is a Dawid–Skene model, not one with {machine.num_hidden}"
        )
    weights, visible_bias, hidden_bias = (np.asarray(part, dtype=np.float64) for part in machine[:3])
    given = visible_bias[:, None] + np.insert(weights, 0, 0.0, axis=1)
    scores = np.insert(np.asarray(machine.visible_units.by_unit(given, axis=0)), 0, 0.0, axis=1)  # voter, vote, label
    log_shares = np.insert(hidden_bias, 0, 0.0) + logsumexp(scores, axis=1).sum(axis=0)
    return DawidSkeneParams(softmax(log_shares), softmax(scores, axis=1).transpose(0, 2, 1))


def dawid_skene_to_rbm(
    prevalence: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"]
) -> Machine:
    """The inverse of `rbm_to_dawid_skene`.

    `a_i[v] = log θ_i[0, v] / θ_i[0, 0]`, `W_i[v, s] = log θ_i[s, v] / θ_i[s, 0] − a_i[v]` and
    `b[s] = log π_s / π_0 + Σ_i log θ_i[s, 0] / θ_i[0, 0]`.
    """
    prevalence, confusion = np.asarray(prevalence, np.float64), np.asarray(confusion, np.float64)
    probabilities = np.concatenate([prevalence.ravel(), confusion.ravel()])
    if not ((probabilities > 0) & (probabilities < 1)).all():
        raise ParameterError("prevalence and confusion must lie strictly between 0 and 1 to be those of a machine")
    log_shares, log_confusion = np.log(prevalence), np.log(confusion)
    odds = log_confusion[:, :, 1:] - log_confusion[:, :, :1]
    weights = (odds[:, 1:] - odds[:, :1]).transpose(0, 2, 1)
    hidden_bias = log_shares[1:] - log_shares[0] + (log_confusion[:, 1:, 0] - log_confusion[:, :1, 0]).sum(axis=0)
    visible_units, hidden_units = Units(confusion.shape[2]), Units(len(prevalence))
    return Machine(
        weights.reshape(-1, hidden_units.width), odds[:, 0].ravel(), hidden_bias, visible_units, hidden_units
    )
