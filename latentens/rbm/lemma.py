"""The lemma: a machine with one hidden unit is the Dawid–Skene model, and the other way round, for any K classes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit, logsumexp, softmax

from latentens.errors import LatentensError, ParameterError
from latentens.rbm.machine import Machine
from latentens.rbm.units import Units


class DawidSkeneParams(NamedTuple):
    """The parameters of the Dawid–Skene model for two classes."""

    prevalence: float
    sensitivity: Float[np.ndarray, " voter"]
    specificity: Float[np.ndarray, " voter"]


class ConfusionParams(NamedTuple):
    """The parameters of the Dawid–Skene model for any number of classes."""

    prevalence: Float[np.ndarray, " label"]
    confusion: Float[np.ndarray, "voter label vote"]


def rbm_to_dawid_skene(machine: Machine) -> DawidSkeneParams:
    """`ψ_i = σ(a_i + W_i)`, `η_i = σ(−a_i)`, `logit π = b + Σ softplus(a_i + W_i) − Σ softplus(a_i)`."""
    _check_single(machine)
    if machine.visible_units.num_states > 2:
        raise LatentensError("a machine of more than two classes has confusion matrices: use rbm_to_confusion")
    weights, visible_bias, hidden_bias = (np.asarray(part, dtype=np.float64) for part in machine[:3])
    given_one = visible_bias + weights[:, 0]
    log_odds = hidden_bias[0] + np.sum(np.logaddexp(0, given_one) - np.logaddexp(0, visible_bias))
    return DawidSkeneParams(float(expit(log_odds)), np.asarray(expit(given_one)), np.asarray(expit(-visible_bias)))


def rbm_to_confusion(machine: Machine) -> ConfusionParams:
    """`θ_i[s, v] = softmax_v(a_i[v] + W_i[v, s])` and `π_s ∝ exp(b[s]) Π_i Σ_v exp(a_i[v] + W_i[v, s])`."""
    _check_single(machine)
    voters = machine.visible_units
    weights, visible_bias, hidden_bias = (np.asarray(part, dtype=np.float64) for part in machine[:3])
    given = visible_bias[:, None] + np.insert(weights, 0, 0.0, axis=1)
    scores = np.insert(np.asarray(voters.by_unit(given, axis=0)), 0, 0.0, axis=1)  # voter, vote, label
    log_shares = np.insert(hidden_bias, 0, 0.0) + logsumexp(scores, axis=1).sum(axis=0)
    return ConfusionParams(softmax(log_shares), softmax(scores, axis=1).transpose(0, 2, 1))


def dawid_skene_to_rbm(
    prevalence: float, sensitivity: Float[np.ndarray, " voter"], specificity: Float[np.ndarray, " voter"]
) -> Machine:
    """`a_i = −logit η_i`, `W_i = logit ψ_i − a_i`, `b = logit π + Σ log(1 − ψ_i) − Σ log η_i`."""
    sensitivity, specificity = np.asarray(sensitivity, np.float64), np.asarray(specificity, np.float64)
    _check_open(np.concatenate([[prevalence], sensitivity, specificity]), "prevalence, sensitivity and specificity")
    visible_bias = -logit(specificity)
    hidden_bias = logit(prevalence) + np.sum(np.log1p(-sensitivity) - np.log(specificity))
    weights = logit(sensitivity) - visible_bias
    return Machine(weights[:, None], visible_bias, np.array([hidden_bias]))


def confusion_to_rbm(
    prevalence: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"]
) -> Machine:
    """The inverse of `rbm_to_confusion`.

    `a_i[v] = log θ_i[0, v] / θ_i[0, 0]`, `W_i[v, s] = log θ_i[s, v] / θ_i[s, 0] − a_i[v]` and
    `b[s] = log π_s / π_0 + Σ_i log θ_i[s, 0] / θ_i[0, 0]`.
    """
    prevalence, confusion = np.asarray(prevalence, np.float64), np.asarray(confusion, np.float64)
    _check_open(np.concatenate([prevalence.ravel(), confusion.ravel()]), "prevalence and confusion matrices")
    log_shares, log_confusion = np.log(prevalence), np.log(confusion)
    odds = log_confusion[:, :, 1:] - log_confusion[:, :, :1]
    weights = (odds[:, 1:] - odds[:, :1]).transpose(0, 2, 1)
    hidden_bias = log_shares[1:] - log_shares[0] + (log_confusion[:, 1:, 0] - log_confusion[:, :1, 0]).sum(axis=0)
    visible_units, hidden_units = Units(confusion.shape[2]), Units(len(prevalence))
    return Machine(
        weights.reshape(-1, hidden_units.width), odds[:, 0].ravel(), hidden_bias, visible_units, hidden_units
    )


def _check_single(machine: Machine) -> None:
    if machine.num_hidden != 1:
        raise LatentensError(
            f"only a machine with one hidden unit is a Dawid–Skene model, not one of {machine.num_hidden}"
        )


def _check_open(probabilities: Float[np.ndarray, " value"], what: str) -> None:
    if not ((probabilities > 0) & (probabilities < 1)).all():
        raise ParameterError(
            f"{what} must lie strictly between 0 and 1 to be those of a machine; move them off 0 and 1"
        )
