"""Statistics of votes, and their expectations under a fitted program."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentens.programs.tables import Tables
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.votes import Votes
from latentens.votes.labels import MISSING, Names, code_type
from latentens.votes.layout import by_blocks, count_votes


class States(NamedTuple):
    """A program at given parameters: the hidden states on which votes depend, and the distribution of votes in each."""

    share: Float[np.ndarray, " state"]
    emission: Float[np.ndarray, "state voter vote"]

    @property
    def margin(self) -> Float[np.ndarray, "voter vote"]:
        """The distribution of each voter's votes."""
        return np.tensordot(self.share, self.emission, axes=1)

    @property
    def variance(self) -> Float[np.ndarray, " voter"]:
        """The variance of each voter's votes as indicators."""
        return 1 - (self.margin**2).sum(axis=1)

    @property
    def covariance(self) -> Float[np.ndarray, "voter voter"]:
        """`Σ_a Cov(1{x_i = a}, 1{x_j = a})` of each pair of voters; on the diagonal as if a voter voted twice."""
        deviation = self.emission - self.margin
        weighted = deviation * self.share[:, None, None]
        return np.einsum("sia,sja->ij", weighted, deviation, optimize=True)


def states_of(tables: Tables) -> States:
    """The states of a program's tables, one for each label if votes depend on the label directly."""
    share, emission = np.exp(tables.log_prior), np.exp(tables.log_emission)
    share = (share.sum(axis=0) if len(emission) == 1 else share).ravel()
    return States(share / share.sum(), emission.reshape(len(share), *emission.shape[2:]))


def draw_votes(states: States, pattern: Votes, generator: np.random.Generator) -> Votes:
    """Votes drawn from the program, with the missing and repeated votes of given ones."""
    state = generator.choice(len(states.share), pattern.num_items, p=states.share)
    thresholds = states.emission.cumsum(axis=2)
    num_classes = states.emission.shape[2]
    if isinstance(pattern.storage, np.ndarray):
        uniform = generator.random(pattern.shape)
        drawn = np.zeros(pattern.shape, dtype=code_type(num_classes))
        for vote in range(num_classes - 1):
            drawn += uniform > thresholds[state, :, vote]
        drawn[pattern.storage == MISSING] = MISSING
        return Votes(drawn, *pattern.shape, num_classes)
    item, voter, _ = pattern.storage
    cumulative = thresholds[state[item], voter, : num_classes - 1]
    drawn = (generator.random((len(item), 1)) > cumulative).sum(axis=1, dtype=code_type(num_classes))
    return Votes(pattern.storage._replace(vote=drawn).in_order(), *pattern.shape, num_classes)


Counts = Float[np.ndarray, "row voter vote"]
"""How often each voter cast each vote."""
Cells = Float[np.ndarray, "row cell"]


class VoteRows(NamedTuple):
    """Distinct rows of votes with the number of items of each."""

    votes: Votes
    weights: Int[np.ndarray, " row"]
    num_classes: int

    @classmethod
    def of(cls, votes: Votes, num_classes: int) -> "VoteRows":
        """The rows of some votes, which may have fewer classes than a program."""
        distinct, weights, _ = votes.patterns
        return cls(distinct, weights, num_classes)

    def map(self, function: Callable[[Counts], Cells]) -> Cells:
        """A function of each row, applied to blocks of rows."""
        return by_blocks(lambda block: function(count_votes(block, self.num_classes)), self.votes)

    def total(self, function: Callable[[Counts], Cells]) -> Float[np.ndarray, " cell"]:
        """The sum over items."""
        return self.weights @ self.map(function)


class Statistic(ABC):
    """Several numbers, called cells, for each row of votes; their sums over items are compared with a program's.

    Attributes:
        name: Its name, as in "the program does not reproduce …".
    """

    name: str

    @abstractmethod
    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """The description of a cell, as in "12 …"."""

    def label(self, cell: int) -> str:
        """A short name of a cell, for the axis of a figure."""
        return str(cell + 1)

    @abstractmethod
    def values(self, counts: Counts) -> Cells:
        """The cells of each row."""

    @abstractmethod
    def expected(self, states: States, counts: Counts) -> Cells:
        """The expectation of the cells of each row, given how often each voter voted."""

    def most(self, counts: Counts) -> Cells:
        """The largest possible value of each cell, given how often each voter voted."""
        return np.ones_like(self.values(counts))


