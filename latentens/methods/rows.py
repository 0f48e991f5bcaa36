"""The check for two classes, and predictions in blocks of rows."""

from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar

import numpy as np

from latentens.errors import VotesError
from latentens.methods.base import Estimate, Predictor
from latentens.votes import Votes
from latentens.votes.layout import by_blocks

Owner = TypeVar("Owner", bound=Predictor)


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
    """Let a method's `posterior` or `log_likelihood_of` see some rows at a time, which bounds its memory."""

    @wraps(predict)
    def blocked(self: Owner, estimate: Estimate, votes: Votes) -> np.ndarray:
        return by_blocks(partial(predict, self, estimate), votes)

    return blocked
