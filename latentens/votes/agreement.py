"""How voters agree with each other: covariances of pairs, and how many common factors these have."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from latentens.votes.votes import Votes

Matrix = Float[np.ndarray, "voter voter"]


class PairMoments(NamedTuple):
    """Second moments of pairs of voters."""

    covariance: Matrix
    together: Matrix
    """On how many items both have voted."""


def agreement_moments(votes: "Votes") -> PairMoments:
    """`Σ_a Cov(1{x_i = a}, 1{x_j = a})` of each pair of voters over the items on which both voted; 0 without such.

    Votes for categories that are not labels count as missing.
    """
    votes = votes.without_other_votes()
    size, num_classes = votes.num_voters, votes.num_classes
    together, agreed = np.zeros((size, size)), np.zeros((size, size))
    alone = np.zeros((num_classes, size, size))
    counts = votes.patterns.counts
    for start, block in votes.patterns.votes.blocks():
        weight = counts[start : start + block.num_items, None]
        cast = (block.matrix >= 0).astype(float)
        together += cast.T @ (weight * cast)
        for vote in range(num_classes):
            chosen = (block.matrix == vote).astype(float)
            agreed += chosen.T @ (weight * chosen)
            alone[vote] += chosen.T @ (weight * cast)  # votes of the first on what the second voted on
    number = np.maximum(together, 1)
    expected = np.einsum("aij,aji->ij", alone / number, alone / number)
    return PairMoments(agreed / number - expected, together)


def second_factor(votes: "Votes") -> float:
    """How much of their agreement voters owe to a second common factor, relative to the first; 0 without any.

    If voters err independently given the label, covariances have rank one off the diagonal. The diagonal is completed
    by least squares; of the second eigenvalue what noise explains, the size of the most negative one, is taken off.
    """
    covariance = agreement_moments(votes).covariance
    np.fill_diagonal(covariance, 0.0)
    squares = covariance**2
    others = squares.sum() / 2 - squares.sum(axis=1)
    cubes = np.einsum("ij,ji->i", covariance @ covariance, covariance) / 2
    np.fill_diagonal(covariance, np.divide(cubes, others, out=np.zeros_like(cubes), where=others > 0))
    values = np.linalg.eigvalsh(covariance)
    if len(values) < 3 or values[-1] <= 0:
        return 0.0
    return float(max(values[-2] + min(values[0], 0.0), 0.0) / values[-1])
