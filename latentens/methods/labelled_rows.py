"""Distinct rows of votes together with the true labels that are known for some of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentens.methods.base import GoldCodes
from latentens.votes import Votes


class LabelledRows(NamedTuple):
    """Distinct rows, told apart by their known label too.

    Attributes:
        votes: The rows.
        counts: How often each occurs.
        inverse: The row of each item.
        gold: The known label of each row, −1 where it is unknown.
    """

    votes: Votes
    counts: Int[np.ndarray, " row"]
    inverse: Int[np.ndarray, " item"]
    gold: Int[np.ndarray, " row"]

    @property
    def log_allowed(self) -> Float[np.ndarray, "row label"]:
        """Zero where a row can have a label, −∞ where a known label rules it out."""
        possible = (self.gold[:, None] < 0) | (self.gold[:, None] == np.arange(self.votes.num_classes))
        return np.where(possible, 0.0, -np.inf)


def labelled_rows(votes: Votes, gold: GoldCodes | None) -> LabelledRows:
    """The distinct rows of votes, those with a known label apart from those without."""
    rows, counts, inverse = votes.patterns
    if gold is None:
        return LabelledRows(rows, counts, inverse, np.full(len(counts), -1))
    pair = inverse.astype(np.int64) * (votes.num_classes + 1) + gold + 1
    pairs, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    row, label = np.divmod(pairs, votes.num_classes + 1)
    return LabelledRows(rows.take(row), counts, inverse, label - 1)