@dataclass(frozen=True, eq=False)
class VoteCounts(Statistic):
    """The histograms of how many votes items get for each class.

    Attributes:
        vote_class: The class of each bin.
        first: The smallest number of votes in it.
        last: The largest one.
    """

    name = "how many votes items get"
    vote_class: Int[np.ndarray, " bin"]
    first: Int[np.ndarray, " bin"]
    last: Int[np.ndarray, " bin"]

    @classmethod
    def binned(cls, states: States, rows: VoteRows, classes: Sequence[int], least: float) -> "VoteCounts":
        """The narrowest bins with at least `least` items expected in each."""
        most, bins = int(rows.votes.cast_by_item.max()), []
        for vote_class in classes:
            expected = rows.total(partial(count_distribution, states, vote_class=vote_class, most=most))
            first, inside = 0, 0.0
            for number, size in enumerate(expected):
                if inside >= least and expected[number:].sum() >= least:
                    bins.append((vote_class, first, number - 1))
                    first, inside = number, 0.0
                inside += size
            bins.append((vote_class, first, most))
        return cls(*np.array(bins).T)

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """See `Statistic`."""
        del voters
        votes = "vote" if self.label(cell) == "1" else "votes"
        return f"items with {self.label(cell)} {votes} for {classes[self.vote_class[cell]]}"

    def label(self, cell: int) -> str:
        """The numbers of votes in a bin."""
        first, last = int(self.first[cell]), int(self.last[cell])
        return f"{first}" if first == last else f"{first} to {last}"

    def values(self, counts: Counts) -> Cells:
        """The bin of each row."""
        number = counts.sum(axis=1)[:, self.vote_class]
        return ((number >= self.first) & (number <= self.last)).astype(float)

    def expected(self, states: States, counts: Counts) -> Cells:
        """The probability of each bin."""
        found = np.empty((len(counts), len(self.first)))
        for vote_class in np.unique(self.vote_class):
            by_number = count_distribution(states, counts, vote_class, int(self.last.max()))
            below = np.pad(by_number.cumsum(axis=1), ((0, 0), (1, 0)))
            mine = self.vote_class == vote_class
            found[:, mine] = below[:, self.last[mine] + 1] - below[:, self.first[mine]]
        return found


def count_distribution(states: States, counts: Counts, vote_class: int, most: int) -> Float[np.ndarray, "row number"]:
    """The distribution of the number of votes for a class, 0 … `most`, given how often each voter voted.

    It is a convolution over votes in each state, made once for rows of the same voters, and together for rows with the
    same number of votes.
    """
    cast = counts.sum(axis=2).astype(np.int64)
    patterns, inverse = np.unique(cast, axis=0, return_inverse=True)
    found, number = np.zeros((len(patterns), most + 1)), patterns.sum(axis=1)
    for size in np.unique(number):
        alike = np.flatnonzero(number == size)
        for block in row_blocks(len(alike), len(states.share) * (size + 1), BLOCK_ELEMENTS):
            voters = np.stack([np.repeat(np.arange(cast.shape[1]), patterns[row]) for row in alike[block]])
            given_state = np.zeros((len(voters), len(states.share), size + 1))
            given_state[:, :, 0] = 1.0
            for voter in voters.T:
                says = states.emission[:, voter, vote_class].T[:, :, None]
                given_state[:, :, 1:] = given_state[:, :, 1:] * (1 - says) + given_state[:, :, :-1] * says
                given_state[:, :, :1] *= 1 - says
            found[alike[block], : size + 1] = np.einsum("s,psn->pn", states.share, given_state)
    return found[inverse.ravel()]


