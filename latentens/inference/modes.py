"""Modes of the likelihood, or posterior density, of any program: where to start, and the climb from there."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from latentens.inference.em import Expectation, Objective, expected
from latentens.inference.identification import fits_about_as_well
from latentens.inference.optimise import SAME_OPTIMUM, STALLED, Descent, Optima, descend_from, gathered, stack
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import Flat, draw_params, flatten, normal_point, transform_of, unflatten
from latentens.programs.rows import Rows, compiled_program
from latentens.programs.tables import Tables
from latentens.runtime.progress import track_late

Algorithm = Literal["lbfgs", "em"]

LEAST_GAIN = 1e-9
"""The best start ends too when some iterations gain less than this per item: at a bound it would crawl for ever."""


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
    """Where each start ends; the points are parameters, the losses are per item.

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
    program, transform = compiled_program(model, use_prior), transform_of(model)
    program.check(starts[0])
    if algorithm == "em":
        optima = Expectation(model, rows, use_prior, max_iterations, tolerance or 1e-10).maximise(starts)
        points = list(optima.points)
    else:
        optima = maximise_likelihood(
            model,
            rows,
            [transform.unconstrain(params) for params in starts],
            use_prior=use_prior,
            max_iterations=max_iterations,
            tolerance=tolerance or 1e-7,
            needed=np.inf if at_least is None else -at_least / rows.num_items,
        )
        points = [transform.constrain(point) for point in optima.points]
    return optima._replace(points=stack([unflatten(params, program.shapes) for params in points]))


def prior_starts(model: GenerativeModel, number: int, generator: np.random.Generator) -> list[Flat]:
    """Draws from the priors; one at a bound, where derivatives vanish, is moved a little inside."""
    transform = transform_of(model)
    return [transform.constrain(transform.unconstrain(draw_params(model, generator))) for _ in range(number)]


def label_start(
    model: GenerativeModel, rows: Rows, label_probs: Float[np.ndarray, "item label"], generator: np.random.Generator
) -> Flat:
    """The parameters that suit soft labels of the items best, about.

    Args:
        model: The generative model.
        rows: The votes.
        label_probs: The soft labels, times the count of each item where items have counts.
        generator: Where the search begins.
    """
    totals = np.stack([np.bincount(rows.inverse, part, len(rows.counts)) for part in label_probs.T], axis=1)
    return transform_of(model).constrain(towards_labels(model, rows, totals, normal_point(model, generator)))


def log_joint_at(
    model: GenerativeModel, params: Params, rows: Rows, use_prior: bool = False
) -> Float[np.ndarray, "label row"]:
    """`log p(label, votes)` of each row at some parameters, −∞ for a label that is known to be another.

    `use_prior` only says which of the two compiled programs is at hand.
    """
    program = compiled_program(model, use_prior)
    return rows.label_log_joint(program(flatten(params, program.shapes)).tables)


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


def towards_labels(
    model: GenerativeModel,
    rows: Rows,
    totals: Float[np.ndarray, "row label"],
    start: Flat,
    *,
    max_iterations: int = 100,
    near_zero: float = 0.1,
) -> Flat:
    """The point that suits soft labels best, about.

    Every label gets one vote more of each kind by each voter, so that what nobody did is not impossible.

    Args:
        model: The generative model.
        rows: The votes.
        totals: The sum of the soft labels of each row's items.
        start: Where to start.
        max_iterations: Limit on the iterations.
        near_zero: The start is scaled by this where labels are all there is to explain votes.
    """
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
