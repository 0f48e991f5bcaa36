"""What checks of a fitted program share: its states, items drawn from it, and the scores of rows of votes.

Parameters that were fitted to the same votes pull every statistic of the votes towards the data. Statistics are
therefore made orthogonal to the score (Neyman's C(α) test): with g the deviation of an item's statistic and s the score
of the item, what is judged is the total of `g − B s`, where `B s` is the regression of g on s under the model. To first
order it does not matter then how the parameters were estimated, and nothing has to be refitted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigh

from latentens.methods.rows import vote_indicator
from latentens.programs.likelihood import DenseRows, row_log_likelihood
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import to_point, unpack
from latentens.programs.tables import Tables, build_tables
from latentens.runtime.blocks import BLOCK_ELEMENTS, row_blocks
from latentens.votes import Votes
from latentens.votes.labels import MISSING, Names, code_type

POOL_ITEMS = 10_000
"""Items that are simulated to estimate variances under the model."""

MAX_PARAMETERS = POOL_ITEMS // 4
"""With more parameters than this the simulated items would be too few."""

FREE_SHARE = 1e-6
"""A statistic with less than this share of its variance left is fitted by the parameters whatever it is."""

SMALLEST_INFORMATION = 1e-9
"""Directions of the parameters with less than this share of the largest information are taken as unidentified."""

SCORE_ROWS = 256
"""Rows whose scores are computed at a time."""


class States(NamedTuple):
    """A program at given parameters: the states on which votes depend, with the votes' distribution in each."""

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


def draw_pool(states: States, votes: Votes, generator: np.random.Generator) -> Votes:
    """Items drawn from the model, with the gaps and repetitions of the votes."""
    like = np.resize(generator.permutation(votes.num_items), POOL_ITEMS)
    return draw_votes(states, votes.take(like), generator)


def draw_votes(states: States, pattern: Votes, generator: np.random.Generator) -> Votes:
    """Votes drawn from the model, in a given pattern of who voted on what and how often."""
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


def row_scores(
    model: GenerativeModel, params: Params, counts: Float[np.ndarray, "row voter_vote"]
) -> Float[np.ndarray, "row parameter"]:
    """The derivative of each row's log-likelihood by the parameters in unconstrained space.

    Args:
        model: The generative model.
        params: Its parameters.
        counts: How often each voter cast each vote.
    """
    point = to_point(model, params)
    padded = np.pad(counts, ((0, -len(counts) % SCORE_ROWS), (0, 0)))  # blocks of one size compile once
    blocks = [_block_scores(model, point, block) for block in np.split(padded, len(padded) // SCORE_ROWS)]
    return np.concatenate(blocks)[: len(counts)]


@partial(jax.jit, static_argnums=0)
def _block_scores(
    model: GenerativeModel, point: dict[str, Array], counts: Float[Array, "row voter_vote"]
) -> Float[Array, "row parameter"]:
    def log_likelihood(point: dict[str, Array], row: Array) -> Array:
        tables = build_tables(model, unpack(model, point).params)
        return row_log_likelihood(tables, DenseRows(row[:, None]))[0]

    scores = jax.vmap(jax.grad(log_likelihood), in_axes=(None, 0))(point, counts)
    return jnp.concatenate([score.reshape(SCORE_ROWS, -1) for score in scores.values()], axis=1)


def score_basis(
    scores: Float[np.ndarray, "row parameter"], counts: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "parameter direction"]:
    """Combinations of the scores that are orthonormal over some rows; unidentified directions are left out."""
    information = (scores * counts[:, None]).T @ scores
    size = np.sqrt(np.diag(information))
    size = np.where(size > 0, size, 1.0)
    values, vectors = eigh(information / np.outer(size, size))
    kept = values > SMALLEST_INFORMATION * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept]) / size[:, None]


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
        """The rows of some votes, whose classes may be fewer than those of a program."""
        distinct, weights, _ = votes.patterns
        return cls(distinct, weights, num_classes)

    def map(self, function: Callable[[Counts], Cells]) -> Cells:
        """What a function says about each row, asked about some rows at a time."""
        found = []
        for _, block in self.votes.blocks():
            indicator = vote_indicator(block, self.num_classes)
            dense = indicator if isinstance(indicator, np.ndarray) else indicator.toarray()
            found.append(function(dense.reshape(block.num_items, block.num_voters, -1)))
        return np.concatenate(found)

    def total(self, function: Callable[[Counts], Cells]) -> Float[np.ndarray, " cell"]:
        """The sum over items."""
        return self.weights @ self.map(function)


MAX_PAIRED = 45
"""Pairs are formed of at most this many voters, those with the most votes."""

MAX_TRIPLED = 18
"""Triples likewise."""


