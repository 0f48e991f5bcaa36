"""Predictive check: does a fitted program reproduce the statistics of the votes?"""

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from latentens.checks.score_test import POOL_ITEMS, PerCell, Residuals, ScoreTest, adjusted_p_values
from latentens.checks.statistics import Statistic, VoteRows, draw_votes, states_of, statistics_of
from latentens.errors import LatentensError
from latentens.methods.base import Arrays, Fit, model_params
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.text import probability_text
from latentens.votes import Votes


@dataclass(frozen=True, eq=False)
class StatisticCheck:
    """One statistic of the votes beside its expectation under a fitted program.

    Attributes:
        name: Name of the statistic.
        cells: Description of each cell.
        observed: The observed counts.
        expected: Their expectation under the program, adjusted for the fit.
        deviation: Standard deviation of observed minus expected under the program; 0 where a cell is not tested.
        adjusted_p_values: p-value of each cell, allowing for the number of cells; 1 where it is not tested.
        labels: Short names of the cells, for the axis of a figure.
    """

    name: str
    cells: tuple[str, ...]
    observed: PerCell
    expected: PerCell
    deviation: PerCell
    adjusted_p_values: PerCell
    labels: tuple[str, ...] = ()

    @property
    def tested(self) -> Bool[np.ndarray, " cell"]:
        """Whether a cell has enough votes, and the parameters leave it any variance."""
        return self.deviation > 0

    @property
    def p_value(self) -> float:
        """Probability under the program that any cell is as far off as the worst one."""
        return float(self.adjusted_p_values.min(initial=1.0))

    @property
    def worst(self) -> str:
        """A description of the cell that is farthest off."""
        distance = np.abs(self.observed - self.expected) / np.where(self.tested, self.deviation, np.inf)
        cell = int(np.argmax(distance))
        return (
            f"{self.observed[cell]:,.0f} {self.cells[cell]}, "
            f"expected {self.expected[cell]:,.0f} ± {self.deviation[cell]:,.0f}"
        )


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """Whether a fitted program reproduces the votes.

    A program that does need not be right, nor need its labels. A program that does not is wrong about how votes arise,
    on which its labels rest.

    Attributes:
        model: The program.
        statistics: The statistics.
        level: The program is rejected at p-values up to this.
        exact: Whether the p-values allow for the fit. With very many parameters they do not, and are too large.
    """

    model: GenerativeModel
    statistics: tuple[StatisticCheck, ...]
    level: float
    exact: bool

    @property
    def p_value(self) -> float:
        """p-value of the worst statistic, allowing for their number (Bonferroni)."""
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
        """One row for each cell of each statistic, with its distance from the expectation in standard deviations."""
        parts = [
            pd.DataFrame(
                {
                    "statistic": part.name,
                    "cell": part.cells,
                    "observed": part.observed,
                    "expected": part.expected,
                    "deviation": part.deviation,
                    "z_score": (part.observed - part.expected) / np.where(part.tested, part.deviation, np.inf),
                    "adjusted_p_value": part.adjusted_p_values,
                }
            )
            for part in self.statistics
        ]
        return pd.concat(parts, ignore_index=True)

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        if not any(part.tested.any() for part in self.statistics):
            return f"{self.model} can reproduce any votes like these, so there is nothing to check."
        if not self.rejected:
            names = ", ".join([part.name for part in self.statistics if part.tested.any()])
            return f"{self.model} reproduces the votes: {names} ({probability_text(self.p_value)})."
        wrong = "; ".join(f"{part.name}: {part.worst}" for part in self.misfits)
        return f"{self.model} does not reproduce the votes ({probability_text(self.p_value)}): {wrong}."


