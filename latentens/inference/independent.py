"""Voters who err independently given the label, p(x, y) = p(y) Π_i p(x_i | y): likelihood, posterior, maximum by EM.

The likelihood runs over the votes that were cast. EM climbs from several starts side by side: plain rounds first, then
by squared extrapolation (`squared_jump`). Expected counts go by odds against the first label: what the
votes say about that label itself is the same sum for any parameters, so that each row is looked up and counted for the
other labels only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import softmax

from latentens.runtime.blocks import BLOCK_ELEMENTS
from latentens.runtime.numerics import safe_log
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import Advance, task
from latentens.votes import Votes
from latentens.votes.layout import Block, Incidence, Indicator, Sums, by_blocks, incidence_of, vote_indicator

ROUNDING = 1e-12
"""Scores this close to zero count as zero."""

Confusion = Float[np.ndarray, "voter label vote"]
Posterior = Float[np.ndarray, "row label"]


def log_likelihoods(indicator: Indicator, confusion: Confusion) -> Float[np.ndarray, "row label"]:
    """`log p(votes | label)` of each row."""
    table = safe_log(confusion).transpose(0, 2, 1)
    return indicator @ table.reshape(-1, table.shape[-1])


def log_odds(indicator: Indicator, confusion: Confusion) -> Float[np.ndarray, " row"]:
    """`log p(votes | 1) − log p(votes | 0)` of each row."""
    given_label = log_likelihoods(indicator, confusion)
    return given_label[:, 1] - given_label[:, 0]


def log_joint(
    votes: Votes, shares: Float[np.ndarray, " label"], confusion: Confusion
) -> Float[np.ndarray, "item label"]:
    """`log p(votes, label)` of each item, some items at a time."""
    given_label = by_blocks(lambda some: log_likelihoods(vote_indicator(some, confusion.shape[2]), confusion), votes)
    return safe_log(shares) + given_label


def posterior_of_votes(
    votes: Votes, shares: Float[np.ndarray, " label"], confusion: Confusion
) -> Float[np.ndarray, "item label"]:
    """`p(label | votes)` of each item."""
    return softmax(log_joint(votes, shares, confusion), axis=1)


def count_by_label(votes: Votes, label_probs: Float[np.ndarray, "item label"]) -> Confusion:
    """How often each voter cast each vote, by label: counts weighted with the label probabilities."""
    totals = np.zeros((votes.num_voters * votes.num_categories, label_probs.shape[1]))
    for start, block in votes.blocks():
        totals += vote_indicator(block, votes.num_categories).T @ label_probs[start : start + block.num_items]
    return totals.reshape(votes.num_voters, votes.num_categories, -1).transpose(0, 2, 1)


def gold_posterior(votes: Votes, gold: Int[np.ndarray, " item"], rows: Votes) -> Float[np.ndarray, "row label"]:
    """The posterior by gold labels alone: shares and confusion matrices are counted, with one pseudo-count each.

    Args:
        votes: The votes of all items.
        gold: The code of each item's true label, −1 where it is unknown.
        rows: The rows to predict.
    """
    known = np.flatnonzero(gold >= 0)
    label = np.eye(votes.num_classes)[gold[known]]
    confusion, shares = 1 + count_by_label(votes.take(known), label), 1 + label.sum(axis=0)
    return posterior_of_votes(rows, shares / shares.sum(), confusion / confusion.sum(axis=2, keepdims=True))


def lean_to_score(
    probs: Float[np.ndarray, "row label"], score: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "row label"]:
    """The nearest probabilities of two classes whose more probable one is the sign of a score.

    A method may label by a rule other than the maximum of its posterior. If the two contradict each other, the
    posterior becomes even, with the last digit in favour of the rule; if the score is zero, the posterior is kept.
    """
    barely = np.nextafter(0.5, 1.0)
    of_one = np.where(score > ROUNDING, np.maximum(probs[:, 1], barely), probs[:, 1])
    of_one = np.where(score < -ROUNDING, np.minimum(of_one, 0.5), of_one)
    return np.stack([1 - of_one, of_one], axis=1)


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
    """The prior of confusion matrices and shares, as pseudo-counts.

    Its log-density is Σ votes · log θ + Σ wrong · log(1 − θ_kk) + classes · Σ log π + offset.
    """

    votes: Float[np.ndarray, "label #start #voter vote"]
    """Pseudo-counts of each voter's votes on each class."""
    wrong: Float[np.ndarray, "label start voter"] | None
    """Pseudo-counts of mistakes on each class, divided in proportion to the others; may be negative."""
    classes: float
    """Pseudo-count of items of each class, so that none is ruled out."""
    offset: Float[np.ndarray, " start"] | float = 0.0

    @classmethod
    def of_counts(cls, pseudo_counts: Float[np.ndarray, "label vote"]) -> "VotePrior":
        """The same pseudo-counts for all voters, and the smallest of them for each class."""
        return cls(pseudo_counts[:, None, None], None, float(pseudo_counts.min()))

    def given(self, expected: Expected) -> "VotePrior":
        """Itself: as a rule it does not depend on the counts."""
        del expected
        return self

    def added(self, num_voters: int) -> Float[np.ndarray, "voter label vote"]:
        """The pseudo-counts of each voter's votes for a single start, mistakes included."""
        votes = np.broadcast_to(self._divided(self.votes), (len(self.votes), 1, num_voters, self.votes.shape[3]))
        return np.ascontiguousarray(votes[:, 0].transpose(1, 0, 2))

    def to(self, votes: Float[np.ndarray, "label start voter vote"]) -> Float[np.ndarray, "label start voter vote"]:
        """Counts of votes with the pseudo-counts added."""
        return self._divided(votes + self.votes)

    def _divided(self, votes: Float[np.ndarray, "label start voter vote"]) -> np.ndarray:
        if self.wrong is None:
            return votes
        wrong = ~np.eye(len(votes), votes.shape[3], dtype=bool)[:, None, None]
        made = np.where(wrong, votes, 0.0).sum(axis=3)
        return np.where(wrong, votes * ((made + self.wrong) / made)[..., None], votes)

    def log_density(self, logs: Estimates) -> Float[np.ndarray, " start"]:
        """Up to a constant, given the logarithms of the parameters."""
        density = (self.votes * logs.confusion).sum(axis=(0, 2, 3)) + self.offset
        density += self.classes * logs.shares.sum(axis=0)
        if self.wrong is not None:
            right = np.einsum("ksjk->ksj", logs.confusion[..., : len(logs.confusion)])
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
    counts: Float[np.ndarray, " row"]
    num_items: int
    cast: Float[np.ndarray, "voter vote"]
    """How often each voter cast each vote."""
    known: "Expected | None" = None
    """Counts from items whose label is known, which are the same under all parameters."""


