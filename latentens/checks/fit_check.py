"""How far statistics of votes are from what a fitted program implies, and how far chance takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from latentens.checks.vote_statistics import (
    FREE_SHARE,
    MAX_PARAMETERS,
    POOL_ITEMS,
    States,
    Statistic,
    VoteRows,
    draw_pool,
    draw_votes,
    row_scores,
    score_basis,
    states_of,
    statistics_of,
)
from latentens.errors import LatentensError
from latentens.methods.base import Arrays, Fit, model_params
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import num_parameters
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.text import probability_text
from latentens.votes import Votes
from latentens.votes.labels import Names
from latentens.votes.matching import align

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
    return {name: fit.draws[name][best] for name in structure_of(model).parameter_shapes}


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
        size = num_parameters(model)
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
        names = structure_of(model).parameter_shapes
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


@dataclass(frozen=True, eq=False)
class StatisticCheck:
    """One statistic of the votes beside what a fitted program says about it.

    Attributes:
        name: What the statistic is about.
        cells: What each of its numbers counts.
        observed: The numbers.
        expected: What the program expects, as far as the fit does not determine it.
        deviation: Standard deviation of observed less expected under the program; 0 where a cell is not judged.
        adjusted_p_values: p-value of each cell, allowing for the number of cells; 1 where it is not judged.
    """

    name: str
    cells: tuple[str, ...]
    observed: PerCell
    expected: PerCell
    deviation: PerCell
    adjusted_p_values: PerCell

    @property
    def judged(self) -> Bool[np.ndarray, " cell"]:
        """Whether there is enough of a cell, and the parameters leave anything of it to be judged."""
        return self.deviation > 0

    @property
    def p_value(self) -> float:
        """Probability under the program of a cell as far off as the worst one, whichever it is."""
        return float(self.adjusted_p_values.min(initial=1.0))

    @property
    def worst(self) -> str:
        """The cell that is farthest off, in words."""
        distance = np.abs(self.observed - self.expected) / np.where(self.judged, self.deviation, np.inf)
        cell = int(np.argmax(distance))
        return (
            f"there are {self.observed[cell]:,.0f} {self.cells[cell]}, "
            f"expected are {self.expected[cell]:,.0f} ± {self.deviation[cell]:,.0f}"
        )


@dataclass(frozen=True, eq=False)
class FitCheck:
    """Whether a fitted program reproduces the votes.

    A program that does is not proved right, and its labels need not be. One that does not is wrong about how votes come
    about, and what it says about labels rests on that.

    Attributes:
        model: The program.
        statistics: What was compared.
        level: A p-value up to this counts as a contradiction.
        exact: Whether the p-values allow for the fit. With very many parameters they do not, and are too large.
    """

    model: GenerativeModel
    statistics: tuple[StatisticCheck, ...]
    level: float
    exact: bool

    @property
    def p_value(self) -> float:
        """That of the worst statistic, allowing for their number (Bonferroni)."""
        return min(1.0, len(self.statistics) * min((part.p_value for part in self.statistics), default=1.0))

    @property
    def rejected(self) -> bool:
        """Whether the votes contradict the program."""
        return self.p_value <= self.level

    @property
    def misfits(self) -> list[StatisticCheck]:
        """The statistics that the program does not reproduce, the worst first."""
        limit = self.level / max(len(self.statistics), 1)
        return sorted((part for part in self.statistics if part.p_value <= limit), key=lambda part: part.p_value)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each cell of each statistic, with its distance from the program in standard deviations."""
        parts = [
            pd.DataFrame(
                {
                    "statistic": part.name,
                    "cell": part.cells,
                    "observed": part.observed,
                    "expected": part.expected,
                    "deviation": part.deviation,
                    "z_score": (part.observed - part.expected) / np.where(part.judged, part.deviation, np.inf),
                    "adjusted_p_value": part.adjusted_p_values,
                }
            )
            for part in self.statistics
        ]
        return pd.concat(parts, ignore_index=True)

    @property
    def summary(self) -> str:
        """The verdict in plain words."""
        if not any(part.judged.any() for part in self.statistics):
            return f"{self.model} can reproduce any votes like these, so that nothing can be checked."
        if not self.rejected:
            names = ", ".join([part.name for part in self.statistics if part.judged.any()])
            return f"{self.model} reproduces the votes: {names} ({probability_text(self.p_value)})."
        wrong = "; ".join(f"{part.name}: {part.worst}" for part in self.misfits)
        return f"{self.model} does not reproduce the votes ({probability_text(self.p_value)}): {wrong}."


@double_precision
def check_fit(fit: Fit, votes: Votes, *, key: jax.Array, level: float = 0.05, num_draws: int = 1000) -> FitCheck:
    """Compare votes with what the program that was fitted to them says about such votes.

    Compared are the histogram of how many votes items get, how often each voter casts each vote, and how often two and
    three voters agree. The p-values of a point estimate allow for the fit: of each statistic only that part is judged
    which the parameters could not take up, and its distribution is that of data drawn from the program (a parametric
    bootstrap in which refitting is replaced by its first-order effect). Those of a sampled fit are posterior
    predictive: data are drawn from the program at posterior draws, which makes them somewhat too large.

    Args:
        fit: A fit of a method with a generative model, such as `MaximumLikelihood`, `DawidSkeneEM` or `Nuts`.
        votes: The votes that it was fitted to.
        key: Random key; the same key gives the same result.
        level: Share of false alarms to be accepted.
        num_draws: Number of draws behind the p-values of a point estimate.
    """
    model = fit.model
    if model is None:
        raise LatentensError(f"{fit.method} has no generative model that could reproduce votes; fit one")
    votes = align(votes, fit.voter_names, fit.class_names)
    rows, point = VoteRows.of(votes, structure_of(model).num_vote_classes), typical_params(model, fit)
    states = states_of(checked_tables(model, point))
    least = least_expected(votes.num_items)
    statistics = statistics_of(states, rows, least)
    generator = numpy_generator(key)
    judge: ByScore | ByDraws
    if fit.draws is None:
        judge = ByScore.of(model, point, states, votes, rows, num_draws, generator)
    else:
        judge = ByDraws.of(model, fit.draws, votes, rows, generator)
    names = fit.voter_names, fit.class_names
    checks = tuple(_checked(statistic, judge.judge(statistic, least), *names) for statistic in statistics)
    return FitCheck(model, checks, level, judge.allows_for_fit)


def _checked(statistic: Statistic, judged: Judged, voters: Names, classes: Names) -> StatisticCheck:
    cells = tuple(statistic.describe(cell, voters, classes) for cell in range(len(judged.observed)))
    return StatisticCheck(statistic.name, cells, *judged)
