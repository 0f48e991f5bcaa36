"""Rows of votes as methods use them: laid out for matrix products, taken once each, refused if unfit."""

from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar

import numpy as np
from jaxtyping import Float
from scipy import sparse

from latentens.errors import VotesError
from latentens.methods.base import Estimate, Predictor
from latentens.votes import Votes

Owner = TypeVar("Owner", bound=Predictor)

Indicator = Float[np.ndarray, "row voter_vote"] | sparse.csr_array
"""One where the voter cast the vote; a missing vote is all zeros. Either kind of array takes part in `@`."""

DENSE_ELEMENTS = 2**25
"""Votes that are stored as a matrix become a dense indicator if it has at most this many elements."""


def vote_indicator(votes: Votes, num_classes: int) -> Indicator:
    """The votes as an indicator matrix, dense where that is affordable."""
    width = votes.num_voters * num_classes
    if not votes.is_sparse and votes.num_items * width <= DENSE_ELEMENTS:
        return (votes.matrix[:, :, None] == np.arange(num_classes)).reshape(-1, width).astype(np.float64)
    item, voter, vote = votes.triplets
    columns = voter * np.int32(num_classes) + vote
    return sparse.csr_array((np.ones(len(item)), columns, votes.bounds), shape=(votes.num_items, width))


class BlockedIndicator:
    """An indicator matrix of which blocks of rows are asked for; made anew each time where all of it is too large."""

    def __init__(self, votes: Votes, num_classes: int) -> None:
        self.votes, self.num_classes = votes, num_classes
        elements = votes.num_items * votes.num_voters * num_classes
        kept = votes.is_sparse or elements <= DENSE_ELEMENTS
        self.whole = vote_indicator(votes, num_classes) if kept else None

    def __getitem__(self, block: slice) -> Indicator:
        if self.whole is not None:
            return self.whole[block]
        return vote_indicator(self.votes.between(block.start, block.stop), self.num_classes)


def require_two_classes(votes: Votes, method: object) -> None:
    """Refuse votes for more than two classes."""
    if votes.num_classes != 2:
        raise VotesError(
            f"{type(method).__name__} is for two classes, but the votes have {votes.num_classes}: "
            "use DawidSkeneEM or Ebcc, or ask one class against the rest"
        )


def in_blocks(
    predict: Callable[[Owner, Estimate, Votes], np.ndarray],
) -> Callable[[Owner, Estimate, Votes], np.ndarray]:
    """Let a method's `_predict` or `_log_likelihood` see some rows at a time, which bounds its memory."""

    @wraps(predict)
    def blocked(self: Owner, estimate: Estimate, votes: Votes) -> np.ndarray:
        return by_blocks(partial(predict, self, estimate), votes)

    return blocked


def by_blocks(function: Callable[[Votes], np.ndarray], rows: Votes) -> np.ndarray:
    """What a function says about each row, asked about some rows at a time to bound its memory."""
    return np.concatenate([function(block) for _, block in rows.blocks()])
