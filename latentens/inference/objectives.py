"""What is minimised in fitting a program: in unconstrained space, per item, with its gradient, in NumPy.

An objective is anything whose value and derivatives by the tables are known. The compiled program gives the tables and
takes the derivatives back to the parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from latentens.inference.identification import fits_about_as_well
from latentens.inference.optimise import SAME_OPTIMUM, STALLED, Descent, Optima, descend_from, gathered
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import Flat, transform_of
from latentens.programs.rows import CompiledProgram, Rows, compiled_program
from latentens.programs.tables import Tables
from latentens.runtime.progress import track_late

LEAST_GAIN = 1e-9
"""The best start ends too when some iterations gain less than this per item: at a bound it would crawl for ever."""

WARM_ITERATIONS = 100
"""Iterations towards the labels of a cheaper method."""

NEAR_ZERO = 0.1
"""A start is so much nearer to zero where labels are all there is to explain votes."""

Score = Callable[[Tables], tuple[float, Tables]]
"""The value of something at given tables, and its derivatives by them."""


@dataclass(frozen=True, eq=False)
class Objective:
    """The negative of a score per item, and of the log prior density if wanted, at points of unconstrained space.

    Attributes:
        model: The generative model.
        score: What is to be large.
        num_items: Number of items.
        use_prior: Whether the log prior density is added.
    """

    model: GenerativeModel
    score: Score
    num_items: float
    use_prior: bool = False

    @cached_property
    def program(self) -> CompiledProgram:
        """The compiled program."""
        return compiled_program(self.model, self.use_prior)

    def __call__(self, point: Flat) -> tuple[float, Flat]:
        """The loss at a point, and its gradient."""
        transform = transform_of(self.model)
        params = transform.constrain(point)
        loss, slopes = self.at(params)
        return loss, transform.pull_back(point, params, slopes)

    def tables(self, point: Flat) -> Tables:
        """The tables at a point."""
        return self.program(transform_of(self.model).constrain(point)).tables

    def at(self, params: Flat) -> tuple[float, Flat]:
        """The loss at some parameters, and its derivatives by these."""
        tables, log_prior = self.program(params)
        value, derivatives = self.score(tables)
        return -(value + log_prior) / self.num_items, self.program.pull_back(params, derivatives) / -self.num_items


def maximise_likelihood(
    model: GenerativeModel,
    rows: Rows,
    starts: Sequence[Flat],
    *,
    use_prior: bool,
    max_iterations: int,
    tolerance: float,
    needed: float = np.inf,
) -> Optima:
    """Climb to the maximum from several points of unconstrained space, one after the other.

    A start ends when some iterations together gain next to nothing. It is given up when even as much again as the later
    half of its iterations gained would leave it clearly behind the best start before it, by the standard error of the
    difference over items (see `fits_about_as_well`). The best start then goes on until it has converged. One after the
    other, so that what is given up does not depend on the number of cores.

    Args:
        model: The generative model.
        rows: The votes.
        starts: Where to start, the most promising first.
        use_prior: Whether to maximise the posterior density instead of the likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: The best start has converged when no entry of the gradient per item exceeds this.
        needed: A loss per item; starts are also given up when as much again would leave them above it.
    """
    objective = Objective(model, rows.expect, rows.num_items, use_prior)
    descents: list[Descent] = []
    best: tuple[float, Float[np.ndarray, " row"]] | None = None

    def is_hopeless(point: Flat, loss: float, gain: float) -> bool:
        if loss - gain > needed:
            return True
        if best is None or loss - gain <= best[0]:
            return False
        here = rows.log_likelihood(objective.tables(point))
        of_prior = rows.num_items * (loss - gain - best[0]) - rows.counts @ (best[1] - here)
        return not fits_about_as_well(best[1], here, rows.counts, of_prior)

    for start in track_late(starts, "maximum likelihood", total=len(starts)):
        end = descend_from(
            objective,
            start,
            max_iterations=max_iterations,
            tolerance=tolerance,
            least_gain=SAME_OPTIMUM / rows.num_items,
            window=STALLED // 4,
            give_up=is_hopeless,
        )
        descents.append(end)
        if best is None or end.loss < best[0]:
            best = end.loss, rows.log_likelihood(objective.tables(end.point))
    leader = min(range(len(starts)), key=lambda i: descents[i].loss)
    if descents[leader].loss <= needed:
        descents[leader] = _polished(objective, descents[leader], max_iterations, tolerance)
    return gathered(descents)


def _polished(objective: Objective, descent: Descent, max_iterations: int, tolerance: float) -> Descent:
    """A descent that goes on from its end until it has converged."""
    left = max_iterations - len(descent.curve) + 1
    if descent.slope <= tolerance or left < 1:
        return descent
    end = descend_from(
        objective,
        descent.point,
        max_iterations=left,
        tolerance=tolerance,
        least_gain=LEAST_GAIN,
    )
    return end._replace(curve=np.concatenate([descent.curve, end.curve[1:]]))


def expected(counts: Tables) -> Score:
    """What an M-step maximises: the sum of counts times the logarithms in the tables."""
    return lambda tables: (float(np.vdot(counts[0], tables[0]) + np.vdot(counts[1], tables[1])), counts)


def towards_labels(model: GenerativeModel, rows: Rows, totals: Float[np.ndarray, "row label"], start: Flat) -> Flat:
    """The point that suits soft labels best, about.

    Every label gets one vote more of each kind by each voter, so that what nobody did is not impossible.

    Args:
        model: The generative model.
        rows: The votes.
        totals: The sum of the soft labels of each row's items.
        start: Where to start.
    """
    if structure_of(model).vote_parents == {"label"}:
        # with labels and no hidden units nothing is alike that had to be told apart by chance, and where voters deviate
        # by chance from the first, a scale of their deviations shrinks to nothing before they say anything
        start = NEAR_ZERO * start

    def score(tables: Tables) -> tuple[float, Tables]:
        value, (prior, emission) = rows.expect_labelled(tables, totals)
        more = Tables(np.full(prior.shape, 1 / prior.shape[1]), np.full(emission.shape, 1 / emission.shape[1]))
        return value + expected(more)(tables)[0], Tables(prior + more[0], emission + more[1])

    objective = Objective(model, score, rows.num_items)
    return descend_from(objective, start, max_iterations=WARM_ITERATIONS, tolerance=1e-4).point
