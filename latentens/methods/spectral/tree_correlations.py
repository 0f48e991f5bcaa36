"""Groups of voters by least squares: correlations of votes as a tree of opinions has them, any number of classes.

Voters i and j of groups g and h have the correlation u_i u_j if g = h, and u_i u_j c_g c_h if not: each follows the
opinion of its group, and opinions are related through the label alone.
"""

from typing import NamedTuple

import numpy as np

from latentens.methods.spectral.moments import Matrix, Vector, leading_vector
from latentens.methods.spectral.voter_groups import Groups
from latentens.votes.agreement import PairMoments

ROUNDS, ROUNDS_BETWEEN = 30, 5
"""Rounds of alternating least squares, at the ends and after a voter has changed its group."""

MOST_MOVES = 2
"""Voters change groups at most so many times each, on average."""

LEAST_GAIN = 1e-9
"""Share of the loss below which a move gains nothing."""


class TreeCorrelations(NamedTuple):
    """A tree's correlations: the groups of voters, each one's u and each group's c, and the loss."""

    groups: Groups
    loads: Vector
    links: np.ndarray
    loss: float


def best_groups(moments: PairMoments, candidates: list[Groups], num_items: int) -> Groups:
    """The groups whose tree fits the correlations best, each group at the price of BIC for its link.

    The loss is a sum of squares of correlations, whose variance is about 1 over the number of items.

    Args:
        moments: Of the pairs.
        candidates: Groups to begin with; voters change over to others where that fits better.
        num_items: Number of items.
    """
    found = [refined(moments, groups) for groups in candidates]
    return min(found, key=lambda tree: tree.loss + len(tree.links) * np.log(num_items)).groups


def refined(moments: PairMoments, groups: Groups) -> TreeCorrelations:
    """The tree of least loss that moves of single voters reach; no group is emptied."""
    correlation, weights = _correlations(moments)
    groups, everyone = groups.copy(), np.arange(len(groups))
    vector = leading_vector(correlation)
    loads = vector * np.sqrt(max(vector @ correlation @ vector, 0.0))
    links, rounds = np.full(groups.max() + 1, 0.8), ROUNDS
    for _ in range(MOST_MOVES * len(groups) + 1):
        loads, links = _least_squares(correlation, weights, groups, loads, links, rounds)
        losses = _losses(correlation, weights, groups, loads, links)
        gains = losses[everyone, groups][:, None] - losses
        gains[np.bincount(groups)[groups] == 1] = 0.0
        voter, group = np.unravel_index(gains.argmax(), gains.shape)
        if gains[voter, group] <= LEAST_GAIN * losses[voter, groups[voter]]:
            break
        groups[voter], rounds = group, ROUNDS_BETWEEN
    loads, links = _least_squares(correlation, weights, groups, loads, links, ROUNDS)
    residual = correlation - _links(groups, links) * np.outer(loads, loads)
    return TreeCorrelations(groups, loads, links, float((weights * residual**2).sum() / 2))


def _correlations(moments: PairMoments) -> tuple[Matrix, Matrix]:
    """Correlations, and the weight of each: on how many items it rests; both zero on the diagonal."""
    spread = np.sqrt(np.maximum(np.diag(moments.covariance), 0.0))
    scale = np.outer(spread, spread)
    correlation = np.divide(moments.covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    others = 1.0 - np.eye(len(correlation))
    return correlation * others, moments.together * others


def _links(groups: Groups, links: np.ndarray) -> Matrix:
    """1 for voters of one group, c_g c_h for others."""
    own = links[groups]
    return np.where(groups[:, None] == groups, 1.0, np.outer(own, own))


def _least_squares(
    correlation: Matrix, weights: Matrix, groups: Groups, loads: Vector, links: np.ndarray, rounds: int
) -> tuple[Vector, np.ndarray]:
    """Alternating least squares: each load given all else, then each link."""
    loads, links = loads.copy(), links.copy()
    for _ in range(rounds):
        related = _links(groups, links)
        for voter, (row, weight, relation) in enumerate(zip(correlation, weights, related, strict=True)):
            loads[voter] = _slope(relation * loads, row, weight, loads[voter])
        for group in range(len(links)):
            inside = groups == group
            block = np.ix_(inside, ~inside)
            expected = np.outer(loads[inside], (loads * links[groups])[~inside])
            found = _slope(expected.ravel(), correlation[block].ravel(), weights[block].ravel(), links[group])
            links[group] = np.clip(found, -1.0, 1.0)
    return loads, links


def _slope(known: np.ndarray, target: np.ndarray, weight: np.ndarray, otherwise: float) -> float:
    """The weighted least-squares slope through the origin; what it was where nothing is known."""
    weighted = weight * known
    size = weighted @ known
    return float(weighted @ target / size) if size > 0 else otherwise


def _losses(correlation: Matrix, weights: Matrix, groups: Groups, loads: Vector, links: np.ndarray) -> np.ndarray:
    """What is left of each voter's correlations if it were in each group, with the load that suits it there."""
    left = np.empty((len(groups), len(links)))
    total = (weights * correlation**2).sum(axis=1)
    for group in range(len(links)):
        expected = np.where(groups == group, 1.0, links[group] * links[groups]) * loads
        matched, size = (weights * correlation) @ expected, weights @ expected**2
        left[:, group] = total - np.divide(matched**2, size, out=np.zeros_like(size), where=size > 0)
    return left
