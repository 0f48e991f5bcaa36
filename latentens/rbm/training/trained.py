"""Trained: what training gives, whichever way it went."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Float
from numpy import ndarray

from latentens.rbm.machine import Machine


class Trained(NamedTuple):
    """A trained machine.

    Attributes:
        ends: The machines at which the starts ended, the best first.
        curve: The best one's objective in the course of training: a mean over items, in nats; higher is better.
        diagnostics: How training went.
    """

    ends: tuple[Machine, ...]
    curve: Float[ndarray, " step"]
    diagnostics: Mapping[str, Any]

    @property
    def machine(self) -> Machine:
        """The best machine."""
        return self.ends[0]
