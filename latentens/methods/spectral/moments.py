"""Moments of two-class votes f = 2x − 1 ∈ {−1, 1}, and what conditional independence says about them.

Off the diagonal the covariance is R = v vᵀ with v_i = (ψ_i + η_i − 1) √(1 − b²), ψ_i and η_i being sensitivity and
specificity and b = P(y=1) − P(y=0); the third central moments are −2b/√(1 − b²) · v_i v_j v_k.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg, sparse

from latentens.methods.indicator import BlockedIndicator, Indicator, vote_indicator
from latentens.runtime.blocks import row_blocks
from latentens.runtime.limits import check_memory
from latentens.votes import Votes

Vector = Float[np.ndarray, " voter"]
Matrix = Float[np.ndarray, "voter voter"]
Column = Float[np.ndarray, "value 1"]
SignedVotes = Float[np.ndarray, "row voter"] | sparse.csr_array

RATE_BOUNDS = 0.01, 0.99
"""Estimated sensitivities and specificities are kept within these."""


class VoteMoments(NamedTuple):
    """First and second moments; of a pair of voters over the items on which both voted."""

    mean: Vector
    covariance: Matrix


class Products(NamedTuple):
    """Sums over items of products of some voters' columns and all voters' columns."""

    together: Float[np.ndarray, "some voter"]
    """On how many items both voted."""
    signed: Float[np.ndarray, "some voter"]
    sums: Float[np.ndarray, "some voter"]
    """Of the one's votes on the items on which the other voted too."""
    others: Float[np.ndarray, "some voter"]
    """Of the other's votes on the items on which the one voted too."""


class Rates(NamedTuple):
    """Estimated parameters of each voter."""

    sensitivity: Vector
    specificity: Vector


def signed_votes(indicator: Indicator) -> tuple[SignedVotes, SignedVotes]:
    """f, zero where a vote is missing, and whether the vote was cast."""
    zero, one = indicator[:, 0::2], indicator[:, 1::2]
    return one - zero, one + zero


def vote_moments(votes: Votes) -> VoteMoments:
    """Means and pairwise-complete covariances; zero for a pair with fewer than two items in common."""
    check_memory(
        8.0 * 4 * votes.num_voters**2,
        f"the covariances of {votes.num_voters:,} voters",
        "use a method that does without them, such as DawidSkeneEM",
    )
    means, rows = zip(*_moments_by_voters(votes), strict=True)
    return VoteMoments(np.concatenate(means), np.concatenate(rows))


def sparse_moments(votes: Votes) -> tuple[Vector, sparse.csr_array]:
    """The same with the covariances as a sparse matrix, for many voters few of whom share items."""
    means, rows = zip(*((mean, sparse.csr_array(block)) for mean, block in _moments_by_voters(votes)), strict=True)
    return np.concatenate(means), sparse.vstack(rows, format="csr")


def _moments_by_voters(votes: Votes) -> Iterator[tuple[Vector, Float[np.ndarray, "some voter"]]]:
    """Means of some voters and their covariances with all, for one lot of voters after the other."""
    if not votes.is_sparse:
        yield _moments(_row_products(votes), np.arange(votes.num_voters))
        return
    rows, counts, _ = votes.patterns
    signed, cast = signed_votes(vote_indicator(rows, 2))
    weights = sparse.diags_array(counts.astype(np.float64))
    of_voter = [array if isinstance(array, np.ndarray) else array.tocsc() for array in (signed, cast)]
    for some in row_blocks(votes.num_voters, votes.num_voters):
        some_signed, some_cast = ((weights @ array[:, some]).T for array in of_voter)
        pairs = (some_cast, cast), (some_signed, signed), (some_signed, cast), (some_cast, signed)
        yield _moments(Products(*(_dense(left @ right) for left, right in pairs)), np.arange(votes.num_voters)[some])


def _row_products(votes: Votes) -> Products:
    """Sums over items of products of two voters' columns, cast or signed, block by block of the rows."""
    rows, counts, _ = votes.patterns
    indicator, size = BlockedIndicator(rows, 2), votes.num_voters
    together, products, sums = (np.zeros((size, size)) for _ in range(3))
    for block in row_blocks(rows.num_items, 4 * size):
        signed, cast = map(_dense, signed_votes(indicator[block]))
        weight = counts[block, None].astype(np.float64)
        weighted = signed * weight
        products += weighted.T @ signed
        sums += weighted.T @ cast
        together += (cast * weight).T @ cast
    return Products(together, products, sums, sums.T)