@dataclass(frozen=True, eq=False)
class VoteRates(Statistic):
    """How often each voter casts each vote."""

    name = "how often each voter casts each vote"
    num_classes: int

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """See `Statistic`."""
        voter, vote = divmod(cell, self.num_classes)
        return f"votes of {voters[voter]} for {classes[vote]}"

    def values(self, counts: Counts) -> Cells:
        """The votes themselves."""
        return counts.reshape(len(counts), -1)

    def expected(self, states: States, counts: Counts) -> Cells:
        """The margins of the program."""
        return (counts.sum(axis=2, keepdims=True) * states.margin).reshape(len(counts), -1)

    def most(self, counts: Counts) -> Cells:
        """All votes of the voter."""
        return np.broadcast_to(counts.sum(axis=2, keepdims=True), counts.shape).reshape(len(counts), -1)


@dataclass(frozen=True, eq=False)
class Agreement(Statistic):
    """How often all members of a group of voters cast the same vote.

    Attributes:
        name: See `Statistic`.
        members: The voters of each group; all groups are of one size.
    """

    name: str
    members: Int[np.ndarray, "group member"]

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """See `Statistic`."""
        del classes
        *first, last = (str(voters[voter]) for voter in self.members[cell])
        return f"agreements of {', '.join(first)} and {last}"

    def values(self, counts: Counts) -> Cells:
        """The number of ways to take one vote of each member such that all agree."""
        return sum(self._product(counts[:, :, vote]) for vote in range(counts.shape[2]))  # type: ignore[return-value]

    def expected(self, states: States, counts: Counts) -> Cells:
        """The probability of agreement, for each way to take one vote of each member."""
        agree = [states.share @ self._product(states.emission[:, :, vote]) for vote in range(counts.shape[2])]
        return self.most(counts) * np.sum(agree, axis=0)

    def most(self, counts: Counts) -> Cells:
        """The number of ways to take one vote of each member."""
        return self._product(counts.sum(axis=2))

    def _product(self, by_voter: Float[np.ndarray, "row voter"]) -> Cells:
        return reduce(np.multiply, (by_voter[:, voter] for voter in self.members.T))


@dataclass(frozen=True, eq=False)
class PairCovariance:
    """`Σ_a Cov(1{x_i = a}, 1{x_j = a})` of pairs of voters, times the number of items on which both voted.

    Repeated votes are not allowed.

    Attributes:
        pairs: The voters of each pair.
        margin: The distribution of each voter's votes under the program, around which the covariance is taken.
    """

    pairs: Int[np.ndarray, "pair 2"]
    margin: Float[np.ndarray, "voter vote"]

    def values(self, counts: Counts) -> Cells:
        """Products of deviations, zero where a vote is missing."""
        deviation = counts - self.margin * counts.sum(axis=2, keepdims=True)
        first, second = self.pairs.T
        return sum(column[:, first] * column[:, second] for column in np.moveaxis(deviation, 2, 0))

    def expected(self, states: States, counts: Counts) -> Cells:
        """The covariance under the program where both voted."""
        cast, (first, second) = counts.sum(axis=2), self.pairs.T
        return cast[:, first] * cast[:, second] * states.covariance[first, second]


def statistics_of(
    states: States, rows: VoteRows, least: float, most_paired: int = 45, most_tripled: int = 18
) -> tuple[Statistic, ...]:
    """The statistics of a predictive check: vote counts of each class, rates, and agreement of pairs and triples.

    Args:
        states: The program at its estimated parameters.
        rows: The votes.
        least: The least number of items in a bin of vote counts.
        most_paired: Pairs are formed among this many voters, those with the most votes.
        most_tripled: The same for triples.
    """
    cast = rows.votes.cast_by_item
    complete = rows.num_classes == 2 and cast.min() == cast.max()
    classes = (1,) if complete else range(rows.num_classes)  # votes for the other class are the rest
    by_voter = rows.total(lambda counts: counts.sum(axis=2))
    busiest = np.argsort(-by_voter, kind="stable")
    groups = [
        Agreement(f"how often {number} voters agree", np.array(list(combinations(np.sort(busiest[:most]), size))))
        for number, size, most in (("two", 2, most_paired), ("three", 3, most_tripled))
        if len(busiest) >= size
    ]
    return (VoteCounts.binned(states, rows, classes, least), VoteRates(rows.num_classes), *groups)
