"""Are the labels identified? Whether they stay the same at other optima that fit the votes about as well.

Where a program is only about right, a small difference in likelihood between two optima says nothing about which label
is the right one. What counts as small is told by the items themselves: the difference is a sum over items, and its
standard error is what it would vary by if the items were drawn again.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEAR = 2.0
"""An optimum fits about as well as the best one if it is behind by at most this many standard errors."""

UNSTABLE = 0.02
"""More than this share of changed labels is reported."""


Counts = Int[np.ndarray, " row"] | Float[np.ndarray, " row"]


class Labelling(NamedTuple):
    """What an optimum says about rows of votes."""

    log_likelihood: Float[np.ndarray, " row"]
    labels: Int[np.ndarray, " row"]
    """The most probable ones, in the order of the classes."""


def label_change(best: Labelling, other: Labelling, counts: Counts, penalty: float = 0.0) -> float:
    """The share of items whose label changes at another optimum; 0 if that is clearly behind the best.

    Args:
        best: The best optimum.
        other: The other one.
        counts: Number of items of each row.
        penalty: As in `fits_about_as_well`.
    """
    if not fits_about_as_well(best.log_likelihood, other.log_likelihood, counts, penalty):
        return 0.0
    return float(counts @ (best.labels != other.labels) / counts.sum())


def fits_about_as_well(
    best: Float[np.ndarray, " row"], other: Float[np.ndarray, " row"], counts: Counts, penalty: float = 0.0
) -> bool:
    """Whether one optimum is not clearly behind the best.

    The gap is the difference of the log-likelihoods and of what else speaks for one or the other. With one nat for each
    extra parameter it is that of AIC: what the two are expected to differ by on new items. Its standard error is that
    of the difference over items, which the bootstrap would give (Vuong 1989). A penalty that grows with the number of
    items, as that of BIC, would set larger models aside for being large, however well they predict.

    Args:
        best: The log-likelihood of each row of votes at the best optimum.
        other: The same at the other one.
        counts: Number of items of each row.
        penalty: What else speaks against the other one, in nats: its extra parameters, or a prior that prefers the
            best; negative if it speaks for it.
    """
    num_items = counts.sum()
    difference = best - other
    mean = counts @ difference / num_items
    error = np.sqrt(counts @ (difference - mean) ** 2)
    gap = num_items * mean + penalty
    return bool(gap <= NEAR * error)


def label_warnings(change: float) -> list[str]:
    """What to say about the share of labels that change between optima that fit about as well."""
    if change <= UNSTABLE:
        return []
    return [f"the labels are weakly identified: {change:.0%} of them change at another optimum that fits about as well"]
