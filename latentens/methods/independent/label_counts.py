"""Expected counts of labels and votes under conditionally independent voters, several sets of parameters at a time.

All goes by odds against the first label: what the votes say about that label itself is the same sum for any
parameters, so that each row is looked up and counted for the other labels only.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from latentens.methods.base import Posterior
from latentens.runtime.blocks import BLOCK_ELEMENTS
from latentens.runtime.numerics import safe_log
from latentens.votes import Votes
from latentens.votes.incidence import Block, Incidence, Sums, incidence_of

LARGEST_EXPONENT = 700.0
"""Exponentials up to this do not overflow, not even a sum of a hundred."""


class Estimates(NamedTuple):
    """Parameters of several starts side by side."""

    shares: Float[np.ndarray, "label start"]
    confusion: Float[np.ndarray, "label start voter vote"]


class Expected(NamedTuple):
    """Expected counts under some parameters, and the log-likelihood of these where it is known."""

    labels: Float[np.ndarray, "label start"]
    votes: Float[np.ndarray, "label start voter vote"]
    log_likelihood: Float[np.ndarray, " start"]


class VotePrior(NamedTuple):
    """What is known of voters before any vote: log-density Σ votes · log θ + Σ wrong · log(1 − θ_kk) + offset.

    The shares of the classes have a density of their own, classes · Σ log π.
    """

    votes: Float[np.ndarray, "label #start #voter vote"]
    """Added to how often each voter cast each vote on each class."""
    wrong: Float[np.ndarray, "label start voter"] | None
    """Further mistakes on each class, which are divided as the other ones are; less than none if negative."""
    classes: float
    """Added to the number of items of each class, so that none is ruled out."""
    offset: Float[np.ndarray, " start"] | float = 0.0

    @classmethod
    def of_counts(cls, pseudo_counts: Float[np.ndarray, "label vote"]) -> "VotePrior":
        """The same pseudo-counts for all voters, and the smallest of them for each class."""
        return cls(pseudo_counts[:, None, None], None, float(pseudo_counts.min()))

    def given(self, expected: Expected) -> "VotePrior":
        """The same whatever the counts: as a rule, it is one that does not depend on them."""
        del expected
        return self

    def added(self, num_voters: int) -> Float[np.ndarray, "voter label vote"]:
        """The votes that it amounts to for each voter of a single start, mistakes included."""
        votes = np.broadcast_to(self._divided(self.votes), (len(self.votes), 1, num_voters, len(self.votes)))
        return np.ascontiguousarray(votes[:, 0].transpose(1, 0, 2))

    def to(self, votes: Float[np.ndarray, "label start voter vote"]) -> Float[np.ndarray, "label start voter vote"]:
        """Counts of votes, added to."""
        return self._divided(votes + self.votes)

    def _divided(self, votes: Float[np.ndarray, "label start voter vote"]) -> np.ndarray:
        if self.wrong is None:
            return votes
        wrong = ~np.eye(len(votes), dtype=bool)[:, None, None]
        made = np.where(wrong, votes, 0.0).sum(axis=3)
        return np.where(wrong, votes * ((made + self.wrong) / made)[..., None], votes)

    def log_density(self, logs: Estimates) -> Float[np.ndarray, " start"]:
        """Up to a constant, given the logarithms of the parameters."""
        density = (self.votes * logs.confusion).sum(axis=(0, 2, 3)) + self.offset
        density += self.classes * logs.shares.sum(axis=0)
        if self.wrong is not None:
            right = np.einsum("ksjk->ksj", logs.confusion)
            density += (self.wrong * safe_log(-np.expm1(np.minimum(right, 0.0)))).sum(axis=(0, 2))
        return density


class PriorRule(Protocol):
    """The prior that follows from expected counts; a `VotePrior` is one that does not depend on them."""

    def given(self, expected: Expected) -> VotePrior:
        """The prior of each start."""
        ...


class CountedRows(NamedTuple):
    """Distinct rows of votes and how often each occurs."""

    incidence: Incidence
    counts: Float[np.ndarray, " row"] | None
    """None if every row occurs once."""
    num_items: int
    cast: Float[np.ndarray, "voter vote"]
    """How often each voter cast each vote."""
    known: "Expected | None" = None
    """Counts from items whose label is known, which are the same under all parameters."""

    def counts_of(self, block: Block) -> Float[np.ndarray, " row"] | None:
        """The counts of the rows of a block."""
        return None if self.counts is None else self.counts[block.place]


def count_rows(rows: Votes, counts: Int[np.ndarray, " row"], *, block_elements: int = BLOCK_ELEMENTS) -> CountedRows:
    """Lay out distinct rows."""
    incidence = incidence_of(rows, block_elements=block_elements)
    weights = None if (counts == 1).all() else counts.astype(np.float64)

    def cast(block: Block) -> Sums:
        return (block.transpose @ (np.ones(block.matrix.shape[0]) if weights is None else weights[block.place]),)

    (totals,) = incidence.sum_blocks(cast)
    by_vote = incidence.vote_totals(totals).reshape(rows.num_voters, -1)
    return CountedRows(incidence, weights, int(counts.sum()), by_vote)


def expect_labels(data: CountedRows, starts: Sequence[Posterior]) -> Expected:
    """The counts if each start's probabilities were the posterior of the labels."""

    def count(block: Block) -> Sums:
        probs = np.stack([start[block.place, 1:] for start in starts], axis=2)
        return _count(block, probs, data.counts_of(block))

    totals, labels = data.incidence.sum_blocks(count)
    return _with_known(data, _expected(data, totals, labels, np.full(len(starts), np.nan)))


