"""Identifiability of the labels: by the views of a program, and by other optima that fit about as well."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from latentens.votes import Votes
from latentens.votes.labels import Names

NEAR = 2.0
"""An optimum fits about as well as the best one if it is behind by at most this many standard errors."""

UNSTABLE = 0.02
"""A larger share of changed labels is reported."""


Counts = Int[np.ndarray, " row"] | Float[np.ndarray, " row"]


class Labelling(NamedTuple):
    """The log-likelihood and the labels of rows of votes at an optimum."""

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

    The gap is the difference of the log-likelihoods plus a penalty. With one nat for each extra parameter it is that of
    AIC, the expected difference on new items. Its standard error is that of the difference over items, which the
    bootstrap would give (Vuong 1989). A penalty that grows with the number of items, as that of BIC, would reject
    larger models however well they predict.

    Args:
        best: The log-likelihood of each row of votes at the best optimum.
        other: The same at the other one.
        counts: Number of items of each row.
        penalty: Evidence against the other one, in nats, such as its extra parameters or a prior that prefers the
            best; negative if in its favour.
    """
    num_items = counts.sum()
    difference = best - other
    mean = counts @ difference / num_items
    error = np.sqrt(counts @ (difference - mean) ** 2)
    gap = num_items * mean + penalty
    return bool(gap <= NEAR * error)


def label_warnings(change: float) -> list[str]:
    """A warning if many labels change between optima that fit about as well."""
    if change <= UNSTABLE:
        return []
    return [f"the labels are weakly identified: {change:.0%} of them change at another optimum that fits about as well"]


View = Float[np.ndarray, "label outcome"]
"""The distribution of a part of the votes, or of a hidden unit above it, given each label."""

VIEWS_NEEDED = 3


def group_warnings(votes: Votes, most: float = 1 / 3) -> list[str]:
    """Warnings if a second common factor explains much of the voters' agreement.

    The label is taken from the first. The votes alone do not determine which of the two is the label, and every method
    can be confidently wrong about it. Sparse votes are not tested: too few pairs of voters have items in common.

    Args:
        votes: The votes.
        most: A second factor of more than this, relative to the first, is reported. For three groups of five voters
            it is a third if agreement between groups is .28 times that within.
    """
    if votes.is_sparse or (share := votes.second_factor) <= most:
        return []
    return [
        f"voters split into opposing groups: a second common factor explains {share:.2f} times as much of their "
        "agreement as the factor taken for the label, and the votes do not determine which of the two is the label"
    ]


def identification_warnings(
    views: Sequence[View], shares: Float[np.ndarray, " label"], num_items: int, class_names: Names
) -> list[str]:
    """Warnings about pairs of classes that too few views distinguish; empty if all are identified.

    Args:
        views: The views of a fitted program.
        shares: The share of each class; classes of hardly any items are ignored.
        num_items: Number of items.
        class_names: Names of the classes.
    """
    words = []
    outcomes = np.concatenate(views, axis=1)
    starts = np.cumsum([0, *(view.shape[1] for view in views[:-1])])
    for first, second in combinations(np.flatnonzero(shares > UNSTABLE).tolist(), 2):
        differs = _differs(outcomes[[first, second]], num_items * shares[[first, second]])
        telling = int(np.logical_or.reduceat(differs, starts).sum())
        if telling < VIEWS_NEEDED:
            words.append(f"{class_names[first]} from {class_names[second]} ({telling} of {len(views)})")
    if not words:
        return []
    more = f", and {len(words) - 3} other pairs of classes" if len(words) > 3 else ""
    return [
        f"the label is not identified: fewer than {VIEWS_NEEDED} independent voters or groups of voters "
        f"distinguish {'; '.join(words[:3])}{more}, so that other labels explain the votes equally well"
    ]


def _differs(
    pair: Float[np.ndarray, "two outcome"], numbers: Float[np.ndarray, " two"]
) -> Bool[np.ndarray, " outcome"]:
    """Whether each outcome is clearly more frequent in one of two classes, seen on these numbers of items."""
    mean = numbers @ pair / numbers.sum()
    variance = mean * (1 - mean) * np.sum(1 / numbers)
    return (pair[0] - pair[1]) ** 2 > NEAR**2 * variance
