"""Events with a stated probability, and the weights of the items where they happened."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

Runs = Float[np.ndarray, "resample run"]


class Event(NamedTuple):
    """An event whose probability is stated for each kind of items, kinds pooled into runs by that probability.

    Neighbouring probabilities at all of which the event happened, or at none of which it did, are one run: whatever the
    weights, pooling them does not change the area under the curve, and an isotonic regression is constant on them.

    Attributes:
        runs: Sums weights over runs, by increasing probability: of the kinds where the event did not happen, then of
            those where it did.
    """

    runs: csr_array

    @classmethod
    def of(cls, stated: Float[np.ndarray, " kind"], happened: Bool[np.ndarray, " kind"]) -> "Event":
        """Sort the kinds and pool them."""
        values, tie = np.unique(stated, return_inverse=True)
        share = np.bincount(tie, happened, len(values)) / np.bincount(tie, minlength=len(values))
        begins = (np.diff(share, prepend=-1) != 0) | ((share > 0) & (share < 1))
        run, number = np.cumsum(begins) - 1, int(begins.sum())
        return cls(summing(run[tie] + number * happened, 2 * number))

    def pooled(self, weights: Float[np.ndarray, "resample kind"]) -> tuple[Runs, Runs]:
        """The weight of the items of each run: of those where the event happened, and of the others."""
        others, happened = np.split(self.runs @ weights.T, 2)
        return np.ascontiguousarray(happened.T), np.ascontiguousarray(others.T)


def summing(place: Int[np.ndarray, " kind"], number: int) -> csr_array:
    """The matrix that sums over the kinds of each place."""
    kinds = np.arange(len(place))
    return csr_array((np.ones(len(place)), (place, kinds)), shape=(number, len(place)))
