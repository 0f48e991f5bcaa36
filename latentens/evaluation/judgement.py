"""How far statistics of votes are from what a fitted program implies, and how far chance takes them."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from latentens.evaluation.score_pool import (
    FREE_SHARE,
    MAX_PARAMETERS,
    POOL_ITEMS,
    States,
    draw_pool,
    draw_votes,
    row_scores,
    score_basis,
    states_of,
)
from latentens.evaluation.vote_statistics import Statistic, VoteRows
from latentens.methods.base import Arrays, Fit, model_params
from latentens.programs.contract import inspect
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import checked_tables
from latentens.votes import Votes

LEAST_EXPECTED = 10.0
"""A cell is judged if at least so many are expected in it, and so many of what it could count outside of it."""

PREDICTIVE_DRAWS = 200
"""Posterior draws at which data are simulated."""

PerCell = Float[np.ndarray, " cell"]


class Judged(NamedTuple):
    """The cells of a statistic: observed, expected, the deviation of their difference (0: not judged), p-values."""

    observed: PerCell
    expected: PerCell
    deviation: PerCell
    adjusted_p_values: PerCell


def least_expected(num_items: int) -> float:
    """How many a cell needs; with many items as many as the simulated ones have a few of."""
    return LEAST_EXPECTED * max(1.0, num_items / POOL_ITEMS)


def typical_params(model: GenerativeModel, fit: Fit) -> Arrays:
    """The parameters of a point estimate, or those of the draw with the highest density."""
    if fit.draws is None:
        return model_params(model, fit)
    density = np.asarray(fit.diagnostics["sample_stats"]["lp"]) if "sample_stats" in fit.diagnostics else np.zeros(1)
    best = np.unravel_index(np.argmax(density), density.shape) if density.ndim == 2 else (0, 0)
    return {name: fit.draws[name][best] for name in inspect(model).parameter_shapes}


class ByScore(NamedTuple):
    """A point estimate: what is left of a statistic once its regression on the score is taken off.

    The distribution of what is left is found by drawing data anew from the simulated items, each of them a number of
    times that is Poisson.
    """

    states: States
    sample: VoteRows
    pool: VoteRows
    sample_score: Float[np.ndarray, " direction"]
    """Total over the votes; directions are orthonormal over the pool."""
    pool_scores: Float[np.ndarray, "row direction"]
    noise: Float[np.ndarray, "draw row"]
    """How many items more than expected each draw has of a row of the pool."""
    allows_for_fit: bool

    @classmethod
    def of(
        cls,
        model: GenerativeModel,
        params: Params,
        states: States,
        votes: Votes,
        rows: VoteRows,
        num_draws: int,
        generator: np.random.Generator,
    ) -> "ByScore":
        """Simulate items, and find the scores of rows where the program has few enough parameters for that."""
        pool = VoteRows.of(draw_pool(states, votes, generator), rows.num_classes)
        size = sum(prod(shape) for shape in inspect(model).parameter_shapes.values())
        sample_score, pool_scores = np.zeros(0), np.zeros((len(pool.weights), 0))
        if size <= MAX_PARAMETERS:
            of_rows = [
                each.map(lambda counts: row_scores(model, params, counts.reshape(len(counts), -1)))
                for each in (rows, pool)
            ]
            basis = score_basis(of_rows[1], pool.weights)
            sample_score, pool_scores = rows.weights @ of_rows[0] @ basis, of_rows[1] @ basis
        rate = pool.weights * (votes.num_items / POOL_ITEMS)
        noise = (generator.poisson(rate, (num_draws, len(rate))) - rate).astype(np.float32)
        return cls(states, rows, pool, sample_score, pool_scores, noise, size <= MAX_PARAMETERS)

    def judge(self, statistic: Statistic, least: float) -> Judged:
        """Compare one statistic."""
        observed = self.sample.total(statistic.values)
        expected = self.sample.total(lambda counts: statistic.expected(self.states, counts))
        most = self.sample.total(statistic.most)
        moments = self.pool.map(lambda counts: statistic.values(counts) - statistic.expected(self.states, counts))
        slope = self.pool_scores.T @ (moments * self.pool.weights[:, None])
        left = moments - self.pool_scores @ slope
        squares, before = (self.pool.weights @ part**2 for part in (left, moments))
        variance = squares * self.sample.weights.sum() / (POOL_ITEMS - self.pool_scores.shape[1])
        taken_up = self.sample_score @ slope
        judged = (expected >= least) & (most - expected >= least) & (squares > FREE_SHARE * before)
        deviation = np.where(judged, np.sqrt(variance), 0.0)
        distance = np.abs(observed - expected - taken_up)[judged] / deviation[judged]
        drawn = np.abs(self.noise @ (left[:, judged] / deviation[judged]).astype(np.float32))
        return Judged(observed, expected + taken_up, deviation, _adjusted(judged, distance, drawn))


class ByDraws(NamedTuple):
    """A sampled fit: data drawn from the program at posterior draws."""

    sample: VoteRows
    replicates: Sequence[VoteRows]
    allows_for_fit: bool = True

    @classmethod
    def of(
        cls, model: GenerativeModel, draws: Arrays, votes: Votes, rows: VoteRows, generator: np.random.Generator
    ) -> "ByDraws":
        """Simulate votes like these at some of the draws."""
        names = inspect(model).parameter_shapes
        flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in names}
        number = len(next(iter(flat.values())))
        chosen = np.linspace(0, number - 1, min(PREDICTIVE_DRAWS, number)).round().astype(int)
        replicates = []
        for draw in chosen:
            states = states_of(checked_tables(model, {name: value[draw] for name, value in flat.items()}))
            replicates.append(VoteRows.of(draw_votes(states, votes, generator), rows.num_classes))
        return cls(rows, replicates)

    def judge(self, statistic: Statistic, least: float) -> Judged:
        """Compare one statistic."""
        observed = self.sample.total(statistic.values)
        drawn = np.stack([replicate.total(statistic.values) for replicate in self.replicates])
        expected, spread = drawn.mean(axis=0), drawn.std(axis=0, ddof=1)
        most = self.sample.total(statistic.most)
        judged = (expected >= least) & (most - expected >= least) & (spread > 0)
        distances = np.abs(np.concatenate([observed[None], drawn]) - expected)[:, judged] / spread[judged]
        adjusted = _adjusted(judged, distances[0], distances[1:])
        return Judged(observed, expected, np.where(judged, spread, 0.0), adjusted)


def _adjusted(
    judged: Bool[np.ndarray, " cell"], distance: Float[np.ndarray, " judged"], drawn: Float[np.ndarray, "draw judged"]
) -> PerCell:
    """p-values that allow for the number of cells: how often the largest distance of a draw is at least as large."""
    largest = np.sort(drawn.max(axis=1, initial=0.0))
    as_large = len(largest) - np.searchsorted(largest, distance)
    adjusted = np.ones(len(judged))
    adjusted[judged] = (1 + as_large) / (1 + len(largest))
    return adjusted
