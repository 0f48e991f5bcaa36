"""Groups of voters: by spectral clustering, and by the correlations of a tree."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg

from latentens.methods.moments import Matrix, Vector, complete_blocks, leading_vector
from latentens.runtime.parallel import stop_if_asked
from latentens.votes.agreement import PairMoments

Groups = Int[np.ndarray, " voter"]
"""The group of each voter, 0 … number of groups − 1."""


def group_scores(
    covariance: Matrix, generator: np.random.Generator, most_terms: int = 2**28
) -> Float[np.ndarray, "voter voter"]:
    """S_ij = Σ_{k≠l∉{i,j}} |r_ij r_kl − r_il r_kj|: high where i and j belong to one group, zero on the diagonal.

    Args:
        covariance: Covariances of the votes.
        generator: Draws the voters k and l if not all are used.
        most_terms: Approximate limit on the number of terms; with more than 128 voters, k and l run over a random
            subset.
    """
    num_voters = len(covariance)
    off_diagonal = covariance - np.diag(np.diag(covariance))
    num_references = min(num_voters, int(np.sqrt(most_terms)) // num_voters)
    references = np.sort(generator.choice(num_voters, num_references, replace=False))
    among = off_diagonal[np.ix_(references, references)]
    towards = off_diagonal[:, references]
    scores = np.zeros((num_voters, num_voters))
    for i, (row, against) in enumerate(zip(off_diagonal, towards, strict=True)):
        terms = row[i:, None, None] * among
        terms -= towards[i:, :, None] * against
        scores[i, i:] = scores[i:, i] = np.abs(terms, out=terms).sum(axis=(1, 2))
    # the sums above run over all k, l: subtract those with k = l and those with k = j or l = i
    touched = np.zeros(num_voters)
    touched[references] = np.abs(among).sum(axis=1)
    is_reference = np.isin(np.arange(num_voters), references)
    both = np.outer(is_reference, is_reference)
    size = np.abs(off_diagonal)
    scores += -np.abs(towards) @ np.abs(towards).T - size * (touched[:, None] + touched) + both * size**2
    return np.maximum(scores - np.diag(np.diag(scores)), 0.0)


def candidate_groups(
    scores: Float[np.ndarray, "voter voter"], most: int, restarts: int, generator: np.random.Generator
) -> list[Groups]:
    """Spectral clusterings of the voters into 3, 4, … groups, and each voter alone.

    Args:
        scores: What `group_scores` gives.
        most: Largest number of groups to try, beside each voter alone.
        restarts: Starts of k-means.
        generator: Seeds k-means.
    """
    num_voters = len(scores)
    degree = scores.sum(axis=1)
    shrink = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1.0)), 0.0)
    laplacian = np.diag((degree > 0).astype(float)) - shrink[:, None] * scores * shrink
    vectors = linalg.eigh(laplacian)[1]
    found = [np.arange(num_voters)]
    for num_groups in range(3, min(most, num_voters - 1) + 1):
        stop_if_asked()
        points = vectors[:, :num_groups]
        if len(np.unique(points.round(9), axis=0)) >= num_groups:
            found.append(k_means(points, num_groups, restarts, generator))
    return found


def k_means(
    points: Float[np.ndarray, "voter dimension"], num_groups: int, restarts: int, generator: np.random.Generator
) -> Groups:
    """The best of several k-means clusterings, all starts (k-means++, Arthur & Vassilvitskii 2007) side by side.

    There are a few hundred points at most, too few to be worth the import of a library.

    Args:
        points: The points.
        num_groups: Number of groups; there are as many distinct points at least.
        restarts: Number of starts.
        generator: Draws the starts.
    """
    chosen = generator.integers(len(points), size=(restarts, 1))
    while chosen.shape[1] < num_groups:
        nearest = _squared_distances(points, points[chosen]).min(axis=2)
        reach = np.cumsum(nearest, axis=1)
        drawn = (reach < generator.random((restarts, 1)) * reach[:, -1:]).sum(axis=1)
        chosen = np.column_stack([chosen, drawn.clip(max=len(points) - 1)])
    centres, groups = points[chosen], np.full((restarts, len(points)), -1)
    while True:
        stop_if_asked()
        distances = _squared_distances(points, centres)
        moved = distances.argmin(axis=2)
        if np.array_equal(moved, groups):
            best = distances.min(axis=2).sum(axis=1).argmin()
            return groups[best]
        groups = moved
        members = groups[:, :, None] == np.arange(num_groups)
        sizes = members.sum(axis=1)
        means = np.einsum("rpg,pd->rgd", members, points) / np.maximum(sizes, 1)[:, :, None]
        # a group that has lost all its points begins anew at the point that is farthest from its centre
        farthest = points[distances.min(axis=2).argmax(axis=1)]
        centres = np.where(sizes[:, :, None] > 0, means, farthest[:, None])


def _squared_distances(
    points: Float[np.ndarray, "voter dimension"], centres: Float[np.ndarray, "start group dimension"]
) -> Float[np.ndarray, "start voter group"]:
    return ((points[:, None] - centres[:, None]) ** 2).sum(axis=-1)


def group_residual(covariance: Matrix, groups: Groups) -> float:
    """The squared distance of the covariances from a tree: rank one across groups, and rank one inside each."""
    completed = complete_blocks(covariance, groups)
    across = groups[:, None] != groups
    residual = _rank_one_residual(completed, across)
    for members in large_groups(groups):
        inside = complete_blocks(covariance[np.ix_(members, members)], np.arange(len(members)))
        residual += _rank_one_residual(inside, ~np.eye(len(members), dtype=bool))
    return residual


def large_groups(groups: Groups) -> list[Int[np.ndarray, " member"]]:
    """The members of each group of more than two."""
    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    return [voters for voters in members if len(voters) > 2]


def _rank_one_residual(completed: Matrix, counted: np.ndarray) -> float:
    vector = leading_vector(completed)
    difference = np.trace(completed) * np.outer(vector, vector) - completed
    return float((difference[counted] ** 2).sum())


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


def refined(
    moments: PairMoments,
    groups: Groups,
    *,
    most_moves: int = 2,
    least_gain: float = 1e-9,
    rounds: int = 30,
    rounds_between: int = 5,
) -> TreeCorrelations:
    """The tree of least loss that can be reached by moving single voters; no group is emptied.

    Args:
        moments: Of the pairs.
        groups: Groups to begin with.
        most_moves: Average number of times a voter may change its group.
        least_gain: Share of the loss below which a move gains nothing.
        rounds: Rounds of alternating least squares at the start and at the end.
        rounds_between: Rounds after a voter has changed its group.
    """
    correlation, weights = _correlations(moments)
    groups, everyone = groups.copy(), np.arange(len(groups))
    vector = leading_vector(correlation)
    loads = vector * np.sqrt(max(vector @ correlation @ vector, 0.0))
    links, refit = np.full(groups.max() + 1, 0.8), rounds
    for _ in range(most_moves * len(groups) + 1):
        loads, links = _least_squares(correlation, weights, groups, loads, links, refit)
        losses = _losses(correlation, weights, groups, loads, links)
        gains = losses[everyone, groups][:, None] - losses
        gains[np.bincount(groups)[groups] == 1] = 0.0
        voter, group = np.unravel_index(gains.argmax(), gains.shape)
        if gains[voter, group] <= least_gain * losses[voter, groups[voter]]:
            break
        groups[voter], refit = group, rounds_between
    loads, links = _least_squares(correlation, weights, groups, loads, links, rounds)
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
    """The weighted least-squares slope through the origin; `otherwise` without information."""
    weighted = weight * known
    size = weighted @ known
    return float(weighted @ target / size) if size > 0 else otherwise


def _losses(correlation: Matrix, weights: Matrix, groups: Groups, loads: Vector, links: np.ndarray) -> np.ndarray:
    """The residual of each voter's correlations if it were in each group, at its least-squares load there."""
    left = np.empty((len(groups), len(links)))
    total = (weights * correlation**2).sum(axis=1)
    for group in range(len(links)):
        expected = np.where(groups == group, 1.0, links[group] * links[groups]) * loads
        matched, size = (weights * correlation) @ expected, weights @ expected**2
        left[:, group] = total - np.divide(matched**2, size, out=np.zeros_like(size), where=size > 0)
    return left
