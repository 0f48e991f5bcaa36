"""Predictive checks of a fitted program: does it reproduce the votes that it was fitted to? No label is needed."""

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from latentens.errors import LatentensError
from latentens.evaluation.judgement import ByDraws, ByScore, Judged, least_expected, typical_params
from latentens.evaluation.number_words import probability_text
from latentens.evaluation.score_pool import states_of
from latentens.evaluation.vote_statistics import Statistic, VoteRows, statistics_of
from latentens.methods.base import Fit
from latentens.programs.contract import inspect
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import checked_tables
from latentens.runtime.precision import double_precision
from latentens.runtime.randomness import numpy_generator
from latentens.votes import Votes
from latentens.votes.matching import align
from latentens.votes.names import Names

PerCell = Float[np.ndarray, " cell"]


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
    rows, point = VoteRows.of(votes, inspect(model).num_vote_classes), typical_params(model, fit)
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
