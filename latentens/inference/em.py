"""Expectation–maximisation on the tables: the E-step is a gradient, the M-step costs the same for any number of items.

The derivatives of the log-likelihood by the two tables are the expected counts of (label, state) and of
(state, voter, vote). The M-step maximises `Σ expected count · log table(params)`, plus the log prior if wanted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentens.inference.optimise import Descent, Optima, descend_from, gathered, in_parallel
from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import Flat, flatten, parameter_supports, transform_of, unflatten
from latentens.programs.rows import CompiledProgram, Rows, compiled_program
from latentens.programs.tables import Tables
from latentens.runtime.parallel import stop_if_asked

INSIDE = 1e-12
"""Closed-form updates keep probabilities this far from 0 and 1, where derivatives are lost."""

GRADIENT_STEPS = 10
"""Iterations of L-BFGS in an M-step that has no closed form."""

CLOSED_FORM_SLOPE = 1e-6
"""A closed form is believed if the gradient that it leaves, per item, is below this."""


@dataclass(frozen=True, eq=False)
class Expectation:
    """EM for one program and its votes.

    Attributes:
        model: The generative model.
        rows: The votes.
        use_prior: Whether to maximise the posterior density instead of the likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when an iteration gains less than this per item.
    """

    model: GenerativeModel
    rows: Rows
    use_prior: bool
    max_iterations: int
    tolerance: float

    @cached_property
    def _program(self) -> CompiledProgram:
        return compiled_program(self.model, self.use_prior)

    def maximise(self, starts: Sequence[Flat]) -> Optima:
        """Run EM from parameters; the points of the result are parameters, losses are per item."""
        closed = self._has_closed_form(starts[0])  # compiles what all starts share
        return gathered(in_parallel(partial(self._run, closed), starts, "expectation–maximisation"))

    def _run(self, closed: bool, params: Flat) -> Descent:
        loss, counts = self._expect(params)
        losses = [loss]
        for _ in range(self.max_iterations):
            stop_if_asked()
            moved = self._closed_form(params, counts) if closed else self._climb(params, counts)
            loss, counts = self._expect(moved)
            if loss > losses[-1]:  # by rounding only: an M-step never makes the expected log-likelihood fall
                break
            params = moved
            losses.append(loss)
            if losses[-2] - losses[-1] < self.tolerance:
                break
        _, slopes = Objective(self.model, self.rows.expect, self.rows.num_items, self.use_prior).at(params)
        return Descent(params, losses[-1], self._largest(params, slopes), np.array(losses))

    def _expect(self, params: Flat) -> tuple[float, Tables]:
        """The loss per item at some parameters and the expected counts that stand in the places of the tables."""
        tables, log_prior = self._program(params)
        value, counts = self.rows.expect(tables)
        return -(value + log_prior) / self.rows.num_items, counts

    def _climb(self, params: Flat, counts: Tables) -> Flat:
        """An M-step by gradient."""
        objective = Objective(self.model, expected(counts), self.rows.num_items, self.use_prior)
        transform = transform_of(self.model)
        start = transform.unconstrain(params)
        end = descend_from(objective, start, max_iterations=GRADIENT_STEPS, tolerance=0.0)
        moved = transform.constrain(end.point)
        return moved if objective.at(moved)[0] <= objective.at(params)[0] else params

    def _has_closed_form(self, params: Flat) -> bool:
        supports = parameter_supports(self.model)
        if any(support not in (constraints.unit_interval, constraints.simplex) for support in supports.values()):
            return False
        _, counts = self._expect(params)
        moved = self._closed_form(params, counts)
        slopes = self._program.pull_back(moved, counts) / self.rows.num_items
        return self._largest(moved, slopes) < CLOSED_FORM_SLOPE

    def _closed_form(self, params: Flat, counts: Tables) -> Flat:
        """The maximum of a sum of `A log θ + B log(1 − θ)` (probabilities) and `Σ A_k log θ_k` (shares).

        A and B follow from the derivatives at the present θ and at another one. Whether the objective is such a sum is
        not known beforehand: the slope that is left at the supposed maximum tells.
        """
        shapes, supports = self._program.shapes, parameter_supports(self.model)
        values = unflatten(params, shapes)
        are_probabilities = {name: supports[name] is constraints.unit_interval for name in shapes}
        others = {
            name: np.where(value < 0.5, value + 0.25, value - 0.25) if are_probabilities[name] else value
            for name, value in values.items()
        }
        slopes, other_slopes = (
            unflatten(self._program.pull_back(flatten(at, shapes), counts), shapes) for at in (values, others)
        )
        moved = {
            name: _probability(value, slopes[name], others[name], other_slopes[name])
            if are_probabilities[name]
            else _shares(value, slopes[name])
            for name, value in values.items()
        }
        return flatten(moved, shapes)

    def _largest(self, params: Flat, slopes: Flat) -> float:
        """The largest derivative in unconstrained space (logits for probabilities)."""
        transform = transform_of(self.model)
        return float(np.abs(transform.pull_back(transform.unconstrain(params), params, slopes)).max(initial=0.0))


def _probability(
    value: Float[np.ndarray, "*shape"],
    slope: Float[np.ndarray, "*shape"],
    other: Float[np.ndarray, "*shape"],
    other_slope: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Where `A log θ + B log(1 − θ)` is largest, given its derivatives at two places."""
    failures = (slope * value / other - other_slope) / (1 / (1 - other) - value / (other * (1 - value)))
    failures = np.maximum(failures, 0.0)
    successes = np.maximum(slope * value + failures * value / (1 - value), 0.0)
    total = successes + failures
    return np.where(total > 0, successes / np.where(total > 0, total, 1.0), value).clip(INSIDE, 1 - INSIDE)


def _shares(value: Float[np.ndarray, "*shape share"], slope: Float[np.ndarray, "*shape share"]) -> np.ndarray:
    counts = np.maximum(value * slope, 0.0)
    total = counts.sum(axis=-1, keepdims=True)
    moved = np.where(total > 0, counts / np.where(total > 0, total, 1.0), value).clip(min=INSIDE)
    return moved / moved.sum(axis=-1, keepdims=True)


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
        tables, log_prior = self.program(params)
        value, derivatives = self.score(tables)
        return -(value + log_prior) / self.num_items, self.program.pull_back(params, derivatives) / -self.num_items


def expected(counts: Tables) -> Score:
    """What an M-step maximises: the sum of counts times the logarithms in the tables."""
    return lambda tables: (float(np.vdot(counts[0], tables[0]) + np.vdot(counts[1], tables[1])), counts)