def _moments(products: Products, voters: Int[np.ndarray, " some"]) -> tuple[Vector, Float[np.ndarray, "some voter"]]:
    """Means of some voters and their covariances with all."""
    together, signed, sums, others = products
    centred = signed - sums * others / np.maximum(together, 1)
    covariance = np.where(together > 1, centred / np.maximum(together - 1, 1), 0.0)
    own = np.arange(len(voters)), voters
    return sums[own] / np.maximum(together[own], 1), covariance


def _dense(
    array: np.ndarray | sparse.csr_array | sparse.csc_array | sparse.bsr_array,
) -> Float[np.ndarray, "some voter"]:
    return array if isinstance(array, np.ndarray) else array.toarray()


def complete_blocks(covariance: Matrix, groups: Int[np.ndarray, " voter"]) -> Matrix:
    """Replace the covariances inside groups, diagonal included, by what the rest implies under rank one.

    r_ij = Σ r_ik r_kl r_lj / Σ r_kl² over k, l outside the group and in different groups; zero where the sum below
    is. With one voter a group this is the least-squares completion of the diagonal.
    """
    same = groups[:, None] == groups[None, :]
    across = np.where(same, 0.0, covariance)
    touching = np.zeros(groups.max() + 1)
    np.add.at(touching, groups, (across**2).sum(axis=1))
    below = (across**2).sum() - 2 * touching[groups]
    # the difference is rounding noise where nothing is left outside the group
    usable = below > 1e-12 * max((across**2).sum(), np.finfo(float).tiny)
    if len(touching) == len(groups):  # with one voter a group only the diagonal is asked for
        cube = np.diag(np.einsum("ij,ij->i", across @ across, across))
    else:
        cube = across @ across @ across
    implied = cube / np.where(usable, below, 1.0)[:, None]
    return np.where(same, np.where(usable[:, None], implied, 0.0), covariance)


def leading_vector(matrix: Matrix) -> Vector:
    """The unit eigenvector of the largest algebraic eigenvalue."""
    last = len(matrix) - 1
    return linalg.eigh(matrix, subset_by_index=(last, last))[1][:, 0]


def scale_of(vector: Vector, covariance: Matrix, groups: Int[np.ndarray, " voter"]) -> float:
    """C = ⟨vvᵀ, R⟩ / ⟨vvᵀ, vvᵀ⟩ over pairs from different groups; C ≤ 0 means that there is no structure."""
    outer = np.where(groups[:, None] == groups[None, :], 0.0, np.outer(vector, vector))
    below = (outer**2).sum()
    return float((outer * covariance).sum() / below) if below > 0 else 0.0


def rates_at(imbalance: float | Column, mean: Vector, vector: Vector) -> Rates:
    """ψ = ½(1 + μ + v√((1−b)/(1+b))) and η = ½(1 − μ + v√((1+b)/(1−b))) at class imbalance b, within bounds.

    At a column of several values of b, rates have a row for each.
    """
    ratio = np.sqrt((1 - imbalance) / (1 + imbalance))
    sensitivity = (1 + mean + vector * ratio) / 2
    specificity = (1 - mean + vector / ratio) / 2
    return Rates(np.clip(sensitivity, *RATE_BOUNDS), np.clip(specificity, *RATE_BOUNDS))


def published_rates_at(imbalance: float | Column, mean: Vector, vector: Vector) -> Rates:
    """Rates as the published code has them while it searches for b: v/(1 − b²) in place of v/√(1 − b²)."""
    accuracy = vector / (1 - imbalance**2)
    balanced, half_difference = (1 + accuracy) / 2, (mean - accuracy * imbalance) / 2
    sensitivity, specificity = balanced + half_difference, balanced - half_difference
    return Rates(np.clip(sensitivity, *RATE_BOUNDS), np.clip(specificity, *RATE_BOUNDS))
