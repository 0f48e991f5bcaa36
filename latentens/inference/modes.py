"""Modes of the likelihood or the posterior of a program's parameters, by L-BFGS or by expectation–maximisation.

Both work on the tables, of which the derivatives of the log-likelihood are the expected counts of (label, state) and of
(state, voter, vote). So the E-step of EM is a gradient. Its M-step maximises `Σ expected count · log table(params)`,
plus the log prior if wanted, and costs the same for any number of items.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentens.inference.identification import fits_about_as_well
from latentens.inference.optimise import (
    SAME_OPTIMUM,
    STALLED,
    Descent,
    Optima,
    descend_from,
    gathered,
    in_parallel,
    stack,
)
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import (
    Flat,
    draw_params,
    flatten,
    normal_point,
    parameter_supports,
    transform_of,
    unflatten,
)
from latentens.programs.rows import CompiledProgram, Rows, compiled_program
from latentens.programs.tables import Tables
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import track_late

Score = Callable[[Tables], tuple[float, Tables]]
"""The value of something at given tables, and its derivatives by them."""


@dataclass(frozen=True, eq=False)
class Objective:
    """The negative of a score per item, and of the log prior density if wanted, at points of unconstrained space.

    Attributes:
        model: The generative model.
        score: The quantity to maximise.
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
        loss, derivatives = self.by_tables(params)
        return loss, self.program.pull_back(params, derivatives) / -self.num_items

    def by_tables(self, params: Flat) -> tuple[float, Tables]:
        """The loss at some parameters, and the derivatives of the score by the tables: of a likelihood, its counts."""
        tables, log_prior = self.program(params)
        value, derivatives = self.score(tables)
        return -(value + log_prior) / self.num_items, derivatives

    def slope(self, params: Flat, derivatives: Flat) -> float:
        """The largest derivative in unconstrained space (logits for probabilities)."""
        transform = transform_of(self.model)
        return float(np.abs(transform.pull_back(transform.unconstrain(params), params, derivatives)).max(initial=0.0))


def expected(counts: Tables) -> Score:
    """The objective of an M-step: the sum of counts times the logarithms in the tables."""
    return lambda tables: (float(np.vdot(counts[0], tables[0]) + np.vdot(counts[1], tables[1])), counts)


def expectation_maximisation(
    objective: Objective,
    starts: Sequence[Flat],
    max_iterations: int,
    tolerance: float,
    *,
    gradient_steps: int = 10,
    closed_form_slope: float = 1e-6,
) -> Optima:
    """EM for a program and its votes; the points of the result are parameters, losses are per item.

    Args:
        objective: The negative log-likelihood or log posterior density.
        starts: Parameters to start from.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when an iteration gains less than this per item.
        gradient_steps: Iterations of L-BFGS in an M-step without a closed form.
        closed_form_slope: A closed form is accepted if the remaining gradient, per item, is below this.
    """
    # whether the program has a closed form: its maximum has no slope; this also compiles what all starts share
    params, supports = starts[0], parameter_supports(objective.model)
    closed = all(support in (constraints.unit_interval, constraints.simplex) for support in supports.values())
    if closed:
        _, counts = objective.by_tables(params)
        moved = _closed_form(objective, params, counts)
        slopes = objective.program.pull_back(moved, counts) / objective.num_items
        closed = objective.slope(moved, slopes) < closed_form_slope

    def run(params: Flat) -> Descent:
        loss, counts = objective.by_tables(params)
        losses = [loss]
        for _ in range(max_iterations):
            stop_if_asked()
            if closed:
                moved = _closed_form(objective, params, counts)
            else:
                moved = _gradient_step(objective, params, counts, gradient_steps)
            loss, counts = objective.by_tables(moved)
            if loss > losses[-1]:  # by rounding only: an M-step never makes the expected log-likelihood fall
                break
            params = moved
            losses.append(loss)
            if losses[-2] - losses[-1] < tolerance:
                break
        return Descent(params, losses[-1], objective.slope(params, objective.at(params)[1]), np.array(losses))

    return gathered(in_parallel(run, starts, "expectation–maximisation"))