def count_rows(rows: Votes, counts: Int[np.ndarray, " row"], *, block_elements: int = BLOCK_ELEMENTS) -> CountedRows:
    """Lay out distinct rows."""
    incidence = incidence_of(rows, block_elements=block_elements)
    (cast,) = count_by_label(rows, counts[:, None]).swapaxes(0, 1)
    return CountedRows(incidence, counts.astype(np.float64), int(counts.sum()), cast)


def expect_labels(data: CountedRows, starts: Sequence[Posterior]) -> Expected:
    """Expected counts under each start's label probabilities."""

    def count(block: Block) -> Sums:
        probs = np.stack([start[block.place, 1:] for start in starts], axis=2)
        return _count(block, probs, data.counts[block.place])

    totals, labels = data.incidence.sum_blocks(count)
    return _expected(data, totals, labels, np.full(len(starts), np.nan))


def expectation(data: CountedRows, estimates: Estimates) -> Expected:
    """Expected counts under the posterior at some parameters; the posterior of the rows is not kept."""
    return expectation_at_logs(data, Estimates(*map(safe_log, estimates)))


def expectation_at_logs(data: CountedRows, logs: Estimates) -> Expected:
    """`expectation`, given the logarithms of the parameters."""
    log_shares, log_confusion = logs
    num_starts = log_shares.shape[1]
    table = (log_confusion[1:] - log_confusion[0]).reshape(-1, data.cast.size).T
    table = data.incidence.column_table(table)
    offset = (log_shares[1:] - log_shares[0]).ravel()

    def count(block: Block) -> Sums:
        odds = block.matrix @ table
        odds += offset
        probs, log_totals = _normalise(odds.reshape(len(odds), -1, num_starts))
        counts = data.counts[block.place]
        return *_count(block, probs, counts), np.einsum("r,rs->s", counts, log_totals)

    totals, labels, above_first = data.incidence.sum_blocks(count)
    of_first = data.num_items * log_shares[0] + (log_confusion[0] * data.cast).sum(axis=(1, 2))
    log_likelihood = of_first + above_first
    if data.known is not None:
        of_votes = (data.known.votes * log_confusion).sum(axis=(0, 2, 3))
        log_likelihood = log_likelihood + ((data.known.labels * log_shares).sum(axis=0) + of_votes)
    return _expected(data, totals, labels, log_likelihood)


