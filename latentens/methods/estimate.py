"""Estimate: what a method finds, before it is a fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

Posterior = Float[np.ndarray, "item label"]
Arrays = Mapping[str, np.ndarray]
GoldCodes = Int[np.ndarray, " item"]
"""The code of each item's true label, −1 where it is unknown."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What `Method._fit` hands to `Method.fit`, which makes a `Fit` of it.

    Attributes:
        params: Estimated parameters by name: what a user looks at.
        diagnostics: How the fit went: log-likelihood, iterations, convergence, ….
        draws: Posterior draws by name, with leading axes (chain, draw), for a sampled fit.
        state: Further arrays that `Method._predict` needs.
        label_probs: The posterior of the fitted items, where it is not simply what `_predict` says about their votes.
    """

    params: Arrays = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    draws: Arrays | None = None
    state: Arrays = field(default_factory=dict)
    label_probs: Posterior | None = None
