"""Training: how a machine comes from rows. Trained: what every training returns."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import numpy as np
from jaxtyping import Float

from latentens.rbm.machine import Machine
from latentens.rbm.rows import VisibleRows
from latentens.runtime.numerics import double_precision
from latentens.runtime.settings import NotNegative, Settings


class Trained(NamedTuple):
    """A trained machine.

    Attributes:
        ends: The machines at which the starts ended, the best first; their parameters are NumPy arrays.
        curve: The best one's objective in the course of training: a mean over items, in nats; higher is better.
        diagnostics: How training went: `training` names the way, `iterations` counts its steps, ….
    """

    ends: tuple[Machine, ...]
    curve: Float[np.ndarray, " step"]
    diagnostics: Mapping[str, Any]

    @property
    def machine(self) -> Machine:
        """The best machine."""
        return self.ends[0]


@dataclass(frozen=True)
class Training(Settings, ABC):
    """A way to train a machine, with its settings.

    Attributes:
        penalty: Weight of the L2 penalty `penalty/2 · ‖W‖²` on the mean log-likelihood.
    """

    penalty: NotNegative

    @final
    @double_precision
    def train(self, rows: VisibleRows, num_hidden: int, *, key: jax.Array, starts: Sequence[Machine] = ()) -> Trained:
        """Train a machine.

        Args:
            rows: What to train on.
            num_hidden: Number of hidden units.
            key: Random key; the same key gives the same machine.
            starts: Machines of that size to start from, the most promising first; by default starts are random.
        """
        return self._train(rows, num_hidden, key, starts)

    @abstractmethod
    def _train(self, rows: VisibleRows, num_hidden: int, key: jax.Array, starts: Sequence[Machine]) -> Trained:
        """Do the work of `train`, in double precision."""