@double_precision
def check_fit(
    fit: Fit, votes: Votes, *, key: jax.Array, level: float = 0.05, num_draws: int = 1000, least_expected: float = 10.0
) -> PredictiveCheck:
    """Compare votes with the predictions of the program that was fitted to them.

    Compared are the histogram of how many votes items get, how often each voter casts each vote, and how often two and
    three voters agree. The p-values of a point estimate allow for the fit: of each statistic only that part is tested
    which the parameters could not take up, and its distribution is that of data drawn from the program (a parametric
    bootstrap in which refitting is replaced by its first-order effect). Those of a sampled fit are posterior
    predictive: data are drawn from the program at up to 200 posterior draws, which makes them somewhat too large.

    Args:
        fit: A fit of a method with a generative model, such as `MaximumLikelihood`, `DawidSkeneEM` or `Nuts`.
        votes: The votes that it was fitted to.
        key: Random key; the same key gives the same result.
        level: Rate of false alarms.
        num_draws: Number of draws behind the p-values of a point estimate.
        least_expected: A cell is tested if at least this many are expected in it, and as many outside of it; with more
            than 10,000 items, proportionally more.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0))
        >>> le.check_fit(fit, votes, key=jax.random.key(1)).rejected
        True
    """
    model = fit.model
    if model is None:
        raise LatentensError(f"{fit.method} has no generative model that could reproduce votes; fit one")
    votes = fit.aligned(votes).to_hard()
    sample, point = VoteRows.of(votes, structure_of(model).num_vote_classes), typical_params(model, fit)
    states = states_of(checked_tables(model, point))
    # the simulated items, too, must have a few of each cell
    least = least_expected * max(1.0, votes.num_items / POOL_ITEMS)
    generator = numpy_generator(key)
    test: ScoreTest | _Replicates
    if fit.draws is None:
        test = ScoreTest(model, point, states, votes, num_draws, generator)
    else:
        test = _Replicates(model, fit.draws, votes, sample, generator)
    checks = []
    for statistic in statistics_of(states, sample, least):
        found = test.residuals(statistic)
        outside = sample.total(statistic.most) - found.implied
        tested = (found.implied >= least) & (outside >= least) & found.free
        distance = np.abs(found.observed - found.expected)[tested] / found.deviation[tested]
        adjusted = np.ones(len(tested))
        adjusted[tested] = adjusted_p_values(distance, test.largest(found, tested))
        categories, places = (*fit.class_names, *fit.other_names), range(len(tested))
        cells = tuple(statistic.describe(cell, fit.voter_names, categories) for cell in places)
        deviation = np.where(tested, found.deviation, 0.0)
        numbers = found.observed, found.expected, deviation, adjusted
        checks.append(StatisticCheck(statistic.name, cells, *numbers, tuple(map(statistic.label, places))))
    return PredictiveCheck(model, tuple(checks), level, test.allows_for_fit)


def typical_params(model: GenerativeModel, fit: Fit) -> Arrays:
    """The parameters of a point estimate, or those of the draw with the highest density."""
    if fit.draws is None:
        return model_params(model, fit)
    density = np.asarray(fit.diagnostics["sample_stats"]["lp"]) if "sample_stats" in fit.diagnostics else np.zeros(1)
    best = np.unravel_index(np.argmax(density), density.shape) if density.ndim == 2 else (0, 0)
    return {name: fit.draws[name][best] for name in structure_of(model).parameter_shapes}


class _Replicates:
    """Votes drawn from the program at posterior draws: the counterpart of `ScoreTest` for a sampled fit."""

    allows_for_fit = True

    def __init__(
        self,
        model: GenerativeModel,
        draws: Arrays,
        votes: Votes,
        sample: VoteRows,
        generator: np.random.Generator,
        most: int = 200,
    ) -> None:
        """Simulate votes like these at evenly spaced draws, at most a given number."""
        self.sample, self.replicates = sample, []
        flat = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in structure_of(model).parameter_shapes}
        number = len(next(iter(flat.values())))
        for draw in np.linspace(0, number - 1, min(most, number)).round().astype(int):
            states = states_of(checked_tables(model, {name: value[draw] for name, value in flat.items()}))
            self.replicates.append(VoteRows.of(draw_votes(states, votes, generator), sample.num_classes))

    def residuals(self, statistic: Statistic) -> Residuals:
        """Compare a statistic with its mean over the replicates."""
        drawn = np.stack([replicate.total(statistic.values) for replicate in self.replicates])
        mean, spread = drawn.mean(axis=0), drawn.std(axis=0, ddof=1)
        return Residuals(self.sample.total(statistic.values), mean, mean, spread, spread > 0, drawn - mean)

    def largest(self, residuals: Residuals, cells: Bool[np.ndarray, " cell"]) -> Float[np.ndarray, " draw"]:
        """The largest distance of each replicate from the mean among some cells, in standard deviations."""
        return (np.abs(residuals.simulated[:, cells]) / residuals.deviation[cells]).max(axis=1, initial=0.0)
