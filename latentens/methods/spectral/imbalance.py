"""The class imbalance b = P(y=1) − P(y=0) of conditionally independent voters whose rank-one vector is known."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from latentens.methods.indicator import BlockedIndicator
from latentens.methods.spectral.moments import Column, Rates, Vector
from latentens.runtime.blocks import row_blocks
from latentens.runtime.numerics import FIVE_POINT_DERIVATIVES
from latentens.votes.distinct import Patterns

GRID = np.arange(-99, 100) / 100

SCREENED_ROWS = 2**17
"""A sample of this many distinct rows, if there are twice as many, tells which part of the grid counts."""

NEAR = 0.055
"""That part is so near to the sample's best: many times the standard error on so many rows."""

APART = 1e-3
"""Distance of the heights from which the top is told in the end."""

ROUNDING = 1e-13
"""Relative errors of heights."""

RatesAt = Callable[[Column], Rates]
HeightsAt = Callable[[Float[np.ndarray, " value"]], Float[np.ndarray, " value"]]


def likelihood_imbalance(rows: Patterns, rates_at: RatesAt, *, refine: bool) -> float:
    """The b that maximises the likelihood, the voters' rates being functions of b.

    Args:
        rows: The rows of votes.
        rates_at: Sensitivities and specificities at a column of values of b.
        refine: Whether to refine between the points of the grid −.99, −.98, …, .99.
    """
    indicator, counts, grid = BlockedIndicator(rows.votes, 2), rows.counts, GRID
    if len(counts) >= 2 * SCREENED_ROWS:  # a sample tells where to look
        chosen = np.sort(np.random.default_rng(0).choice(len(counts), SCREENED_ROWS, replace=False))
        sample = BlockedIndicator(rows.votes.take(chosen), 2)
        rough = GRID[np.argmax(_log_likelihoods(sample, counts[chosen], GRID, rates_at))]
        grid = GRID[np.abs(GRID - rough) < NEAR]
    heights_at = partial(_log_likelihoods, indicator, counts, rates_at=rates_at)
    heights = heights_at(grid)
    best = float(grid[np.argmax(heights)])
    return _refined(heights_at, best, float(heights.max())) if refine else best


def _refined(heights_at: HeightsAt, best: float, height: float) -> float:
    """The highest place near the best point of the grid.

    A search by heights ends where they differ by no more than rounding errors, some 1e-7 from the top. The polynomial
    through five of them further apart tells the top more exactly, unless rates that reach their bounds make an edge.
    """
    low, high = max(best - 0.01, GRID[0]), min(best + 0.01, GRID[-1])
    search = partial(minimize_scalar, bounds=(low, high), method="bounded", options={"xatol": 1e-5})
    found = search(lambda b: -heights_at(np.array([b]))[0])
    if -found.fun < height:
        return best
    around = heights_at(np.clip(found.x + APART * np.arange(-2, 3), GRID[0], GRID[-1]))
    first, second, _, _ = (around - around[2]) @ FIVE_POINT_DERIVATIVES
    top = float(found.x - APART * first / second) if abs(first) < -second else best
    (reached,) = heights_at(np.array([top]))
    return top if reached >= -found.fun - ROUNDING * abs(found.fun) else float(found.x)


def _log_likelihoods(
    indicator: BlockedIndicator,
    counts: Int[np.ndarray, " row"],
    imbalances: Float[np.ndarray, " value"],
    rates_at: RatesAt,
) -> Float[np.ndarray, " value"]:
    """The log-likelihood of all votes at each of some values of b.

    It is that of class 0, a sum over votes, and what class 1 adds in each row, log(1 + odds).
    """
    given_one, given_zero = (_log_table(rate) for rate in _by_label(rates_at(imbalances[:, None])))
    log_shares = np.log(np.stack([1 - imbalances, 1 + imbalances]) / 2)
    table, offset = np.ascontiguousarray(given_one - given_zero), log_shares[1] - log_shares[0]
    cast, total = np.zeros(len(table)), counts.sum() * log_shares[0]
    width = table.shape[1] if indicator.votes.is_sparse else max(table.shape)  # of what a row is laid out in
    for block in row_blocks(len(counts), width):
        votes = indicator[block]
        odds = np.asarray(votes @ table)
        odds += offset
        total += counts[block] @ _log_one_plus(odds)
        cast += counts[block] @ votes
    total += cast @ given_zero
    return total


def _by_label(rates: Rates) -> tuple[np.ndarray, np.ndarray]:
    """The probability of voting 1 given each label, 1 first."""
    return rates.sensitivity, 1 - rates.specificity


def _log_table(says_one: Float[np.ndarray, "value voter"]) -> Float[np.ndarray, "voter_vote value"]:
    """Logarithms of the probabilities of votes 0 and 1."""
    return np.log(np.stack([1 - says_one, says_one], axis=2)).reshape(len(says_one), -1).T


def _log_one_plus(odds: Float[np.ndarray, "row value"]) -> Float[np.ndarray, "row value"]:
    """log(1 + eˣ)."""
    return np.log1p(np.exp(-np.abs(odds))) + np.maximum(odds, 0.0)


def highest(height: Callable[[float], float], start: float) -> float:
    """The b at which a function with one hill is highest; the start if the search ends lower."""
    bounds = GRID[0], GRID[-1]
    found = minimize_scalar(lambda b: -height(b), bounds=bounds, method="bounded", options={"xatol": 1e-5})
    return float(found.x) if -found.fun >= height(start) else start


def third_moment_imbalance(rows: Patterns, mean: Vector, vector: Vector, groups: Int[np.ndarray, " voter"]) -> float:
    """The third moments' b = −α/√(4 + α²), α their least-squares slope on v_i v_j v_k.

    Over triples of voters from three different groups, each triple over the items on which all three voted. The sums
    over triples are elementary symmetric polynomials of group sums, row by row; no array of d³ cells is made.
    """
    indicator, counts = BlockedIndicator(rows.votes, 2), rows.counts
    of_vote = ((np.array([-1.0, 1.0]) - mean[:, None]) * vector[:, None]).ravel()
    above = _third_symmetric(indicator, counts, of_vote, groups.repeat(2))
    below = _third_symmetric(indicator, counts, np.square(vector).repeat(2), groups.repeat(2))
    if not below > 0:
        return 0.0
    items = max(int(counts.sum()), 3)
    slope = items**2 / ((items - 1) * (items - 2)) * above / below
    return float(np.clip(-slope / np.sqrt(4 + slope**2), GRID[0], GRID[-1]))


def _third_symmetric(
    indicator: BlockedIndicator,
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