def maximisation(expected: Expected, prior: VotePrior) -> Estimates:
    """Shares and confusion matrices that maximise expected log-likelihood and prior; even where nothing is counted."""
    votes = prior.to(expected.votes)
    total = votes.sum(axis=3, keepdims=True)
    confusion = np.where(total > 0, votes / np.where(total > 0, total, 1.0), 1 / votes.shape[3])
    labels = expected.labels + prior.classes
    return Estimates(labels / labels.sum(axis=0), confusion)


def _normalise(
    odds: Float[np.ndarray, "row other start"], largest: float = 700.0
) -> tuple[Float[np.ndarray, "row other start"], Float[np.ndarray, "row start"]]:
    """Probabilities of the labels after the first from log-odds against it, and `log(1 + Σ exp(odds))`.

    Exponentials up to `largest` do not overflow, not even a sum of a hundred.
    """
    highest = None
    if odds.max() > largest:  # rare; elsewhere the first label's zero is as good as the highest odds
        highest = np.maximum(odds.max(axis=1, keepdims=True), 0.0)
        odds -= highest
    joint = np.exp(odds, out=odds)
    total = joint[:, 0] + (1.0 if highest is None else np.exp(-highest[:, 0]))
    for other in range(1, joint.shape[1]):
        total += joint[:, other]
    joint /= total[:, None]
    np.log(total, out=total)
    return joint, total if highest is None else total + highest[:, 0]


def _count(block: Block, probs: Float[np.ndarray, "row other start"], counts: Float[np.ndarray, " row"]) -> Sums:
    """Totals by column and by label.

    Sums over rows are made by einsum: with few columns it is several times quicker than `sum(axis=0)`, and threads of a
    matrix product would get into the way of ours.
    """
    weights = probs.reshape(len(probs), -1) * counts[:, None]
    return block.transpose @ weights, np.einsum("rs->s", weights)


def _expected(
    data: CountedRows,
    totals: Float[np.ndarray, "column value"],
    labels: Float[np.ndarray, " value"],
    log_likelihood: Float[np.ndarray, " start"],
) -> Expected:
    """Counts of all labels, the first label's by subtraction, with those of items whose label is known."""
    others = data.incidence.vote_totals(totals).T.reshape(-1, len(log_likelihood), *data.cast.shape)
    first = np.maximum(data.cast - others.sum(axis=0), 0.0)
    labels = labels.reshape(-1, len(log_likelihood))
    first_label = np.maximum(data.num_items - labels.sum(axis=0), 0.0)
    of_labels, of_votes = np.concatenate([first_label[None], labels]), np.concatenate([first[None], others])
    if data.known is not None:
        of_labels, of_votes = of_labels + data.known.labels, of_votes + data.known.votes
    return Expected(of_labels, of_votes, log_likelihood)


Parts = TypeVar("Parts", bound=tuple[Any, ...])