def _gradient_step(objective: Objective, params: Flat, counts: Tables, iterations: int) -> Flat:
    """An M-step by gradient."""
    expectation, transform = replace(objective, score=expected(counts)), transform_of(objective.model)
    start = transform.unconstrain(params)
    moved = transform.constrain(descend_from(expectation, start, max_iterations=iterations, tolerance=0.0).point)
    return moved if expectation.at(moved)[0] <= expectation.at(params)[0] else params


def _closed_form(objective: Objective, params: Flat, counts: Tables) -> Flat:
    """The maximum of a sum of `A log θ + B log(1 − θ)` (probabilities) and `Σ A_k log θ_k` (shares).

    A and B follow from the derivatives at the present θ and at another one. Whether the objective is such a sum is not
    known beforehand: the slope at the supposed maximum shows it.
    """
    program, supports = objective.program, parameter_supports(objective.model)
    values = unflatten(params, program.shapes)
    are_probabilities = {name: supports[name] is constraints.unit_interval for name in values}
    others = {
        name: np.where(value < 0.5, value + 0.25, value - 0.25) if are_probabilities[name] else value
        for name, value in values.items()
    }
    slopes, other_slopes = (
        unflatten(program.pull_back(flatten(at, program.shapes), counts), program.shapes) for at in (values, others)
    )
    moved = {
        name: _probability(value, slopes[name], others[name], other_slopes[name])
        if are_probabilities[name]
        else _shares(value, slopes[name])
        for name, value in values.items()
    }
    return flatten(moved, program.shapes)


def _probability(
    value: Float[np.ndarray, "*shape"],
    slope: Float[np.ndarray, "*shape"],
    other: Float[np.ndarray, "*shape"],
    other_slope: Float[np.ndarray, "*shape"],
    margin: float = 1e-12,
) -> Float[np.ndarray, "*shape"]:
    """The maximum of `A log θ + B log(1 − θ)` by its derivatives at two points; kept a margin off 0 and 1."""
    failures = (slope * value / other - other_slope) / (1 / (1 - other) - value / (other * (1 - value)))
    failures = np.maximum(failures, 0.0)
    successes = np.maximum(slope * value + failures * value / (1 - value), 0.0)
    total = successes + failures
    return np.where(total > 0, successes / np.where(total > 0, total, 1.0), value).clip(margin, 1 - margin)


def _shares(
    value: Float[np.ndarray, "*shape share"], slope: Float[np.ndarray, "*shape share"], margin: float = 1e-12
) -> np.ndarray:
    counts = np.maximum(value * slope, 0.0)
    total = counts.sum(axis=-1, keepdims=True)
    moved = np.where(total > 0, counts / np.where(total > 0, total, 1.0), value).clip(min=margin)
    return moved / moved.sum(axis=-1, keepdims=True)


Algorithm = Literal["lbfgs", "em"]


def find_modes(
    model: GenerativeModel,
    rows: Rows,
    starts: Sequence[Flat],
    *,
    algorithm: Algorithm = "lbfgs",
    use_prior: bool = False,
    max_iterations: int = 2000,
    tolerance: float | None = None,
    at_least: float | None = None,
) -> Optima:
    """The end of each start; the points are parameters, the losses are per item.

    Args:
        model: The generative model.
        rows: The votes, and what is known of the labels.
        starts: Parameters to start from, the most promising first.
        algorithm: `lbfgs` climbs in unconstrained space, `em` alternates expected counts and maximisation.
        use_prior: Whether to maximise the posterior density instead of the likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: `lbfgs`: largest entry of the gradient per item at convergence; `em`: smallest gain per item.
        at_least: A log-likelihood; starts that would stay below it are given up.
    """
    objective, transform = Objective(model, rows.expect, rows.num_items, use_prior), transform_of(model)
    objective.program.check(starts[0])
    if algorithm == "em":
        optima = expectation_maximisation(objective, starts, max_iterations, tolerance or 1e-10)
        points = list(optima.points)
    else:
        needed = np.inf if at_least is None else -at_least / rows.num_items
        begun = [transform.unconstrain(params) for params in starts]
        optima = maximise_likelihood(objective, rows, begun, max_iterations, tolerance or 1e-7, needed)
        points = [transform.constrain(point) for point in optima.points]
    return optima._replace(points=stack([unflatten(params, transform.shapes) for params in points]))


