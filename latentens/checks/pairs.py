"""Pairs of voters that agree more, or less, than a model of independent voters says."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp, ndtr

from latentens.checks.vote_statistics import FREE_SHARE, States, draw_pool, row_scores, score_basis, states_of
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.parallel import one_blas_thread
from latentens.scores import Labels, holm
from latentens.votes import Votes
from latentens.votes.labels import MISSING

Matrix = Float[np.ndarray, "voter voter"]

EXPECTED_RARE = 5.0
"""A pair is judged if both voters are expected to cast other votes than their commonest on this many items."""


class PairResiduals(NamedTuple):
    """What is left of the pairs' moments, as correlations; symmetric, zero where a pair is not checked."""

    residual: Matrix
    standard_error: Matrix
    checked: Bool[np.ndarray, "voter voter"]
    saturated: Bool[np.ndarray, "voter voter"]
    """Pairs with enough votes whose moments the parameters fit whatever they are."""
    largest: Float[np.ndarray, " draw"]
    """Draws of the largest residual of all pairs, in standard errors, under the model."""

    @property
    def z_score(self) -> Matrix:
        """The residuals in standard errors."""
        return self.residual / np.where(self.checked, self.standard_error, 1.0)


@double_precision
def pair_residuals(
    model: GenerativeModel, params: Params, votes: Votes, *, num_draws: int, key: jax.Array
) -> PairResiduals:
    """Compare every pair of voters with a fitted model.

    Args:
        model: The generative model.
        params: Its parameters, fitted to the votes.
        votes: The votes; a pair is compared on the items on which both voted.
        num_draws: Number of draws of the largest residual.
        key: Random key of the simulated items.
    """
    generator = numpy_generator(key)
    states = states_of(checked_tables(model, params))
    sample = _Sample.of(model, params, states, votes)
    pool = _Sample.of(model, params, states, draw_pool(states, votes, generator))
    basis = score_basis(pool.scores, pool.counts)
    sample, pool = (rows._replace(scores=rows.scores @ basis) for rows in (sample, pool))
    enough = _enough(states.margin, sample.together)
    noise = generator.standard_normal((num_draws, len(pool.counts)), dtype=np.float32)
    total, variance = np.zeros((2, votes.num_voters, votes.num_voters))
    free, largest = np.zeros_like(enough), np.zeros(num_draws)
    for voter in range(votes.num_voters - 1):
        left = _leave(sample, pool, voter)
        others = slice(voter + 1, None)
        total[voter, others], variance[voter, others], free[voter, others] = left.total, left.variance, left.free
        counted = enough[voter, others] & left.free
        standard = left.deviation[:, counted] / np.sqrt((left.deviation[:, counted] ** 2).sum(axis=0))
        largest = np.maximum(largest, np.abs(noise @ standard.astype(np.float32)).max(axis=1, initial=0.0))
    free |= free.T
    checked = enough & free
    unit = np.where(checked, sample.together * np.sqrt(np.outer(states.variance, states.variance)), 1.0)
    residual = np.where(checked, total + total.T, 0.0) / unit
    standard_error = np.sqrt(np.where(checked, variance + variance.T, 0.0)) / unit
    return PairResiduals(residual, standard_error, checked, enough & ~free, largest)


class _Left(NamedTuple):
    """What the scores leave of the moments of a voter with each later one."""

    total: Float[np.ndarray, " other"]
    """Over the votes."""
    variance: Float[np.ndarray, " other"]
    """Of that total under the model."""
    free: Bool[np.ndarray, " other"]
    """Whether the parameters leave anything at all."""
    deviation: Float[np.ndarray, "row other"]
    """Of each row of the pool, times the root of its count."""


def _leave(sample: "_Sample", pool: "_Sample", voter: int) -> _Left:
    """Regress the pool's moments on its scores, which are orthonormal, and take the regression off the sample's."""
    moments = pool.moments(voter)
    slope = pool.scores.T @ (moments * pool.counts[:, None])
    deviation = (moments - pool.scores @ slope) * np.sqrt(pool.counts)[:, None]
    squares, before = (deviation**2).sum(axis=0), pool.counts @ moments**2
    total = sample.counts @ sample.moments(voter) - (sample.counts @ sample.scores) @ slope
    variance = squares * sample.num_items / (pool.num_items - pool.scores.shape[1])
    return _Left(total, variance, squares > FREE_SHARE * before, deviation)


