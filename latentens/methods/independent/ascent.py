"""Expectation–maximisation from several starts side by side: plain rounds first, then by squared extrapolation.

Where two rounds lead from θ₀ to θ₁ and θ₂, in square roots of probabilities, let r = θ₁ − θ₀ and v = θ₂ − θ₁ − r. The
climb goes on from θ₀ + 2αr + α²v with α = |r| / |v| (SQUAREM, Varadhan & Roland 2008); α = 1 is θ₂. A jump that lands
lower than θ₁ is undone, so that the objective never falls, and further ones are shorter.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from latentens.methods.independent.label_counts import (
    CountedRows,
    Estimates,
    Expected,
    PriorRule,
    VotePrior,
    expectation_at_logs,
    maximisation,
)
from latentens.runtime.numerics import safe_log
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.progress import Advance, task

PLAIN_ROUNDS = 10
"""So many rounds are plain ones: far from an optimum a jump could lead to another one."""

FIRST_JUMP = LONGER_JUMP = 4.0
"""The first bound on α, and by how much a bound changes that was too low or too high."""

LARGE_WORK = 2**20
"""Where a round of all starts adds up more numbers than this, the worse half is given up after 10, 20, 40 … rounds."""

Parts = TypeVar("Parts", bound=tuple[Any, ...])


class Optimum(NamedTuple):
    """Where the iterations of each start ended."""

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
    """Where the starts are, what the votes say there, and how high that is."""

    estimates: Estimates
    expected: Expected
    objective: Float[np.ndarray, " start"]


@dataclass(frozen=True, eq=False)
class Ascent:
    """What all starts have in common.

    Attributes:
        data: The rows.
        rule: What is added to the counts. It may depend on them: then a round and a jump are judged by what is added
            in the round, under which a round never falls.
        tolerance: A start has converged when a plain round gains less than this in mean log-likelihood.
        max_iterations: Limit on the number of rounds.
        large_work: Where a round adds up more numbers than this, starts that are behind are given up.
    """

    data: CountedRows
    rule: PriorRule
    tolerance: float
    max_iterations: int
    large_work: int = LARGE_WORK

    def climb(self, expected: Expected) -> Optimum:
        """From expected counts of several starts to where each ends; the first one is never given up."""
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
            at, after = _take(at, going), _take(after, going)
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
        """The same place, as high as another prior says."""
        if prior is self.rule:
            return at
        logs = Estimates(*map(safe_log, at.estimates))
        return at._replace(objective=at.expected.log_likelihood + prior.log_density(logs))

    def _behind(self, running: Int[np.ndarray, " running"], at: Position, rounds: int) -> Bool[np.ndarray, " running"]:
        """Which starts to give up after so many rounds."""
        work = self.data.incidence.num_entries * (len(at.expected.labels) - 1) * len(running)
        checkpoint, left = divmod(rounds, PLAIN_ROUNDS)
        if work <= self.large_work or left > 1 or checkpoint.bit_count() != 1:
            return np.zeros(len(running), dtype=bool)
        kept = np.argsort(-at.objective)[: max(2, len(running) // 2)]
        return ~np.isin(np.arange(len(running)), kept) & (running > 0)

    def _jump(
        self, at: Position, after: Position, bounds: Float[np.ndarray, " start"]
    ) -> tuple[Position, Float[np.ndarray, " start"]]:
        """Ahead of two plain rounds, or where the first of them led; and the bounds of further jumps."""
        prior = self.rule.given(after.expected)
        after = self._judged(after, prior)
        two_on = maximisation(after.expected, prior)
        paths = [_path(*map(np.sqrt, points)) for points in zip(at.estimates, after.estimates, two_on, strict=True)]
        of_step, of_bend = (sum(map(_squares, part)) for part in zip(*(path[1:] for path in paths), strict=True))
        length = np.clip(np.sqrt(of_step / np.maximum(of_bend, np.finfo(float).tiny)), 1.0, bounds)
        landed = self._stand(_from_roots(*(_ahead(path, length) for path in paths)), prior)
        good = landed.objective >= after.objective
        longer = np.where(length == bounds, LONGER_JUMP * bounds, bounds)
        return _choose(good, landed, after), np.where(good, longer, np.maximum(length / LONGER_JUMP, 1.0))


class Path(NamedTuple):
    """Where two rounds led: from here, by this step, bending by so much."""

    begin: np.ndarray
    step: np.ndarray
    bend: np.ndarray


def _path(begin: np.ndarray, middle: np.ndarray, end: np.ndarray) -> Path:
    return Path(begin, middle - begin, end - 2 * middle + begin)


def _ahead(path: Path, length: Float[np.ndarray, " start"]) -> np.ndarray:
    alpha = _spread(length, path.begin)
    return path.begin + 2 * alpha * path.step + alpha**2 * path.bend


def _from_roots(shares: np.ndarray, confusion: np.ndarray) -> Estimates:
    shares, confusion = np.square(shares), np.square(confusion)
    return Estimates(shares / shares.sum(axis=0), confusion / confusion.sum(axis=3, keepdims=True))


def _squares(part: np.ndarray) -> Float[np.ndarray, " start"]:
    return np.square(part).sum(axis=(0, *range(2, part.ndim)))


def _spread(values: Float[np.ndarray, " start"], like: np.ndarray) -> np.ndarray:
    """One value a start, to be broadcast against an array (label, start, …)."""
    return values.reshape(-1, *(1,) * (like.ndim - 2))


def _take(parts: Parts, starts: Bool[np.ndarray, " start"]) -> Parts:
    """Some of the starts of arrays (start) and (label, start, …)."""
    if starts.all():
        return parts
    return _each(lambda part: part[starts] if part.ndim == 1 else part[:, starts], parts)


def _choose(first: Bool[np.ndarray, " start"], some: Parts, others: Parts) -> Parts:
    """Each start from one or the other."""
    if first.all():
        return some
    return _each(lambda one, other: np.where(_spread(first, one) if one.ndim > 1 else first, one, other), some, others)


def _each(function: Any, *parts: Any) -> Any:
    """A function of the arrays in named tuples of named tuples."""
    if isinstance(parts[0], np.ndarray):
        return function(*parts)
    return type(parts[0])(*(_each(function, *inner) for inner in zip(*parts, strict=True)))


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
