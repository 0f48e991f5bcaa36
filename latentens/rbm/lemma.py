"""The lemma: a machine with one hidden unit is the Dawid–Skene model, and the other way round."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from latentens.errors import LatentensError, ParameterError
from latentens.rbm.machine import Machine


class DawidSkeneParams(NamedTuple):
    """The parameters of the binary Dawid–Skene model."""

    prevalence: float
    sensitivity: Float[np.ndarray, " voter"]
    specificity: Float[np.ndarray, " voter"]


def rbm_to_dawid_skene(machine: Machine) -> DawidSkeneParams:
    """`ψ_i = σ(a_i + W_i)`, `η_i = σ(−a_i)`, `logit π = b + Σ softplus(a_i + W_i) − Σ softplus(a_i)`."""
    weights, visible_bias, hidden_bias = (np.asarray(part, dtype=np.float64) for part in machine)
    if weights.shape[1] != 1:
        raise LatentensError(
            f"only a machine with one hidden unit is a Dawid–Skene model, not one of {weights.shape[1]}"
        )
    given_one = visible_bias + weights[:, 0]
    log_odds = hidden_bias[0] + np.sum(np.logaddexp(0, given_one) - np.logaddexp(0, visible_bias))
    return DawidSkeneParams(float(expit(log_odds)), np.asarray(expit(given_one)), np.asarray(expit(-visible_bias)))


def dawid_skene_to_rbm(
    prevalence: float, sensitivity: Float[np.ndarray, " voter"], specificity: Float[np.ndarray, " voter"]
) -> Machine:
    """`a_i = −logit η_i`, `W_i = logit ψ_i − a_i`, `b = logit π + Σ log(1 − ψ_i) − Σ log η_i`."""
    sensitivity, specificity = np.asarray(sensitivity, np.float64), np.asarray(specificity, np.float64)
    probabilities = np.concatenate([[prevalence], sensitivity, specificity])
    if not ((probabilities > 0) & (probabilities < 1)).all():
        raise ParameterError(
            "prevalence, sensitivity and specificity must lie strictly between 0 and 1 to be those of a machine; "
            "move them off 0 and 1"
        )
    visible_bias = -logit(specificity)
    hidden_bias = logit(prevalence) + np.sum(np.log1p(-sensitivity) - np.log(specificity))
    weights = logit(sensitivity) - visible_bias
    return Machine(weights[:, None], visible_bias, np.array([hidden_bias]))
