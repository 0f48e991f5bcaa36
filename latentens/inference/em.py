"""Expectation–maximisation on the tables: the E-step is a gradient, the M-step costs the same for any number of items.

The derivatives of the log-likelihood by the two tables are the expected counts of (label, state) and of
(state, voter, vote). The M-step maximises `Σ expected count · log table(params)`, plus the log prior if wanted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from latentens.inference.optimise import Optima, descend, in_parallel, stack
from latentens.programs.marginal import (
    Observations,
    marginal_log_likelihood,
    parameter_supports,
    to_params,
    to_point,
    unconstrain,
    unpack,
)
from latentens.programs.model import GenerativeModel
from latentens.programs.row_sums import Tables
from latentens.programs.tables import build_tables
from latentens.runtime.devices import fetch
from latentens.runtime.parallel import stop_if_asked

INSIDE = 1e-12
"""Closed-form updates keep probabilities this far from 0 and 1, where derivatives are lost."""

GRADIENT_STEPS = 10
"""Iterations of L-BFGS in an M-step that has no closed form."""

CLOSED_FORM_SLOPE = 1e-6
"""A closed form is believed if the gradient that it leaves, per item, is below this."""

ParamArrays = Mapping[str, Float[np.ndarray, "..."]]


@dataclass(frozen=True)
class Expectation:
    """EM for one program.

    Attributes:
        model: The generative model.
        use_prior: Whether to maximise the posterior density in place of the likelihood.
        max_iterations: Limit on the iterations of each start.
        tolerance: A start has converged when an iteration gains less than this per item.
    """

    model: GenerativeModel
    use_prior: bool
    max_iterations: int
    tolerance: float

    def maximise(self, starts: Sequence[ParamArrays], observations: Observations) -> Optima:
        """Run EM from each start; points of the result are parameters, losses are per item."""
        return self._maximise(starts, observations, self._has_closed_form(starts[0], observations))

    def approach(self, starts: Sequence[ParamArrays], observations: Observations) -> Optima | None:
        """The same if the M-step has a closed form; None if it would take gradients itself."""
        closed = self._has_closed_form(starts[0], observations)
        return self._maximise(starts, observations, closed) if closed else None

    def _maximise(self, starts: Sequence[ParamArrays], observations: Observations, closed: bool) -> Optima:
        replace(self, max_iterations=1)._run(observations, closed, starts[0])  # compiles what all starts share
        runs = in_parallel(partial(self._run, observations, closed), starts, "expectation–maximisation")
        params, curves = zip(*runs, strict=True)
        slopes = [float(_slope(self.model, self.use_prior, point, observations)) for point in params]
        ends = np.array([curve[-1] for curve in curves])
        return Optima(stack(params), ends, np.array(slopes), np.array([len(c) - 1 for c in curves]), list(curves))

    def _run(self, observations: Observations, closed: bool, params: ParamArrays) -> tuple[ParamArrays, np.ndarray]:
        loss, counts = _expect(self.model, self.use_prior, params, observations)
        losses = [float(loss)]
        for _ in range(self.max_iterations):
            stop_if_asked()
            moved = self._update(params, counts, closed)
            loss, counts = _expect(self.model, self.use_prior, moved, observations)
            if loss > losses[-1]:  # by rounding only: an M-step never makes the expected log-likelihood fall
                break
            params = moved
            losses.append(float(loss))
            if losses[-2] - losses[-1] < self.tolerance:
                break
        return params, np.array(losses)

    def _update(self, params: ParamArrays, counts: Tables, closed: bool) -> ParamArrays:
        if closed:
            return fetch(_closed_form(self.model, self.use_prior, params, counts).params)
        objective = NegativeExpected(self.model, self.use_prior)
        end, _ = descend(objective, to_point(self.model, params), counts, max_iterations=GRADIENT_STEPS, tolerance=0.0)
        moved = to_params(self.model, end.point)
        before, after = (float(_expected(self.model, self.use_prior, p, counts)) for p in (params, moved))
        return moved if after >= before else params

    def _has_closed_form(self, params: ParamArrays, observations: Observations) -> bool:
        supports = parameter_supports(self.model)
        if any(support not in (constraints.unit_interval, constraints.simplex) for support in supports.values()):
            return False
        _, counts = _expect(self.model, self.use_prior, params, observations)
        return bool(_closed_form(self.model, self.use_prior, params, counts).slope < CLOSED_FORM_SLOPE)


class _Update(NamedTuple):
    params: dict[str, Array]
    slope: Float[Array, ""]


@dataclass(frozen=True)
class NegativeExpected:
    """Loss of the M-step in unconstrained space, per item: its data are expected counts in the places of the tables."""

    model: GenerativeModel
    use_prior: bool

    def __call__(self, point: dict[str, Array], counts: Tables) -> Float[Array, ""]:
        """The loss at a point."""
        params = unpack(self.model, point).params
        return -_expected(self.model, self.use_prior, params, counts) / counts.log_prior.sum()


def _log_prior(model: GenerativeModel, use_prior: bool, params: Any) -> Float[Array, ""]:
    return unpack(model, unconstrain(model, params)).log_prior if use_prior else jnp.array(0.0)


@partial(jax.jit, static_argnums=(0, 1))
def _expect(
    model: GenerativeModel, use_prior: bool, params: Any, observations: Observations
) -> tuple[Float[Array, ""], Tables]:
    """The loss per item at some parameters and the expected counts that stand in the places of the tables."""
    tables = build_tables(model, params)
    likelihood, counts = jax.value_and_grad(marginal_log_likelihood)(tables, observations)
    return -(likelihood + _log_prior(model, use_prior, params)) / observations.num_items, counts


@partial(jax.jit, static_argnums=(0, 1))
def _expected(model: GenerativeModel, use_prior: bool, params: Any, counts: Tables) -> Float[Array, ""]:
    """What the M-step maximises."""
    products = jax.tree.map(lambda count, table: jnp.sum(count * table), counts, build_tables(model, params))
    return sum(products) + _log_prior(model, use_prior, params)


@partial(jax.jit, static_argnums=(0, 1))
def _slope(model: GenerativeModel, use_prior: bool, params: Any, observations: Observations) -> Float[Array, ""]:
    gradient = jax.grad(lambda values: _expect(model, use_prior, values, observations)[0])(params)
    return _largest_slope(model, params, gradient)


@partial(jax.jit, static_argnums=(0, 1))
def _closed_form(model: GenerativeModel, use_prior: bool, params: Any, counts: Tables) -> _Update:
    """The maximum of a sum of `A log θ + B log(1 − θ)` (probabilities) and `Σ A_k log θ_k` (shares).

    A and B are read off the first two derivatives at the present θ. Whether the objective is such a sum is not known
    beforehand: the slope that is left at the supposed maximum tells.
    """
    gradient_of = jax.grad(partial(_expected, model, use_prior), argnums=0)
    supports = parameter_supports(model)
    direction = {
        name: jnp.ones_like(value) * (supports[name] is constraints.unit_interval) for name, value in params.items()
    }
    gradient, curvature = jax.jvp(lambda values: gradient_of(values, counts), (params,), (direction,))
    moved = {
        name: _probability_update(value, gradient[name], curvature[name])
        if supports[name] is constraints.unit_interval
        else _share_update(value, gradient[name])
        for name, value in params.items()
    }
    slope = _largest_slope(model, moved, gradient_of(moved, counts)) / counts.log_prior.sum()
    return _Update(moved, slope)


def _probability_update(value: Array, gradient: Array, curvature: Array) -> Array:
    failures = jnp.maximum((-curvature - gradient / value) * value * (1 - value), 0.0)
    successes = jnp.maximum(gradient + failures, 0.0)
    successes, failures = successes * value, failures * (1 - value)
    total = successes + failures
    moved = jnp.where(total > 0, successes / jnp.where(total > 0, total, 1.0), value)
    return moved.clip(INSIDE, 1 - INSIDE)


def _share_update(value: Array, gradient: Array) -> Array:
    counts = jnp.maximum(value * gradient, 0.0)
    total = counts.sum(axis=-1, keepdims=True)
    moved = jnp.where(total > 0, counts / jnp.where(total > 0, total, 1.0), value).clip(min=INSIDE)
    return moved / moved.sum(axis=-1, keepdims=True)


def _largest_slope(model: GenerativeModel, params: Any, gradient: Any) -> Float[Array, ""]:
    """The largest derivative in unconstrained space (logits for probabilities)."""
    point = unconstrain(model, params)
    _, pull_back = jax.vjp(lambda free: unpack(model, free).params, point)
    (slopes,) = pull_back(gradient)
    return jnp.max(jnp.stack([jnp.abs(slope).max(initial=0.0) for slope in slopes.values()]))
