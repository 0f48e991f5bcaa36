"""What is minimised in fitting a program: in unconstrained space, per item."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from latentens.inference.costly import is_costly
from latentens.inference.em import NegativeExpected
from latentens.inference.optimise import Loss, descend
from latentens.programs.contract import inspect
from latentens.programs.marginal import Observations, by_row_blocks, marginal_log_likelihood, unpack
from latentens.programs.model import GenerativeModel
from latentens.programs.row_sums import Tables, log_joint
from latentens.programs.tables import build_tables

WARM_ITERATIONS = 100
"""Iterations towards the labels of a cheaper method."""

NEAR_ZERO = 0.1
"""A start is so much nearer to zero where labels are all there is to explain votes."""

Point = dict[str, np.ndarray]


@dataclass(frozen=True)
class MarginalLoss:
    """Negative log-likelihood, or log posterior density."""

    model: GenerativeModel
    use_prior: bool

    def __call__(self, point: dict[str, Array], observations: Observations) -> Float[Array, ""]:
        """The loss at a point."""
        unpacked = unpack(self.model, point)
        objective = marginal_log_likelihood(build_tables(self.model, unpacked.params), observations)
        if self.use_prior:
            objective += unpacked.log_prior
        return -objective / observations.num_items


@dataclass(frozen=True)
class LabelLoss:
    """Negative log-likelihood of votes together with soft labels, slightly held to the prior."""

    model: GenerativeModel

    def __call__(self, point: dict[str, Array], data: tuple[Observations, Array]) -> Float[Array, ""]:
        """The loss at a point, given observations and the sums of soft labels by row."""
        observations, totals = data
        unpacked = unpack(self.model, point)
        joint = _labelled(build_tables(self.model, unpacked.params), observations, totals)
        return -(joint + unpacked.log_prior) / observations.num_items


def towards_labels(
    model: GenerativeModel, observations: Observations, totals: Float[Array, "label row"], start: Point
) -> Point:
    """The point that suits soft labels best, about.

    Args:
        model: The generative model.
        observations: The votes.
        totals: The sum of the soft labels of each row's items.
        start: Where to start.
    """
    loss: Loss = LabelLoss(model)
    data: Any = observations, totals
    if inspect(model).vote_parents == {"label"}:
        # with labels and no hidden units nothing is alike that had to be told apart by chance, and where voters deviate
        # by chance from the first, a scale of their deviations shrinks to nothing before they say anything
        start = {name: NEAR_ZERO * value for name, value in start.items()}
        if is_costly(model, observations):
            # the loss is linear in the tables, so that the votes need to be counted only once
            loss, data = NegativeExpected(model, use_prior=True), _count(model, start, observations, totals)
    return descend(loss, start, data, max_iterations=WARM_ITERATIONS, tolerance=1e-4)[0].point


def _labelled(tables: Tables, observations: Observations, totals: Float[Array, "label row"]) -> Float[Array, ""]:
    return jnp.sum(totals * by_row_blocks(lambda tables, block: log_joint(tables, block.rows), tables, observations))


@partial(jax.jit, static_argnums=0)
def _count(model: GenerativeModel, point: Any, observations: Observations, totals: Float[Array, "label row"]) -> Tables:
    """The counts of labels and votes in the places of the tables."""
    return jax.grad(_labelled)(build_tables(model, unpack(model, point).params), observations, totals)
