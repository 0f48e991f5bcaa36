"""How far the votes of each pair of voters are from what a fitted program implies, and how far chance takes them.

The moment of a pair is the covariance of its votes as indicators, `Σ_a Cov(1{x_i = a}, 1{x_j = a})`, which for two
classes is twice the covariance of the votes. What is judged is the part that the fitted parameters cannot take up
(see `score_pool`).
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from latentens.evaluation.score_pool import FREE_SHARE, States, draw_pool, row_scores, score_basis, states_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import checked_tables
from latentens.runtime.precision import double_precision
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes
from latentens.votes.labels import MISSING

Matrix = Float[np.ndarray, "voter voter"]

EXPECTED_RARE = 5.0
"""A pair is judged if both voters are expected to cast other votes than their commonest on this many items."""


class PairResiduals(NamedTuple):
    """What is left of the pairs' moments, as correlations; symmetric, zero where a pair is not checked."""

    residual: Matrix
    standard_error: Matrix
    checked: Bool[np.ndarray, "voter voter"]
    saturated: Bool[np.ndarray, "voter voter"]
    """Pairs with enough votes whose moments the parameters fit whatever they are."""
    largest: Float[np.ndarray, " draw"]
    """Draws of the largest residual of all pairs, in standard errors, under the model."""

    @property
    def z_score(self) -> Matrix:
        """The residuals in standard errors."""
        return self.residual / np.where(self.checked, self.standard_error, 1.0)


@double_precision
def pair_residuals(
    model: GenerativeModel, params: Params, votes: Votes, *, num_draws: int, key: jax.Array
) -> PairResiduals:
    """Compare every pair of voters with a fitted model.

    Args:
        model: The generative model.
        params: Its parameters, fitted to the votes.
        votes: The votes; a pair is compared on the items on which both voted.
        num_draws: Number of draws of the largest residual.
        key: Random key of the simulated items.
    """
    generator = numpy_generator(key)
    states = states_of(checked_tables(model, params))
    sample = _Sample.of(model, params, states, votes)
    pool = _Sample.of(model, params, states, draw_pool(states, votes, generator))
    basis = score_basis(pool.scores, pool.counts)
    sample, pool = (rows._replace(scores=rows.scores @ basis) for rows in (sample, pool))
    enough = _enough(states.margin, sample.together)
    noise = generator.standard_normal((num_draws, len(pool.counts)), dtype=np.float32)
    total, variance = np.zeros((2, votes.num_voters, votes.num_voters))
    free, largest = np.zeros_like(enough), np.zeros(num_draws)
    for voter in range(votes.num_voters - 1):
        left = _leave(sample, pool, voter)
        others = slice(voter + 1, None)
        total[voter, others], variance[voter, others], free[voter, others] = left.total, left.variance, left.free
        counted = enough[voter, others] & left.free
        standard = left.deviation[:, counted] / np.sqrt((left.deviation[:, counted] ** 2).sum(axis=0))
        largest = np.maximum(largest, np.abs(noise @ standard.astype(np.float32)).max(axis=1, initial=0.0))
    free |= free.T
    checked = enough & free
    unit = np.where(checked, sample.together * np.sqrt(np.outer(states.variance, states.variance)), 1.0)
    residual = np.where(checked, total + total.T, 0.0) / unit
    standard_error = np.sqrt(np.where(checked, variance + variance.T, 0.0)) / unit
    return PairResiduals(residual, standard_error, checked, enough & ~free, largest)


class _Left(NamedTuple):
    """What the scores leave of the moments of a voter with each later one."""

    total: Float[np.ndarray, " other"]
    """Over the votes."""
    variance: Float[np.ndarray, " other"]
    """Of that total under the model."""
    free: Bool[np.ndarray, " other"]
    """Whether the parameters leave anything at all."""
    deviation: Float[np.ndarray, "row other"]
    """Of each row of the pool, times the root of its count."""


def _leave(sample: "_Sample", pool: "_Sample", voter: int) -> _Left:
    """Regress the pool's moments on its scores, which are orthonormal, and take the regression off the sample's."""
    moments = pool.moments(voter)
    slope = pool.scores.T @ (moments * pool.counts[:, None])
    deviation = (moments - pool.scores @ slope) * np.sqrt(pool.counts)[:, None]
    squares, before = (deviation**2).sum(axis=0), pool.counts @ moments**2
    total = sample.counts @ sample.moments(voter) - (sample.counts @ sample.scores) @ slope
    variance = squares * sample.num_items / (pool.num_items - pool.scores.shape[1])
    return _Left(total, variance, squares > FREE_SHARE * before, deviation)


class _Sample(NamedTuple):
    """Distinct rows of votes as deviations from the model's margins, and their scores."""

    deviation: Float[np.ndarray, "row voter vote"]
    """Zero where a vote is missing."""
    cast: Bool[np.ndarray, "row voter"]
    counts: Int[np.ndarray, " row"]
    scores: Float[np.ndarray, "row parameter"]
    implied: Matrix

    @classmethod
    def of(cls, model: GenerativeModel, params: Params, states: States, votes: Votes) -> "_Sample":
        rows, num_classes = votes.patterns.rows, states.emission.shape[2]
        cast = rows != MISSING
        indicator = (rows[:, :, None] == np.arange(num_classes)).astype(np.float64)
        deviation = (indicator - states.margin) * cast[:, :, None]
        scores = row_scores(model, params, indicator.reshape(len(rows), -1))
        return cls(deviation, cast, votes.patterns.counts, scores, states.covariance)

    @property
    def num_items(self) -> int:
        return int(self.counts.sum())

    @property
    def together(self) -> Int[np.ndarray, "voter voter"]:
        """On how many items both voted."""
        return (self.cast * self.counts[:, None]).T @ self.cast.astype(np.int64)

    def moments(self, voter: int) -> Float[np.ndarray, "row other"]:
        """The deviation of each row's moment from the model's, for a voter and each later one."""
        others = slice(voter + 1, None)
        products = np.einsum("ra,rja->rj", self.deviation[:, voter], self.deviation[:, others])
        both = self.cast[:, voter, None] & self.cast[:, others]
        return products - both * self.implied[voter, others]


def _enough(
    margin: Float[np.ndarray, "voter vote"], together: Int[np.ndarray, "voter voter"]
) -> Bool[np.ndarray, "voter voter"]:
    """Whether a pair has votes enough for its moment to be about normal."""
    rare = 1 - margin.max(axis=1)
    enough = together * np.outer(rare, rare) >= EXPECTED_RARE
    return enough & ~np.eye(len(rare), dtype=bool)
