"""Objectives for fitting a program: in unconstrained space, per item, with their gradients, in NumPy.

An objective is anything whose value and derivatives by the tables are known. The compiled program gives the tables and
takes the derivatives back to the parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentens.programs.model import GenerativeModel
from latentens.programs.parameters import Flat, transform_of
from latentens.programs.rows import CompiledProgram, compiled_program
from latentens.programs.tables import Tables

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
