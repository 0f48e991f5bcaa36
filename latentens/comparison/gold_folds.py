"""Gold labels as a test: each is predicted by a fit that has seen the others, but not this one."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from latentens.errors import LatentensError
from latentens.methods.base import GoldCodes, Method, Posterior, fit_known
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes

GOLD_FOLDS = 5
"""Parts into which gold labels are split unless the user says otherwise."""


class HeldOut(NamedTuple):
    """What fits say about gold labels that they have not seen, one row for each gold label in the order of the items.

    Attributes:
        fold: The fold of each gold label.
        probs: Its posterior by the fit to the labels of the other folds.
    """

    fold: Int[np.ndarray, " known"]
    probs: Posterior

    def put_into(self, probs: Posterior, gold: GoldCodes) -> Posterior:
        """A posterior of all items in which those with a gold label have the one by a fit that has not seen it."""
        scored = np.array(probs)
        scored[gold >= 0] = self.probs
        return scored


def held_out(method: Method, votes: Votes, gold: GoldCodes, folds: int, key: jax.Array) -> HeldOut:
    """Predict every gold label by a fit to the votes and to the gold labels of the other folds.

    The votes of all items are seen by every fit. Fits have the key of the fit to all gold labels, so that a method
    for which these make no difference gives the same posterior in every fold.

    Args:
        method: The method.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
        folds: Number of folds, or fewer where there are fewer gold labels.
        key: Random key of the fits and of the folds.
    """
    fold = gold_fold(gold, folds, key)
    known = gold >= 0
    found = np.empty((int(known.sum()), votes.num_classes))
    for number in range(int(fold.max()) + 1):
        hidden = fold == number
        probs = fit_known(method, votes, key, np.where(hidden, -1, gold)).label_probs
        found[hidden[known]] = probs[hidden]
    return HeldOut(fold[known], found)


def gold_fold(gold: GoldCodes, folds: int, key: jax.Array) -> Int[np.ndarray, " item"]:
    """The fold of each gold label, −1 for items without one.

    Folds are of equal size, and so are the parts of each class in them, up to one label; which label is in which is
    drawn at random.
    """
    if folds < 2:
        raise LatentensError(f"gold labels are split into at least two folds, not {folds}")
    known = np.flatnonzero(gold >= 0)
    shuffled = numpy_generator(key).permutation(known)
    by_class = shuffled[np.argsort(gold[shuffled], kind="stable")]
    fold = np.full(len(gold), -1)
    fold[by_class] = np.arange(len(known)) % min(folds, len(known))
    return fold
