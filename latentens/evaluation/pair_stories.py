"""Which two voters may share something beyond the label: the likelihood of every such story, compared.

The check of independence looks for pairs that agree more than a model of independent voters says. With few voters that
model may take what two copyists share for the label, and then honest voters stand out. Here every pair has its turn:
its two votes count as one vote of K² values, all others err independently, and EM finds the maximum. Where the others
are too few or too weak, several such stories explain the votes equally well, and only labels tell them apart.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from latentens.runtime.threads import one_blas_thread
from latentens.votes import Votes

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