class _Sample(NamedTuple):
    """Distinct rows of votes as deviations from the model's margins, and their scores."""

    deviation: Float[np.ndarray, "row voter vote"]
    """Zero where a vote is missing."""
    cast: Bool[np.ndarray, "row voter"]
    counts: Int[np.ndarray, " row"]
    scores: Float[np.ndarray, "row parameter"]
    implied: Matrix

    @classmethod
    def of(cls, model: GenerativeModel, params: Params, states: States, votes: Votes) -> "_Sample":
        rows, num_classes = votes.patterns.rows, states.emission.shape[2]
        cast = rows != MISSING
        indicator = (rows[:, :, None] == np.arange(num_classes)).astype(np.float64)
        deviation = (indicator - states.margin) * cast[:, :, None]
        scores = row_scores(model, params, indicator.reshape(len(rows), -1))
        return cls(deviation, cast, votes.patterns.counts, scores, states.covariance)

    @property
    def num_items(self) -> int:
        return int(self.counts.sum())

    @property
    def together(self) -> Int[np.ndarray, "voter voter"]:
        """On how many items both voted."""
        return (self.cast * self.counts[:, None]).T @ self.cast.astype(np.int64)

    def moments(self, voter: int) -> Float[np.ndarray, "row other"]:
        """The deviation of each row's moment from the model's, for a voter and each later one."""
        others = slice(voter + 1, None)
        products = np.einsum("ra,rja->rj", self.deviation[:, voter], self.deviation[:, others])
        both = self.cast[:, voter, None] & self.cast[:, others]
        return products - both * self.implied[voter, others]


def _enough(
    margin: Float[np.ndarray, "voter vote"], together: Int[np.ndarray, "voter voter"]
) -> Bool[np.ndarray, "voter voter"]:
    """Whether a pair has votes enough for its moment to be about normal."""
    rare = 1 - margin.max(axis=1)
    enough = together * np.outer(rare, rare) >= EXPECTED_RARE
    return enough & ~np.eye(len(rare), dtype=bool)


class LabelDependence(NamedTuple):
    """How the votes of each pair of voters hang together within the true classes.

    Attributes:
        correlation: Correlation of the votes within classes; above 0 two voters agree more than by chance.
        p_values: Of each pair, adjusted for all pairs that were checked (Holm); 1 where a pair was not.
        checked: Pairs with enough votes in common, by the rule of `latentens.checks.independence`.
    """

    correlation: Matrix
    p_values: Matrix
    checked: Bool[np.ndarray, "voter voter"]

    def dependent(self, level: float = 0.05) -> list[tuple[int, int]]:
        """Pairs that agree more than chance explains, the strongest correlation first."""
        first, second = np.nonzero(np.triu(self.checked & (self.p_values <= level) & (self.correlation > 0), 1))
        order = np.argsort(-self.correlation[first, second], kind="stable")
        return [(int(first[k]), int(second[k])) for k in order]


@one_blas_thread()
def label_dependence(votes: Int[np.ndarray, "item voter"], labels: Labels, num_classes: int) -> LabelDependence:
    """Look at every pair of voters on the items with known labels on which both voted.

    With `Σ_a Cov(1{x_i = a}, 1{x_j = a})` summed over the classes, the p-values are those of a normal sum whose
    variance is that of independent votes.

    Args:
        votes: The votes, −1 where missing.
        labels: The true labels, −1 where unknown.
        num_classes: Number of classes.
    """
    total, variance, spread, together = np.zeros((4, votes.shape[1], votes.shape[1]))
    for label in np.unique(labels[labels >= 0]):
        members = votes[labels == label]
        for part, found in zip((total, variance, spread, together), _moments(members, num_classes), strict=True):
            part += found
    known = votes[labels >= 0]
    shares = np.stack([((known == vote) & (known >= 0)).sum(axis=0) for vote in range(num_classes)], axis=1)
    rare = 1 - shares.max(axis=1) / np.maximum(shares.sum(axis=1), 1)
    checked = (together * np.outer(rare, rare) >= EXPECTED_RARE) & (variance > 0) & (spread > 0)
    np.fill_diagonal(checked, False)
    z_score = np.where(checked, total / np.sqrt(np.where(checked, variance, 1.0)), 0.0)
    correlation = np.where(checked, total / np.where(checked, spread, 1.0), 0.0)
    p_values, upper = np.ones_like(total), np.triu(checked)
    p_values[upper] = holm(2 * ndtr(-np.abs(z_score[upper])))
    return LabelDependence(correlation, np.minimum(p_values, p_values.T), checked)


