"""Are the labels identified? Whether they stay the same at other optima that fit the votes about as well.

Where a program is only about right, a small difference in likelihood between two optima says nothing about which label
is the right one. What counts as small is told by the items themselves: the difference is a sum over items, and its
standard error is what it would vary by if the items were drawn again.
"""

import numpy as np
from jaxtyping import Float, Int

NEAR = 2.0
"""An optimum fits about as well as the best one if it is behind by at most this many standard errors."""

UNSTABLE = 0.02
"""More than this share of changed labels is reported."""


def fits_about_as_well(
    best: Float[np.ndarray, " row"],
    other: Float[np.ndarray, " row"],
    counts: Int[np.ndarray, " row"] | Float[np.ndarray, " row"],
    extra_parameters: int = 0,
) -> bool:
    """Whether one optimum is not clearly behind the best.

    The gap is that of AIC in nats: the difference of the log-likelihoods, and one for each extra parameter, which is
    what the two are expected to differ by on new items. Its standard error is that of the difference over items, which
    the bootstrap would give (Vuong 1989). A penalty that grows with the number of items, as that of BIC, would set
    larger models aside for being large, however well they predict.

    Args:
        best: The log-likelihood of each row of votes at the best optimum.
        other: The same at the other one.
        counts: Number of items of each row.
        extra_parameters: How many parameters more the other one has; negative if it has fewer.
    """
    num_items = counts.sum()
    difference = best - other
    mean = counts @ difference / num_items
    error = np.sqrt(counts @ (difference - mean) ** 2)
    gap = num_items * mean + extra_parameters
    return bool(gap <= NEAR * error)


def label_warnings(change: float) -> list[str]:
    """What to say about the share of labels that change between optima that fit about as well."""
    if change <= UNSTABLE:
        return []
    return [f"the labels are weakly identified: {change:.0%} of them change at another optimum that fits about as well"]
