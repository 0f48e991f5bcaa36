"""Moments of votes: means and covariances, dense and sparse, and the imbalance of the classes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg, sparse
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import eigsh

from latentens.runtime.blocks import row_blocks
from latentens.runtime.limits import check_memory
from latentens.votes import Votes
from latentens.votes.distinct import Patterns
from latentens.votes.layout import Indicator, vote_indicator

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


class Rates(NamedTuple):
    """Estimated parameters of each voter."""

    sensitivity: Vector
    specificity: Vector

    @classmethod
    def of(cls, confusion: Float[np.ndarray, "voter label vote"]) -> "Rates":
        """The rates of confusion matrices of two classes."""
        return cls(confusion[:, 1, 1], confusion[:, 0, 0])


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
    """`vote_moments` with the covariances as a sparse matrix, for many voters few of whom share items."""
    means, rows = zip(*((mean, sparse.csr_array(block)) for mean, block in _moments_by_voters(votes)), strict=True)
    return np.concatenate(means), sparse.vstack(rows, format="csr")


def _moments_by_voters(votes: Votes) -> Iterator[tuple[Vector, Float[np.ndarray, "some voter"]]]:
    """Means of some voters and their covariances with all, for one lot of voters after the other."""
    rows, counts, _ = votes.patterns
    signed, cast = signed_votes(vote_indicator(rows, 2))
    weights = sparse.diags_array(counts.astype(np.float64))
    by_voter = [array if isinstance(array, np.ndarray) else array.tocsc() for array in (signed, cast)]
    for some in row_blocks(votes.num_voters, votes.num_voters):
        some_signed, some_cast = ((weights @ array[:, some]).T for array in by_voter)
        # of each pair: items with votes of both, the product of these votes, and the sum of either's
        pairs = (some_cast, cast), (some_signed, signed), (some_signed, cast), (some_cast, signed)
        together, product, own, other = (_dense(left @ right) for left, right in pairs)
        centred = product - own * other / np.maximum(together, 1)
        covariance = np.where(together > 1, centred / np.maximum(together - 1, 1), 0.0)
        mean = np.diagonal(own, some.start) / np.maximum(np.diagonal(together, some.start), 1)
        yield mean, covariance


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
    if len(touching) == len(groups):  # with one voter a group only the diagonal is needed
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
    """Rates as the published code has them while it searches for b: v/(1 − b²) instead of v/√(1 − b²)."""
    accuracy = vector / (1 - imbalance**2)
    balanced, half_difference = (1 + accuracy) / 2, (mean - accuracy * imbalance) / 2
    sensitivity, specificity = balanced + half_difference, balanced - half_difference
    return Rates(np.clip(sensitivity, *RATE_BOUNDS), np.clip(specificity, *RATE_BOUNDS))


def complete_sparse_diagonal(covariance: sparse.csr_array) -> sparse.csr_array:
    """Replace the diagonal by what the rest implies under rank one: r_ii = Σ r_ij r_jk r_ki / Σ r_jk²."""
    across = _without_diagonal(covariance)
    touching = across.power(2).sum(axis=1)
    below = touching.sum() - 2 * touching
    cubes = []
    for block in row_blocks(*across.shape):
        some = across[block]
        cubes.append((some @ across).multiply(some).sum(axis=1))
    # the difference is rounding noise where nothing is left outside
    usable = below > 1e-12 * max(touching.sum(), np.finfo(float).tiny)
    implied = np.where(usable, np.concatenate(cubes) / np.where(usable, below, 1.0), 0.0)
    return sparse.csr_array(across + sparse.diags_array(implied))


def leading_sparse_vector(matrix: sparse.csr_array) -> Vector:
    """The unit eigenvector of the largest algebraic eigenvalue."""
    start = np.random.default_rng(0).normal(size=matrix.shape[0])  # any start will do, but always the same one
    return eigsh(matrix, k=1, which="LA", v0=start)[1][:, 0]


def sparse_scale_of(vector: Vector, covariance: sparse.csr_array) -> float:
    """C = ⟨vvᵀ, R⟩ / ⟨vvᵀ, vvᵀ⟩ over pairs of different voters."""
    below = (vector**2).sum() ** 2 - (vector**4).sum()
    return float(vector @ (_without_diagonal(covariance) @ vector) / below) if below > 0 else 0.0


def _without_diagonal(matrix: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array(matrix - sparse.diags_array(matrix.diagonal()))


GRID = np.arange(-99, 100) / 100

SCREENED_ROWS = 2**17
"""With at least twice this many distinct rows, a sample of this size selects the part of the grid to search."""

RatesAt = Callable[[Column], Rates]


def independent_imbalance(
    rows: Patterns, mean: Vector, vector: Vector, *, published: bool = False, half_width: float = 0.055
) -> float:
    """The b of highest likelihood of voters who are independent given the label.

    Args:
        rows: The rows of votes.
        mean: The mean of each voter's votes.
        vector: The rank-one vector v.
        published: Whether rates are those of the published code, and b a point of the grid −.99, −.98, …, .99.
        half_width: With many rows, only points this near to the best of a sample are searched: many times its standard
            error.
    """
    rates_given = partial(published_rates_at if published else rates_at, mean=mean, vector=vector)
    indicator, counts, grid = vote_indicator(rows.votes, 2), rows.counts, GRID
    if len(counts) >= 2 * SCREENED_ROWS:  # a sample tells where to look
        chosen = np.sort(np.random.default_rng(0).choice(len(counts), SCREENED_ROWS, replace=False))
        sample = vote_indicator(rows.votes.take(chosen), 2)
        rough = GRID[np.argmax(_log_likelihoods(sample, counts[chosen], GRID, rates_given))]
        grid = GRID[np.abs(GRID - rough) < half_width]
    heights_at = partial(_log_likelihoods, indicator, counts, rates_at=rates_given)
    heights = heights_at(grid)
    best = float(grid[np.argmax(heights)])
    if published:
        return best
    near = max(best - 0.01, GRID[0]), min(best + 0.01, GRID[-1])
    return highest(lambda b: float(heights_at(np.array([b]))[0]), best, near)


def _log_likelihoods(
    indicator: Indicator,
    counts: Int[np.ndarray, " row"],
    imbalances: Float[np.ndarray, " value"],
    rates_at: RatesAt,
) -> Float[np.ndarray, " value"]:
    """The log-likelihood of all votes at each of some values of b.

    It is that of class 0, a sum over votes, and what class 1 adds in each row, log(1 + odds).
    """
    sensitivity, specificity = rates_at(imbalances[:, None])
    given_one, given_zero = (_log_table(says_one) for says_one in (sensitivity, 1 - specificity))
    log_shares = np.log(np.stack([1 - imbalances, 1 + imbalances]) / 2)
    table, offset = np.ascontiguousarray(given_one - given_zero), log_shares[1] - log_shares[0]
    cast, total = np.zeros(len(table)), counts.sum() * log_shares[0]
    width = table.shape[1] if sparse.issparse(indicator) else max(table.shape)  # of what a row is laid out in
    for block in row_blocks(len(counts), width):
        votes = indicator[block]
        odds = np.asarray(votes @ table)
        odds += offset
        total += counts[block] @ _log_one_plus(odds)
        cast += counts[block] @ votes
    total += cast @ given_zero
    return total


def _log_table(says_one: Float[np.ndarray, "value voter"]) -> Float[np.ndarray, "voter_vote value"]:
    """Logarithms of the probabilities of votes 0 and 1."""
    return np.log(np.stack([1 - says_one, says_one], axis=2)).reshape(len(says_one), -1).T


def _log_one_plus(odds: Float[np.ndarray, "row value"]) -> Float[np.ndarray, "row value"]:
    """log(1 + eˣ)."""
    return np.log1p(np.exp(-np.abs(odds))) + np.maximum(odds, 0.0)


def highest(height: Callable[[float], float], start: float, bounds: tuple[float, float] = (GRID[0], GRID[-1])) -> float:
    """The b at which a function with one hill is highest; the start if the search ends lower."""
    found = minimize_scalar(lambda b: -height(b), bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return float(found.x) if -found.fun >= height(start) else start


def third_moment_imbalance(rows: Patterns, mean: Vector, vector: Vector, groups: Int[np.ndarray, " voter"]) -> float:
    """The third moments' b = −α/√(4 + α²), α their least-squares slope on v_i v_j v_k.

    Over triples of voters from three different groups, each triple over the items on which all three voted. The sums
    over triples are elementary symmetric polynomials of group sums, row by row; no array of d³ cells is made.
    """
    indicator, counts = vote_indicator(rows.votes, 2), rows.counts
    of_vote = ((np.array([-1.0, 1.0]) - mean[:, None]) * vector[:, None]).ravel()
    above = _third_symmetric(indicator, counts, of_vote, groups.repeat(2))
    below = _third_symmetric(indicator, counts, np.square(vector).repeat(2), groups.repeat(2))
    if not below > 0:
        return 0.0
    items = max(int(counts.sum()), 3)
    slope = items**2 / ((items - 1) * (items - 2)) * above / below
    return float(np.clip(-slope / np.sqrt(4 + slope**2), GRID[0], GRID[-1]))


def _third_symmetric(
    indicator: Indicator,
    counts: Int[np.ndarray, " row"],
    of_vote: Float[np.ndarray, " voter_vote"],
    groups: Int[np.ndarray, " voter_vote"],
) -> float:
    """Σ_{g<h<l} t_g t_h t_l summed over items, by Newton's identity, t_g being what votes in group g add up to."""
    powers, alone = np.arange(1, 4), len(np.unique(groups)) == len(groups) // 2
    membership = of_vote[:, None] * (groups[:, None] == np.arange(groups.max() + 1)) if not alone else of_vote[:, None]
    total = 0.0
    for block in row_blocks(len(counts), max(len(of_vote), membership.shape[1])):
        if alone:  # with one voter a group no sums of groups are needed
            first, second, third = (indicator[block] @ of_vote[:, None] ** powers).T
        else:
            of_group = indicator[block] @ membership
            first, second, third = ((of_group**p).sum(axis=1) for p in powers)
        total += float(counts[block] @ ((first**3 - 3 * first * second + 2 * third) / 6))
    return total