def _moments(votes: Int[np.ndarray, "item voter"], num_classes: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Of the items of one class: sums of products of deviations, their variance, the scale, and common items."""
    cast = (votes >= 0).astype(np.float64)
    together = cast.T @ cast
    says = [(votes == vote).astype(np.float64) for vote in range(num_classes)]
    size = np.where(together > 0, together, 1.0)
    shares = [one.T @ cast / size for one in says]  # of voter i, where j voted too
    total = sum(one.T @ one - together * share * share.T for one, share in zip(says, shares, strict=True))
    covariance = [
        [(a == b) * shares[a] - shares[a] * shares[b] for b in range(num_classes)] for a in range(num_classes)
    ]
    variance = together * sum(entry * entry.T for row in covariance for entry in row)
    own = sum(covariance[vote][vote] for vote in range(num_classes))
    return np.asarray(total), np.asarray(variance), together * np.sqrt(np.maximum(own * own.T, 0.0)), together


MOST_VOTERS = 7
"""With more voters there are too many stories."""

MOST_CLASSES = 5

AS_WELL = float(np.log(20))
"""A story whose log-likelihood is at most this far below the best one explains the votes about as well."""

MAX_ITERATIONS = 300
GAIN = 1e-4
"""EM ends when a round gains less."""

PSEUDO_COUNT = 0.01

Pair = tuple[int, int]
Block = tuple[int, ...]
Posterior = Float[np.ndarray, "row label"]


class Rows(NamedTuple):
    """Distinct rows of votes, how often each occurs, and the posteriors at which EM starts."""

    votes: Votes
    weights: Float[np.ndarray, " row"]
    starts: tuple[Posterior, ...]


def can_tell(votes: Votes) -> bool:
    """Whether stories of pairs can be compared for these votes."""
    return 4 <= votes.num_voters <= MOST_VOTERS and votes.num_classes <= MOST_CLASSES and not votes.has_repeats


@one_blas_thread()
def pair_stories(votes: Votes, label_probs: Float[np.ndarray, "item label"]) -> tuple[Pair, ...]:
    """The pairs of voters of which one explains the votes, the best first; none if one pair is not enough.

    One pair is not enough if a third voter in its company, or a second pair beside it, is worth its parameters (BIC).

    Args:
        votes: The votes; see `can_tell`.
        label_probs: Where EM starts: the posterior of independent voters.
    """
    rows, counts, inverse = votes.patterns
    start = np.zeros((rows.num_items, label_probs.shape[1]))
    start[inverse] = label_probs
    data = Rows(rows, counts.astype(float), (start, (start + 1 / start.shape[1]) / 2))
    found = {pair: log_likelihood(data, [pair]) for pair in combinations(range(votes.num_voters), 2)}
    best = max(found, key=lambda pair: found[pair])
    if any(_worth(data, [best], richer, found[best]) for richer in _richer(best, votes.num_voters)):
        return ()
    close = (pair for pair in found if found[pair] >= found[best] - AS_WELL)
    return tuple(sorted(close, key=lambda pair: -found[pair]))


def _richer(pair: Pair, num_voters: int) -> list[list[Block]]:
    """Stories with one more voter in the pair's company, or with a second pair."""
    others = [voter for voter in range(num_voters) if voter not in pair]
    triples: list[list[Block]] = [[(*pair, other)] for other in others]
    return triples + [[pair, second] for second in combinations(others, 2)]


def _worth(data: Rows, blocks: Sequence[Block], richer: Sequence[Block], value: float) -> bool:
    """Whether a richer story gains more than its parameters cost."""
    more = _num_parameters(data.votes, richer) - _num_parameters(data.votes, blocks)
    return log_likelihood(data, richer) - value > more * np.log(data.weights.sum()) / 2


def _num_parameters(votes: Votes, blocks: Sequence[Block]) -> int:
    return votes.num_classes * sum(votes.num_classes ** len(block) - 1 for block in _all_blocks(votes, blocks))


def _all_blocks(votes: Votes, blocks: Sequence[Block]) -> list[Block]:
    """The blocks with every other voter as a block of its own."""
    named = {voter for block in blocks for voter in block}
    return [*blocks, *((voter,) for voter in range(votes.num_voters) if voter not in named)]


def log_likelihood(data: Rows, blocks: Sequence[Block]) -> float:
    """The maximum of the log-likelihood if the voters of a block vote jointly and blocks err independently.

    Args:
        data: The votes.
        blocks: Blocks of two or more voters.
    """
    possible = [_possible_votes(data.votes, block) for block in _all_blocks(data.votes, blocks)]
    return max(_climb(data.weights[:, None], possible, start) for start in data.starts)


def _possible_votes(votes: Votes, block: Block) -> Float[np.ndarray, "row joint_vote"]:
    """Which joint votes of a block agree with what is seen of it: all where everyone is missing."""
    found = np.ones((votes.num_items, 1))
    for voter in block:
        column = votes.matrix[:, [voter]]
        seen = np.where(column < 0, 1.0, column == np.arange(votes.num_classes))
        found = np.einsum("ra,rb->rab", found, seen).reshape(len(found), -1)
    return found


def _climb(
    weights: Float[np.ndarray, "row 1"], possible: Sequence[Float[np.ndarray, "row joint_vote"]], probs: Posterior
) -> float:
    """Where EM ends from some posterior of the labels."""
    counts = [(weights * probs).T @ (votes / votes.sum(axis=1, keepdims=True)) for votes in possible]
    before = value = -np.inf
    for _ in range(MAX_ITERATIONS):
        tables = [(count + PSEUDO_COUNT) / (count + PSEUDO_COUNT).sum(axis=1, keepdims=True) for count in counts]
        seen = [votes @ table.T for votes, table in zip(possible, tables, strict=True)]
        shares = (weights * probs).sum(axis=0) / weights.sum()
        logits = np.log(shares) + np.sum([np.log(part) for part in seen], axis=0)
        log_probs = logsumexp(logits, axis=1, keepdims=True)
        value, probs = float((weights * log_probs).sum()), np.exp(logits - log_probs)
        counts = [
            table * ((weights * probs / part).T @ votes)
            for table, part, votes in zip(tables, seen, possible, strict=True)
        ]
        if value - before < GAIN:
            break
        before = value
    return value