class Statistic(ABC):
    """Several numbers for each row of votes, called cells, whose sums over items are compared with a program's."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the statistic is about, as in "a program does not reproduce …"."""

    @abstractmethod
    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """What a cell counts, as in "… are 12"."""

    @abstractmethod
    def values(self, counts: Counts) -> Cells:
        """The cells of each row."""

    @abstractmethod
    def expected(self, states: States, counts: Counts) -> Cells:
        """What a program expects of each row, given how often each voter voted."""

    def most(self, counts: Counts) -> Cells:
        """The largest value that each cell of each row can have, given how often each voter voted."""
        return np.ones_like(self.values(counts))


@dataclass(frozen=True, eq=False)
class VoteCounts(Statistic):
    """The histograms of how many votes items get for each class.

    Attributes:
        vote_class: The class of each bin.
        first: Its least number of votes.
        last: Its largest one.
    """

    vote_class: Int[np.ndarray, " bin"]
    first: Int[np.ndarray, " bin"]
    last: Int[np.ndarray, " bin"]

    @classmethod
    def binned(cls, states: States, rows: VoteRows, classes: Sequence[int], least: float) -> "VoteCounts":
        """Bins that are as narrow as they can be with at least so many items expected in each."""
        most, bins = int(rows.votes.tally.sum(axis=1).max()), []
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

    @property
    def name(self) -> str:
        """The histogram."""
        return "how many votes items get"

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """The items in a bin."""
        del voters
        first, last = int(self.first[cell]), int(self.last[cell])
        number = f"{first}" if first == last else f"{first} to {last}"
        return f"items with {number} vote{'' if first == last == 1 else 's'} for {classes[self.vote_class[cell]]}"

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
    """The distribution of the number of votes for a class, 0 … `most`, given how often each voter voted."""
    cast = counts.sum(axis=2).astype(np.int64)
    by_size = np.zeros((len(counts), most + 1))
    for size in np.unique(cast.sum(axis=1)):
        rows = np.flatnonzero(cast.sum(axis=1) == size)
        patterns, inverse = np.unique(cast[rows], axis=0, return_inverse=True)
        voters = np.stack([np.repeat(np.arange(cast.shape[1]), pattern) for pattern in patterns])
        blocks = row_blocks(len(voters), len(states.share) * (size + 1), BLOCK_ELEMENTS)
        found = [_count_distribution(states, voters[block], vote_class) for block in blocks]
        by_size[rows, : size + 1] = np.concatenate(found)[inverse.ravel()]
    return by_size


def _count_distribution(
    states: States, voters: Int[np.ndarray, "pattern place"], vote_class: int
) -> Float[np.ndarray, "pattern number"]:
    """Of the votes of some voters, added one after the other."""
    given_state = np.zeros((len(voters), len(states.share), voters.shape[1] + 1))
    given_state[:, :, 0] = 1.0
    for voter in voters.T:
        says = states.emission[:, voter, vote_class].T[:, :, None]
        given_state[:, :, 1:] = given_state[:, :, 1:] * (1 - says) + given_state[:, :, :-1] * says
        given_state[:, :, :1] *= 1 - says
    return np.einsum("s,psn->pn", states.share, given_state)


@dataclass(frozen=True, eq=False)
class VoteRates(Statistic):
    """How often each voter casts each vote."""

    num_voters: int
    num_classes: int

    @property
    def name(self) -> str:
        """The rates."""
        return "how often each voter casts each vote"

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """A voter's votes for a class."""
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
        members: The voters of each group; all groups are of one size.
    """

    members: Int[np.ndarray, "group member"]

    @classmethod
    def among(cls, busiest: Sequence[int], size: int) -> "Agreement":
        """All groups of a size among some voters."""
        return cls(np.array(list(combinations(sorted(busiest), size)), dtype=int).reshape(-1, size))

    @property
    def name(self) -> str:
        """Pairs or triples."""
        return {2: "how often two voters agree", 3: "how often three voters agree"}[self.members.shape[1]]

    def describe(self, cell: int, voters: Names, classes: Names) -> str:
        """The agreements of a group."""
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
        found = by_voter[:, self.members[:, 0]]
        for voter in self.members.T[1:]:
            found = found * by_voter[:, voter]
        return found


def statistics_of(states: States, rows: VoteRows, least: float) -> tuple[Statistic, ...]:
    """What is compared: vote counts of each class, rates, and the agreement of pairs and triples of voters.

    Args:
        states: The program at its estimated parameters.
        rows: The votes.
        least: Items that a bin of vote counts holds at least.
    """
    num_voters, cast = rows.votes.num_voters, rows.votes.tally.sum(axis=1)
    complete = rows.num_classes == 2 and cast.min() == cast.max()
    classes = (1,) if complete else range(rows.num_classes)  # votes for the other class are the rest
    by_voter = rows.total(lambda counts: counts.sum(axis=2))
    busiest = np.argsort(-by_voter, kind="stable")
    groups = [
        Agreement.among(busiest[:most].tolist(), size)
        for size, most in ((2, MAX_PAIRED), (3, MAX_TRIPLED))
        if num_voters >= size
    ]
    return (VoteCounts.binned(states, rows, classes, least), VoteRates(num_voters, rows.num_classes), *groups)
