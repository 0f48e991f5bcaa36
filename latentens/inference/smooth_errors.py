"""Standard errors of functions of parameters from the information about these."""

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh

UNIDENTIFIED = 1e-9
"""A direction with less than this share of the largest information is not determined by the votes."""

REACHED = 1e-6
"""A function that changes by less than this along such a direction does not depend on it."""


def errors_of(
    information: Float[np.ndarray, "parameter parameter"], slopes: Float[np.ndarray, "function parameter"]
) -> Float[np.ndarray, " function"]:
    """Standard errors, infinite for what the information does not determine.

    Args:
        information: The information about the parameters.
        slopes: Derivatives of the functions.
    """
    size = np.sqrt(np.abs(np.diag(information)))
    size = np.where(size > 0, size, 1.0)
    values, vectors = eigh(information / np.outer(size, size))
    along = (slopes / size) @ vectors
    known = values > UNIDENTIFIED * values[-1]
    errors = np.sqrt((along[:, known] ** 2 / values[known]).sum(axis=1))
    return np.where((np.abs(along[:, ~known]) > REACHED).any(axis=1), np.inf, errors)