class Optimum(NamedTuple):
    """The end of the iterations of each start."""

    estimates: Estimates
    log_likelihood: Float[np.ndarray, " start"]
    objective: Float[np.ndarray, " start"]
    """Log-likelihood plus log-density of the prior: what EM maximises."""
    iterations: Int[np.ndarray, " start"]
    converged: Bool[np.ndarray, " start"]
    given_up: Bool[np.ndarray, " start"]
    """Whether a start was given up because others were ahead of it."""

    @property
    def best(self) -> int:
        """The start that ended highest."""
        return int(np.argmax(self.objective))


class Position(NamedTuple):
    """The parameters of the starts, the expected counts there, and the objective."""

    estimates: Estimates
    expected: Expected
    objective: Float[np.ndarray, " start"]


@dataclass(frozen=True, eq=False)
class Ascent:
    """Expectation–maximisation from several starts side by side.

    Attributes:
        data: The rows.
        rule: The prior. It may depend on the counts: then a round and a jump are judged by the prior of the round,
            under which the objective never falls.
        tolerance: A start has converged when a plain round gains less than this in mean log-likelihood.
        max_iterations: Limit on the number of rounds.
        large_work: Where a round adds up more numbers than this, starts that are behind are given up.
    """

    data: CountedRows
    rule: PriorRule
    tolerance: float
    max_iterations: int
    large_work: int = 2**20

    def climb(self, expected: Expected) -> Optimum:
        """Run EM from the expected counts of several starts; the first one is never given up."""
        with task("Expectation–maximisation") as advance:
            return self._climb(expected, advance)

    def _climb(self, expected: Expected, advance: Advance) -> Optimum:
        prior = self.rule.given(expected)
        at = self._stand(maximisation(expected, prior), prior)
        running, bounds = np.arange(len(at.objective)), np.full(len(at.objective), FIRST_JUMP)
        optimum = _record(_empty_optimum(expected), running, at, rounds := 1)
        while rounds < self.max_iterations and len(running):
            stop_if_asked()
            advance(f"Expectation–maximisation, round {rounds}, starts left: {len(running)}")
            prior = self.rule.given(at.expected)
            after = self._stand(maximisation(at.expected, prior), prior)
            _record(optimum, running, after, rounds := rounds + 1)
            gains = after.objective - self._judged(at, prior).objective
            done = gains < self.tolerance * after.expected.labels.sum(axis=0)
            optimum.converged[running[done]] = True
            behind = ~done & self._behind(running, after, rounds)
            optimum.given_up[running[behind]] = True
            going = ~done & ~behind
            at, after = take(at, going), take(after, going)
            running, bounds = running[going], bounds[going]
            if rounds < PLAIN_ROUNDS or rounds == self.max_iterations or not len(running):
                at = after
                continue
            at, bounds = self._jump(at, after, bounds)
            _record(optimum, running, at, rounds := rounds + 1)
        return optimum

    def _stand(self, estimates: Estimates, prior: VotePrior) -> Position:
        logs = Estimates(*map(safe_log, estimates))
        expected = expectation_at_logs(self.data, logs)
        return Position(estimates, expected, expected.log_likelihood + prior.log_density(logs))

    def _judged(self, at: Position, prior: VotePrior) -> Position:
        """The same position with the objective under another prior."""
        logs = Estimates(*map(safe_log, at.estimates))
        return at._replace(objective=at.expected.log_likelihood + prior.log_density(logs))

    def _behind(self, running: Int[np.ndarray, " running"], at: Position, rounds: int) -> Bool[np.ndarray, " running"]:
        """Which starts to give up after this number of rounds."""
        work = self.data.incidence.num_entries * (len(at.expected.labels) - 1) * len(running)
        checkpoint, left = divmod(rounds, PLAIN_ROUNDS)
        if work <= self.large_work or left > 1 or checkpoint.bit_count() != 1:
            return np.zeros(len(running), dtype=bool)
        kept = np.argsort(-at.objective)[: max(2, len(running) // 2)]
        return ~np.isin(np.arange(len(running)), kept) & (running > 0)

    def _jump(
        self, at: Position, after: Position, bounds: Float[np.ndarray, " start"]
    ) -> tuple[Position, Float[np.ndarray, " start"]]:
        """The end of a jump along two plain rounds, or of the first of them if that is higher; and the next bounds."""
        prior = self.rule.given(after.expected)
        after = self._judged(after, prior)
        rounds = zip(at.estimates, after.estimates, maximisation(after.expected, prior), strict=True)
        (shares, confusion), length = squared_jump(list(rounds), bounds, axis=1)
        ahead = Estimates(shares / shares.sum(axis=0), confusion / confusion.sum(axis=3, keepdims=True))
        landed = self._stand(ahead, prior)
        good = landed.objective >= after.objective
        return _choose(good, landed, after), next_bound(length, bounds, good)


def take(parts: Parts, starts: Bool[np.ndarray, " start"]) -> Parts:
    """Some of the starts of arrays (start) and (label, start, …)."""
    if starts.all():
        return parts
    return jax.tree.map(lambda part: part[starts] if part.ndim == 1 else part[:, starts], parts)


def _choose(first: Bool[np.ndarray, " start"], some: Parts, others: Parts) -> Parts:
    """Each start from one or the other."""
    if first.all():
        return some

    def choose(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where(first if one.ndim == 1 else first.reshape(-1, *(1,) * (one.ndim - 2)), one, other)

    return jax.tree.map(choose, some, others)


def _empty_optimum(expected: Expected) -> Optimum:
    worst = np.full(expected.labels.shape[1], -np.inf)
    estimates = Estimates(np.empty_like(expected.labels), np.empty_like(expected.votes))
    never = np.zeros(len(worst), dtype=bool)
    return Optimum(estimates, worst, worst.copy(), np.zeros(len(worst), dtype=int), never, never.copy())


def _record(optimum: Optimum, starts: Int[np.ndarray, " running"], at: Position, rounds: int) -> Optimum:
    optimum.estimates.shares[:, starts] = at.estimates.shares
    optimum.estimates.confusion[:, starts] = at.estimates.confusion
    optimum.log_likelihood[starts] = at.expected.log_likelihood
    optimum.objective[starts] = at.objective
    optimum.iterations[starts] = rounds
    return optimum


PLAIN_ROUNDS = 10
"""Number of plain rounds before the first jump: far from an optimum a jump could lead to a different one."""

FIRST_JUMP = LONGER_JUMP = 4.0
"""The first bound on α, and the factor by which bounds grow and shrink."""

Lengths = Float[np.ndarray, "*start"]


def squared_jump(
    points: Sequence[Sequence[np.ndarray]], longest: Lengths, axis: int | None = None
) -> tuple[list[np.ndarray], Lengths]:
    """The end of a jump, as arrays of squared roots, and its length α for each start.

    Args:
        points: For each array of parameters, its values before and after two rounds.
        longest: Bounds of α.
        axis: The axis along which starts lie side by side; None if the arrays are those of one start.
    """
    paths, steps, bends = [], 0.0, 0.0
    for begin, middle, end in (map(np.sqrt, part) for part in points):
        step, bend = middle - begin, end - 2 * middle + begin
        others = None if axis is None else tuple(i for i in range(begin.ndim) if i != axis)
        steps, bends = steps + np.sum(step**2, axis=others), bends + np.sum(bend**2, axis=others)
        paths.append((begin, step, bend))
    length = np.clip(np.sqrt(steps / np.maximum(bends, np.finfo(float).tiny)), 1.0, longest)
    landed = []
    for begin, step, bend in paths:
        alpha = length if axis is None else np.expand_dims(length, [i for i in range(begin.ndim) if i != axis])
        landed.append(np.square(begin + 2 * alpha * step + alpha**2 * bend))
    return landed, length


def next_bound(length: Lengths, longest: Lengths, is_good: np.ndarray | bool) -> Lengths:
    """Bounds of the next jumps: longer where a jump as long as allowed was good, shorter where one had to be undone."""
    longer = np.where(length == longest, LONGER_JUMP * longest, longest)
    return np.where(is_good, longer, np.maximum(length / LONGER_JUMP, 1.0))