def expectation(data: CountedRows, estimates: Estimates) -> Expected:
    """The counts under the posterior at some parameters, without keeping the posterior of the rows."""
    return expectation_at_logs(data, Estimates(*map(safe_log, estimates)))


def expectation_at_logs(data: CountedRows, logs: Estimates) -> Expected:
    """The same, given the logarithms of the parameters."""
    log_shares, log_confusion = logs
    num_starts = log_shares.shape[1]
    table = (log_confusion[1:] - log_confusion[0]).reshape(-1, data.cast.size).T
    table = data.incidence.column_table(table)
    offset = (log_shares[1:] - log_shares[0]).ravel()

    def count(block: Block) -> Sums:
        odds = _product(block.matrix, table)
        odds += offset
        probs, log_totals = _normalise(odds.reshape(len(odds), -1, num_starts))
        counts = data.counts_of(block)
        return *_count(block, probs, counts), _sum_rows(log_totals, counts)

    totals, labels, above_first = data.incidence.sum_blocks(count)
    of_first = data.num_items * log_shares[0] + (log_confusion[0] * data.cast).sum(axis=(1, 2))
    expected = _with_known(data, _expected(data, totals, labels, of_first + above_first))
    if data.known is None:
        return expected
    of_known = (data.known.labels * log_shares).sum(axis=0) + (data.known.votes * log_confusion).sum(axis=(0, 2, 3))
    return expected._replace(log_likelihood=expected.log_likelihood + of_known)


def maximisation(expected: Expected, prior: VotePrior) -> Estimates:
    """Shares and confusion matrices that maximise expected log-likelihood and prior; even where nothing is counted."""
    votes = prior.to(expected.votes)
    total = votes.sum(axis=3, keepdims=True)
    confusion = np.where(total > 0, votes / np.where(total > 0, total, 1.0), 1 / votes.shape[3])
    labels = expected.labels + prior.classes
    return Estimates(labels / labels.sum(axis=0), confusion)


def _with_known(data: CountedRows, expected: Expected) -> Expected:
    """Add the counts of items whose label is known."""
    if data.known is None:
        return expected
    return Expected(expected.labels + data.known.labels, expected.votes + data.known.votes, expected.log_likelihood)


def _normalise(
    odds: Float[np.ndarray, "row other start"],
) -> tuple[Float[np.ndarray, "row other start"], Float[np.ndarray, "row start"]]:
    """Probabilities of the labels after the first from log-odds against it, and `log(1 + Σ exp(odds))`."""
    highest = None
    if odds.max() > LARGEST_EXPONENT:  # rare; elsewhere the first label's zero is as good as the highest odds
        highest = np.maximum(odds.max(axis=1, keepdims=True), 0.0)
        odds -= highest
    joint = np.exp(odds, out=odds)
    total = joint[:, 0] + (1.0 if highest is None else np.exp(-highest[:, 0]))
    for other in range(1, joint.shape[1]):
        total += joint[:, other]
    joint /= total[:, None]
    np.log(total, out=total)
    return joint, total if highest is None else total + highest[:, 0]


def _count(block: Block, probs: Float[np.ndarray, "row other start"], counts: Float[np.ndarray, " row"] | None) -> Sums:
    """Totals by column and by label."""
    weights = probs.reshape(len(probs), -1)
    if counts is not None:
        weights = weights * counts[:, None]
    return _product(block.transpose, weights), _sum_rows(weights)


def _sum_rows(
    array: Float[np.ndarray, "row value"], counts: Float[np.ndarray, " row"] | None = None
) -> Float[np.ndarray, " value"]:
    """The sum over rows.

    By einsum: with few columns it is several times quicker than `sum(axis=0)`, and threads of a matrix product would
    get into the way of ours.
    """
    return np.einsum("rs->s", array) if counts is None else np.einsum("r,rs->s", counts, array)


def _product(
    matrix: sparse.csr_array | sparse.csc_array, array: Float[np.ndarray, "inner column"]
) -> Float[np.ndarray, "outer column"]:
    """`matrix @ array`, by the quicker routine for vectors if there is one column."""
    return matrix @ array if array.shape[1] > 1 else (matrix @ array[:, 0])[:, None]


def _expected(
    data: CountedRows,
    totals: Float[np.ndarray, "column value"],
    labels: Float[np.ndarray, " value"],
    log_likelihood: Float[np.ndarray, " start"],
) -> Expected:
    """Counts of all labels; the first label has what the others leave."""
    others = data.incidence.vote_totals(totals).T.reshape(-1, len(log_likelihood), *data.cast.shape)
    first = np.maximum(data.cast - others.sum(axis=0), 0.0)
    labels = labels.reshape(-1, len(log_likelihood))
    first_label = np.maximum(data.num_items - labels.sum(axis=0), 0.0)
    return Expected(np.concatenate([first_label[None], labels]), np.concatenate([first[None], others]), log_likelihood)
