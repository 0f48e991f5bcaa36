"""The likelihood of rows of votes and its derivatives by the tables, which are expected counts, in NumPy.

One pass over rows is a sparse product (rows, joint votes) · (joint votes, states), a log-sum over states and the
product with the transpose. Nothing is compiled for it, whatever the number of rows. The only compiled part is
`CompiledProgram`, from parameters to tables and from derivatives by the tables back to derivatives by the parameters,
whose size depends on the model alone.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import Flat, unflatten
from latentens.programs.tables import (
    LOG_ZERO,
    Tables,
    check_fittable,
    check_form,
    checked_tables,
    labelled_rows,
    lay_out,
)
from latentens.runtime.blocks import BLOCK_ELEMENTS, COPIES
from latentens.runtime.compilation import ONE_THREAD
from latentens.runtime.limits import check_memory
from latentens.runtime.numerics import SMALLEST, row_maxima
from latentens.runtime.parallel import stop_if_asked
from latentens.votes import Votes
from latentens.votes.layout import Block, Incidence, Sums, incidence_of

Weights = Float[np.ndarray, " row"] | Float[np.ndarray, "row label"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct rows of votes, their counts and, where some labels are known, the labels that each may have.

    Attributes:
        votes: One item per row.
        incidence: The rows, laid out.
        counts: Number of items of each row.
        inverse: The row of each item.
        allowed: The labels that a row may have; None if no label is known.
    """

    votes: Votes
    incidence: Incidence
    counts: Float[np.ndarray, " row"]
    inverse: Int[np.ndarray, " item"]
    allowed: Bool[np.ndarray, "row label"] | None

    @classmethod
    def of(
        cls,
        model: GenerativeModel,
        votes: Votes,
        gold: Int[np.ndarray, " item"] | None = None,
        *,
        to_fit: bool = True,
        block_elements: int = BLOCK_ELEMENTS,
    ) -> "Rows":
        """Lay out votes, and known labels if there are any.

        Args:
            model: The model.
            votes: The votes.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.
            to_fit: Whether the model is to be fitted, so that votes must be informative about the label.
            block_elements: Size of the arrays that are made of some rows at a time, which bounds the memory.
        """
        structure = check_form(model, votes)
        if to_fit:
            check_fittable(model)
        rows = labelled_rows(votes, gold, structure.num_labels)
        states = math.prod(len(structure.hidden[name].support) for name in structure.vote_parents)
        check_memory(
            COPIES * 8.0 * states * min(rows.votes.num_items, max(1, block_elements // states)),
            f"fitting {model} to {len(rows.counts):,} distinct rows of votes",
            "use fewer hidden units, or fit a sample of the items by votes.take",
        )
        incidence = incidence_of(rows.votes, elements_per_row=states, block_elements=block_elements)
        allowed = None if gold is None else rows.allowed
        return cls(rows.votes, incidence, rows.counts.astype(np.float64), rows.inverse, allowed)

    @property
    def num_items(self) -> float:
        """Number of items."""
        return float(self.counts.sum())

    def expect(self, tables: Tables) -> tuple[float, Tables]:
        """The log-likelihood, and the expected counts in the places of the tables: its derivatives by them."""
        return self._sum(tables, self.counts if self.allowed is None else self.counts[:, None] * self.allowed, False)

    def expect_labelled(self, tables: Tables, totals: Float[np.ndarray, "row label"]) -> tuple[float, Tables]:
        """As `expect`, of votes with soft labels, given the sum of the labels over each row's items."""
        return self._sum(tables, totals, True)

    def label_log_joint(self, tables: Tables) -> Float[np.ndarray, "label row"]:
        """`log p(label, votes)` of each row, −∞ for a label that is known to be another."""
        laid_out = _LaidOut.of(tables, self)
        found = np.concatenate([laid_out.log_joint(block) for block in self.incidence.blocks])
        if self.allowed is not None:
            found[~self.allowed] = -np.inf
        return found.T

    def log_likelihood(self, tables: Tables) -> Float[np.ndarray, " row"]:
        """`log p(votes, known label)` of each row."""
        return np.asarray(logsumexp(self.label_log_joint(tables), axis=0))

    def _sum(self, tables: Tables, weights: Weights, labelled: bool) -> tuple[float, Tables]:
        laid_out = _LaidOut.of(tables, self)
        work = partial(laid_out.expect, weights=weights, labelled=labelled)
        value, prior, columns = self.incidence.sum_blocks(work)
        votes = self.incidence.vote_totals(columns).T
        emission = np.zeros(tables.log_emission.shape)
        emission[..., : self.votes.num_categories] = votes.reshape(*emission.shape[:3], -1)
        return float(value), Tables(laid_out.by_label(prior), emission)


@dataclass(frozen=True, eq=False)
class _LaidOut:
    """Tables laid out for a pass over rows. A state is here a label with a state if votes depend on the label.

    Attributes:
        columns: Sums of log-emissions by joint votes.
        log_weight: Log prior of each state.
        share: The posterior of the label given each state alone.
        parents: As in `Tables`.
    """

    columns: Float[np.ndarray, "column state"]
    log_weight: Float[np.ndarray, " state"]
    share: Float[np.ndarray, "label state"]
    parents: int

    @classmethod
    def of(cls, tables: Tables, rows: Rows) -> "_LaidOut":
        parents, states = tables.log_emission.shape[:2]
        table = tables.log_emission[..., : rows.votes.num_categories].reshape(parents * states, -1)
        columns = rows.incidence.column_table(table.T)
        labels = len(tables.log_prior)
        if parents > 1:
            return cls(columns, tables.log_prior.ravel(), np.repeat(np.eye(labels), states, axis=1), parents)
        peak = tables.log_prior.max(axis=0)
        joint = np.exp(tables.log_prior - peak)
        total = joint.sum(axis=0)
        return cls(columns, peak + np.log(total), joint / total, parents)

    def by_label(self, prior: Float[np.ndarray, "*label state"]) -> Float[np.ndarray, "label state"]:
        """Counts of labels and states in the form of the table of the prior."""
        counts = self.share * prior
        return counts.reshape(len(counts), self.parents, -1).sum(axis=1) if self.parents > 1 else counts

    def expect(self, block: Block, *, weights: Weights, labelled: bool) -> Sums:
        """Of a block of rows the log-likelihood, and the counts of states, by label if known, and of joint votes."""
        posterior, peak = self._joint(block)
        weight = weights[block.place]
        if weight.ndim == 1:  # no label is known: posteriors of states alone
            totals = posterior.sum(axis=1)
            value = weight @ (np.log(totals) + peak)
            posterior *= (weight / totals)[:, None]
            return np.array(value), np.einsum("rs->s", posterior), block.transpose @ posterior
        # with labels, the posterior of a state is its share of each label, weighted by the label
        by_label = np.maximum(posterior @ self.share.T, SMALLEST)
        if labelled:
            value = np.sum(weight * (np.log(by_label) + peak[:, None]))
            ratio = weight / by_label
        else:  # a label weighs as much as its row, or nothing if it is excluded
            size = weight.max(axis=1)
            totals = (by_label * (weight > 0)).sum(axis=1)
            value = size @ (np.log(totals) + peak)
            ratio = weight / totals[:, None]
        prior = ratio.T @ posterior
        posterior *= ratio @ self.share
        return np.array(value), prior, block.transpose @ posterior

    def log_joint(self, block: Block) -> Float[np.ndarray, "row label"]:
        posterior, peak = self._joint(block)
        with np.errstate(divide="ignore"):
            return np.log(posterior @ self.share.T) + peak[:, None]

    def _joint(self, block: Block) -> tuple[Float[np.ndarray, "row state"], Float[np.ndarray, " row"]]:
        """Joint probabilities of rows and states, relative to each row's most probable state, and the log of that."""
        joint = block.matrix @ self.columns
        joint += self.log_weight
        peak = row_maxima(joint)
        joint -= peak[:, None]
        np.maximum(joint, LOG_ZERO, out=joint)  # exponentials of subnormal results are ten times slower
        return np.exp(joint, out=joint), peak


class Evaluation(NamedTuple):
    """A program at some parameters: its tables, and the log prior density of the parameters if it is used, else 0."""

    tables: Tables
    log_prior: float


class CompiledProgram:
    """The compiled program of a model, at parameters that are one vector in the order of the structure's."""

    def __init__(self, model: GenerativeModel, use_prior: bool) -> None:
        self.model, self.shapes, self.use_prior = model, structure_of(model).parameter_shapes, use_prior
        num_parameters = sum(map(math.prod, self.shapes.values()))
        parts, _ = jax.eval_shape(self._run, jax.ShapeDtypeStruct((num_parameters,), np.float64))
        self._table_shapes = [part.shape for part in parts[:2]]
        self._edges = np.cumsum([0, *(part.size for part in parts)]).tolist()
        self._nothing = jax.device_put(np.zeros(self._edges[-1]))

        def evaluate(params: Array, derivatives: Array) -> Array:
            found, pull_back, holds = jax.vjp(self._run, params, has_aux=True)
            (slopes,) = pull_back(self._split(derivatives))
            return jnp.concatenate([*(part.ravel() for part in found), holds[None], slopes])

        self._evaluate = jax.jit(evaluate, compiler_options=ONE_THREAD)

    def __call__(self, params: Flat) -> Evaluation:
        """The tables and the log prior density."""
        prior, emission, log_prior = self._split(np.asarray(self._evaluate(params, self._nothing)))
        return Evaluation(Tables(prior, emission), float(log_prior))

    def check(self, params: Flat) -> None:
        """Raise `ParameterError` or `ContractError` if the program gives improper probabilities."""
        found, end = np.asarray(self._evaluate(params, self._nothing)), self._edges[-1]
        if not found[end] or np.isnan(found[:end]).any():
            checked_tables(self.model, unflatten(params, self.shapes))  # raises the error

    def pull_back(self, params: Flat, derivatives: Tables) -> Flat:
        """The derivatives by the parameters of something plus the log prior density.

        Args:
            params: The parameters.
            derivatives: The derivatives of that something by the elements of the tables.
        """
        given = np.concatenate([derivatives.log_prior.ravel(), derivatives.log_emission.ravel(), [1.0]])
        return np.asarray(self._evaluate(params, given))[self._edges[-1] + 1 :]

    def _run(self, flat: Array) -> tuple[tuple[Array, Array, Float[Array, ""]], Float[Array, ""]]:
        """Tables and log prior density, and whether all probabilities are probabilities."""
        found = lay_out(self.model, unflatten(flat, self.shapes))
        log_prior = found.log_prior if self.use_prior else jnp.zeros(())
        holds = jnp.array(list(found.proper.values())).all().astype(float)
        return (found.tables.log_prior, found.tables.log_emission, log_prior), holds

    def _split(self, flat: Any) -> tuple[Any, Any, Any]:
        first, second, third, fourth = self._edges
        prior, emission = flat[first:second], flat[second:third]
        return prior.reshape(self._table_shapes[0]), emission.reshape(self._table_shapes[1]), flat[third:fourth][0]


def tables_at_draws(model: GenerativeModel, draws: Params) -> Iterator[Tables]:
    """The tables at each of many draws of the parameters, which lie along the first axis."""
    program = compiled_program(model, False)
    for params in np.concatenate([np.reshape(draws[name], (len(draws[name]), -1)) for name in program.shapes], axis=1):
        stop_if_asked()
        yield program(params).tables


@lru_cache(maxsize=256)
def compiled_program(model: GenerativeModel, use_prior: bool) -> CompiledProgram:
    """The compiled program of a model, with or without its prior; compiled once."""
    return CompiledProgram(model, use_prior)
