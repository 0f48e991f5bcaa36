"""What panels of independent voters say about the label: the measure that dependent voters are held against."""

from functools import lru_cache

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from latentens.runtime.numerics import SMALLEST, entropy, safe_log
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes

SIMULATED_ITEMS = 10_000
"""Items behind each mean over rows of votes, where these are too many to be enumerated."""

MOST_ROWS = 2**16
"""Up to this many possible rows of votes are enumerated."""

ROUNDING = 1e-9
"""Information that differs by less, in nats, is the same."""

ORDERS = 64
"""Random orders of the voters behind the information of panels of a few."""

MORE_VOTERS = 2
"""Panels of up to this many times the number of voters are compared with them."""


def is_enumerable(num_voters: int, num_classes: int) -> bool:
    """Whether all rows of votes that are possible can be written down."""
    return num_classes**num_voters <= MOST_ROWS


@lru_cache(maxsize=4)
def every_row(num_voters: int, num_classes: int) -> Votes:
    """All rows of votes that are possible."""
    rows = np.indices((num_classes,) * num_voters).reshape(num_voters, -1).T
    return Votes.from_matrix(rows, num_classes=num_classes)


def panel_curve(
    shares: Float[np.ndarray, " label"],
    confusion: Float[np.ndarray, "voter label vote"],
    information: float,
    key: jax.Array,
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … independent voters, up to that of the given ones.

    Args:
        shares: Probabilities of the labels.
        confusion: Confusion matrices of the voters that panels are drawn from.
        information: As far as the curve is wanted; beyond all voters it is only simulated.
        key: Random key of the panels.
    """
    few = is_enumerable(len(confusion), len(shares))
    curve = subset_information(shares, confusion, key) if few else np.zeros(1)
    if information <= curve[-1] + ROUNDING:
        return curve
    panels = panel_information(shares, confusion, MORE_VOTERS * len(confusion), key)
    scale = curve[-1] / max(panels[len(confusion)], SMALLEST) if few else 1.0
    return np.concatenate([curve, scale * panels[len(curve) :]])


def subset_information(
    shares: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"], key: jax.Array
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … all of a few independent voters.

    That of a subset is exact. Its mean over all subsets of a size is estimated from those that begin random orders of
    the voters. Some of these have better voters than others, which the sum of the information of single voters tells,
    and the mean of that sum is known.
    """
    alone = np.array([_information(_with_voter(shares[None], rates)) for rates in confusion])
    generator = numpy_generator(key)
    orders = np.stack([generator.permutation(len(confusion)) for _ in range(ORDERS)])
    joined = np.array([_nested_information(shares, confusion[order]) for order in orders])
    sums = np.cumsum(alone[orders], axis=1)
    surplus = sums - alone.mean() * np.arange(1, len(alone) + 1)
    spread = np.mean((sums - sums.mean(axis=0)) ** 2, axis=0)
    shared = np.mean((sums - sums.mean(axis=0)) * (joined - joined.mean(axis=0)), axis=0)
    slope = np.where(spread > SMALLEST, shared / np.where(spread > SMALLEST, spread, 1.0), 0.0)
    return np.concatenate([[0.0], joined.mean(axis=0) - slope * surplus.mean(axis=0)])


def _nested_information(
    shares: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"]
) -> list[float]:
    """Of the first voter, of the first two, …, by enumeration of their votes."""
    joint, found = shares[None], []
    for rates in confusion:
        joint = _with_voter(joint, rates)
        found.append(_information(joint))
    return found


def _with_voter(
    joint: Float[np.ndarray, "row label"], rates: Float[np.ndarray, "label vote"]
) -> Float[np.ndarray, "longer label"]:
    """The joint distribution of label and votes with the votes of one voter more."""
    return (joint[:, None] * rates.T[None]).reshape(-1, joint.shape[1])


def _information(joint: Float[np.ndarray, "row label"]) -> float:
    """Mutual information of rows and columns of a table of probabilities."""
    return float(entropy(joint.sum(axis=0)) + entropy(joint.sum(axis=1)) - entropy(joint.ravel()))


def panel_information(
    shares: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"], most: int, key: jax.Array
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … `most` independent voters.

    They are drawn without replacement, and once more from all when all are in the panel.
    """
    generator = numpy_generator(key)
    labels = generator.choice(len(shares), SIMULATED_ITEMS, p=shares / shares.sum())
    everyone = np.tile(np.arange(len(confusion)), (SIMULATED_ITEMS, 1))
    rounds = [generator.permuted(everyone, axis=1) for _ in range(-(-most // len(confusion)))]
    voters = np.concatenate(rounds, axis=1)[:, :most]
    cumulative = confusion[voters, labels[:, None]].cumsum(axis=2)
    votes = (generator.random((SIMULATED_ITEMS, most, 1)) > cumulative[..., :-1]).sum(axis=2)
    says = safe_log(confusion.transpose(0, 2, 1)[voters, votes]).cumsum(axis=1)
    posterior = softmax(safe_log(shares) + says, axis=2)
    return np.concatenate([[0.0], entropy(shares) - entropy(posterior).mean(axis=0)])