def prior_starts(model: GenerativeModel, number: int, generator: np.random.Generator) -> list[Flat]:
    """Draws from the priors; one at a bound, where derivatives vanish, is moved a little inside."""
    transform = transform_of(model)
    return [transform.constrain(transform.unconstrain(draw_params(model, generator))) for _ in range(number)]


def maximise_likelihood(
    objective: Objective,
    rows: Rows,
    starts: Sequence[Flat],
    max_iterations: int,
    tolerance: float,
    needed: float,
    *,
    least_gain: float = 1e-9,
) -> Optima:
    """Climb to the maximum from several points of unconstrained space, one after the other.

    A start ends when several iterations together gain next to nothing. It is given up when, even after gaining as much
    again as in the later half of its iterations, it would be clearly behind the best start before it, by the standard
    error of the difference over items (see `fits_about_as_well`). The best start then continues until it has converged.
    Starts run one after the other, so that the result does not depend on the number of cores.

    Args:
        objective: The negative log-likelihood or log posterior density.
        rows: The votes.
        starts: Where to start, the most promising first.
        max_iterations: Limit on the iterations of each start.
        tolerance: The best start has converged when no entry of the gradient per item exceeds this.
        needed: A loss per item; starts are also given up when as much again would leave them above it.
        least_gain: The best start also ends when several iterations together gain less than this: at a bound it would
            never converge.
    """
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
    # the best start continues until it has converged
    leader = min(range(len(starts)), key=lambda i: descents[i].loss)
    begun = descents[leader]
    left = max_iterations - len(begun.curve) + 1
    if begun.loss <= needed and begun.slope > tolerance and left > 0:
        end = descend_from(objective, begun.point, max_iterations=left, tolerance=tolerance, least_gain=least_gain)
        descents[leader] = end._replace(curve=np.concatenate([begun.curve, end.curve[1:]]))
    return gathered(descents)


def label_point(
    model: GenerativeModel,
    rows: Rows,
    label_probs: Float[np.ndarray, "item label"],
    generator: np.random.Generator,
    *,
    max_iterations: int = 100,
    near_zero: float = 0.1,
) -> Flat:
    """Approximately the point of highest likelihood given soft labels of the items.

    One vote of each kind by each voter is added to every label, so that unseen votes are not impossible.

    Args:
        model: The generative model.
        rows: The votes.
        label_probs: The soft labels, times the count of each item where items have counts.
        generator: Draws the point where the search begins.
        max_iterations: Limit on the iterations.
        near_zero: The first point is scaled by this if votes depend on the label alone.
    """
    totals = np.stack([np.bincount(rows.inverse, part, len(rows.counts)) for part in label_probs.T], axis=1)
    start = normal_point(model, generator)
    if structure_of(model).vote_parents == {"label"}:
        # with labels and no hidden units no symmetry has to be broken by chance, and where voters deviate
        # by chance from the first, a scale of their deviations shrinks to nothing before they say anything
        start = near_zero * start

    def score(tables: Tables) -> tuple[float, Tables]:
        value, (prior, emission) = rows.expect_labelled(tables, totals)
        more = Tables(np.full(prior.shape, 1 / prior.shape[1]), np.full(emission.shape, 1 / emission.shape[1]))
        return value + expected(more)(tables)[0], Tables(prior + more[0], emission + more[1])

    objective = Objective(model, score, rows.num_items)
    return descend_from(objective, start, max_iterations=max_iterations, tolerance=1e-4).point
