"""The class imbalance b = P(y=1) − P(y=0) of conditionally independent voters whose rank-one vector is known."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from latentens.methods.independent.likelihood import log_likelihoods, two_class_confusion
from latentens.methods.indicator import Indicator, vote_indicator
from latentens.methods.spectral.moments import Rates, Vector
from latentens.runtime.blocks import row_blocks
from latentens.votes import Votes

GRID = np.arange(-99, 100) / 100

RatesAt = Callable[[float], Rates]


def likelihood_imbalance(votes: Votes, rates_at: RatesAt, *, refine: bool) -> float:
    """The b that maximises the likelihood, the voters' rates being functions of b.

    Args:
        votes: The votes.
        rates_at: Sensitivities and specificities at a value of b.
        refine: Whether to refine between the points of the grid −.99, −.98, …, .99.
    """
    indicator, counts = vote_indicator(votes.patterns.votes, 2), votes.patterns.counts
    heights = _log_likelihoods(indicator, counts, GRID, rates_at)
    best = float(GRID[np.argmax(heights)])
    if not refine:
        return best
    found = minimize_scalar(
        lambda b: -_log_likelihoods(indicator, counts, np.array([b]), rates_at)[0],
        bounds=(max(best - 0.01, GRID[0]), min(best + 0.01, GRID[-1])),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(found.x) if -found.fun >= heights.max() else best


def _log_likelihoods(
    indicator: Indicator, counts: Int[np.ndarray, " row"], imbalances: Float[np.ndarray, " value"], rates_at: RatesAt
) -> Float[np.ndarray, " value"]:
    """The log-likelihood of all votes at each of some values of b."""
    confusion = np.concatenate([two_class_confusion(*rates_at(b)) for b in imbalances], axis=1)
    log_shares = np.log(np.stack([1 - imbalances, 1 + imbalances], axis=1) / 2)
    total = np.zeros(len(imbalances))
    for block in row_blocks(len(counts), log_shares.size):
        given_label = log_likelihoods(indicator[block], confusion).reshape(-1, *log_shares.shape)
        given_label += log_shares
        total += counts[block] @ np.logaddexp(given_label[:, :, 0], given_label[:, :, 1])
    return total


def highest(height: Callable[[float], float], start: float) -> float:
    """The b at which a function with one hill is highest; the start if the search ends lower."""
    bounds = GRID[0], GRID[-1]
    found = minimize_scalar(lambda b: -height(b), bounds=bounds, method="bounded", options={"xatol": 1e-5})
    return float(found.x) if -found.fun >= height(start) else start


def third_moment_imbalance(votes: Votes, mean: Vector, vector: Vector, groups: Int[np.ndarray, " voter"]) -> float:
    """The third moments' b = −α/√(4 + α²), α their least-squares slope on v_i v_j v_k.

    Over triples of voters from three different groups, each triple over the items on which all three voted. The sums
    over triples are elementary symmetric polynomials of group sums, row by row; no array of d³ cells is made.
    """
    rows, counts, _ = votes.patterns
    indicator = vote_indicator(rows, 2)
    of_vote = ((np.array([-1.0, 1.0]) - mean[:, None]) * vector[:, None]).ravel()
    above = counts @ _third_symmetric(indicator, of_vote, groups.repeat(2))
    below = counts @ _third_symmetric(indicator, np.square(vector).repeat(2), groups.repeat(2))
    if not below > 0:
        return 0.0
    items = max(votes.num_cases, 3)
    slope = items**2 / ((items - 1) * (items - 2)) * above / below
    return float(np.clip(-slope / np.sqrt(4 + slope**2), GRID[0], GRID[-1]))


def _third_symmetric(
    indicator: Indicator, of_vote: Float[np.ndarray, " voter_vote"], groups: Int[np.ndarray, " voter_vote"]
) -> Float[np.ndarray, " row"]:
    """Σ_{g<h<l} t_g t_h t_l of each row by Newton's identity, t_g being what its votes in group g add up to."""
    powers = np.arange(1, 4)
    if len(np.unique(groups)) == len(groups) // 2:  # with one voter a group no sums of groups are needed
        first, second, third = (indicator @ of_vote[:, None] ** powers).T
    else:
        membership = of_vote[:, None] * (groups[:, None] == np.arange(groups.max() + 1))
        blocks = row_blocks(indicator.shape[0], membership.shape[1])
        sums = [np.stack([(indicator[block] @ membership) ** p for p in powers]).sum(axis=2) for block in blocks]
        first, second, third = np.concatenate(sums, axis=1)
    return (first**3 - 3 * first * second + 2 * third) / 6
