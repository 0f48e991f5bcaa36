"""Do votes determine the label? Three parts of them that are independent given the label, and tell its classes apart.

A mixture of products is identified by three conditionally independent parts, or views, whose distributions differ
between its components (Kruskal 1977; Allman, Matias & Rhodes 2009). With two, other labels explain the votes as well.
So two classes are told apart by the votes only where at least three views of a program differ between them.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from latentens.inference.stability import NEAR, UNSTABLE
from latentens.votes import Votes
from latentens.votes.agreement import second_factor
from latentens.votes.names import Names

View = Float[np.ndarray, "label outcome"]
"""The distribution of a part of the votes, or of a hidden unit above it, given each label."""

VIEWS_NEEDED = 3


TWO_CAMPS = 1 / 3
"""A second factor of more than this, relative to the first, is reported. Three camps of five voters have one if they
agree with each other less than .28 times as much as within."""


def camp_warnings(votes: Votes) -> list[str]:
    """What to say where voters owe much of their agreement to a second common factor.

    A label is taken from the first. Which of the two is the label nobody can tell by votes, and every method can be
    wrong about it with much confidence. Votes of which most are missing are not asked: too few pairs have items in
    common.
    """
    if votes.is_sparse or (share := second_factor(votes)) <= TWO_CAMPS:
        return []
    return [
        f"voters form camps: a second common factor explains {share:.2f} times as much of their agreement as the one "
        "that is taken for the label, and votes alone cannot tell which of the two the label is"
    ]


def identification_warnings(
    views: Sequence[View], shares: Float[np.ndarray, " label"], num_items: int, class_names: Names
) -> list[str]:
    """What to say of classes that too few views tell apart; nothing if all are told apart.

    Args:
        views: The views of a fitted program.
        shares: The share of each class; classes of hardly any items are passed over.
        num_items: Number of items.
        class_names: Names of the classes.
    """
    words = []
    for first, second in combinations(np.flatnonzero(shares > UNSTABLE).tolist(), 2):
        telling = sum(_differs(view[[first, second]], num_items * shares[[first, second]]) for view in views)
        if telling < VIEWS_NEEDED:
            words.append(f"{class_names[first]} from {class_names[second]} ({telling} of {len(views)})")
    if not words:
        return []
    more = f", and {len(words) - 3} other pairs of classes" if len(words) > 3 else ""
    return [
        f"the label is not identified: fewer than {VIEWS_NEEDED} independent voters or groups of voters tell "
        f"{'; '.join(words[:3])}{more}, so that other labels explain the votes equally well"
    ]


def _differs(pair: Float[np.ndarray, "two outcome"], numbers: Float[np.ndarray, " two"]) -> bool:
    """Whether some outcome is clearly more frequent in one of two classes, seen on these numbers of items."""
    mean = numbers @ pair / numbers.sum()
    variance = mean * (1 - mean) * np.sum(1 / numbers)
    return bool(np.any((pair[0] - pair[1]) ** 2 > NEAR**2 * variance))
