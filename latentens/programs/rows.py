"""Rows of votes under the tables of a program, in NumPy: the likelihood and its derivatives, which are expected counts.

One pass is a sparse product (rows, joint votes) · (joint votes, states), a log-sum over states and the product with the
transpose. Nothing is compiled for it, whatever the number of rows.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from latentens.errors import ContractError
from latentens.programs.model import GenerativeModel
from latentens.programs.row_sums import Tables
from latentens.programs.tables import LOG_ZERO, check_form
from latentens.runtime.blocks import COPIES, row_blocks
from latentens.runtime.limits import check_memory
from latentens.runtime.numerics import SMALLEST
from latentens.votes import Votes
from latentens.votes.incidence import Block, Incidence, Sums, incidence_of

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
    def of(cls, model: GenerativeModel, votes: Votes, gold: Int[np.ndarray, " item"] | None = None) -> "Rows":
        """Lay out votes, and known labels if there are any, for fitting a model."""
        structure = check_form(model, votes)
        if not structure.label_informs_votes:
            raise ContractError(
                f"{model}: site 'label' is no ancestor of 'vote', so votes say nothing about how the label comes about;"
                " use simulate and bayes_posterior with known parameters, or a model whose votes depend on the label"
            )
        distinct, counts, inverse = votes.patterns
        allowed = None
        if gold is not None:
            pairs = inverse * (structure.num_labels + 1) + gold + 1
            weights = np.ones(len(pairs)) if votes.counts is None else votes.counts
            _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
            distinct, counts = votes.take(first), np.bincount(inverse, weights, len(first))
            allowed = (gold[first, None] < 0) | (gold[first, None] == np.arange(structure.num_labels))
        states = math.prod(len(structure.hidden[name].support) for name in structure.vote_parents)
        check_memory(
            COPIES * 8.0 * states * max(block.stop - block.start for block in row_blocks(distinct.num_items, states)),
            f"fitting {model} to {len(counts):,} distinct rows of votes",
            "use fewer hidden units, or fit a sample of the items by votes.take",
        )
        incidence = incidence_of(distinct, elements_per_row=states)
        return cls(distinct, incidence, counts.astype(np.float64), inverse, allowed)

    @property
    def num_items(self) -> float:
        """Number of items."""
        return float(self.counts.sum())

    def expect(self, tables: Tables) -> tuple[float, Tables]:
        """The log-likelihood, and the expected counts in the places of the tables: its derivatives by them."""
        return self._sum(tables, self.counts if self.allowed is None else self.counts[:, None] * self.allowed, False)

    def expect_labelled(self, tables: Tables, totals: Float[np.ndarray, "row label"]) -> tuple[float, Tables]:
        """The same of votes together with soft labels, given the sum of these over each row's items."""
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
        emission[..., : self.votes.num_classes] = votes.reshape(*emission.shape[:3], -1)
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
        table = tables.log_emission[..., : rows.votes.num_classes].reshape(parents * states, -1)
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
        if weight.ndim == 1:
            totals = posterior.sum(axis=1)
            value = weight @ (np.log(totals) + peak)
            posterior *= (weight / totals)[:, None]
            return np.array(value), posterior.sum(axis=0), block.transpose @ posterior
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
        peak = joint.max(axis=1)
        joint -= peak[:, None]
        np.maximum(joint, LOG_ZERO, out=joint)  # the exponential takes ten times as long where it is no normal number
        return np.exp(joint, out=joint), peak
