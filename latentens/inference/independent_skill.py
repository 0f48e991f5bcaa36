"""The skill of voters who err independently given the label, with the observed information in closed form.

With posterior weights q, shares π and confusion matrices θ in softmax coordinates, the information of the votes is that
of votes with known labels less the variance of its score under q (Louis 1982): nothing is differentiated or compiled.
Where an estimate rests on pseudo-counts, the information of the votes alone is not that of a maximum, and with few
votes per voter it may have no inverse. Pseudo-counts then count as votes with known labels. Intervals lie around
frequencies without them, and are as much wider as the votes are fewer than votes and pseudo-counts together.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from latentens.datasets.dataset import certain_where_known
from latentens.inference.skill_record import (
    COVERAGE,
    INFORMATION,
    Confusion,
    VoterSkill,
    as_fitted,
    lay_out,
    skills_of,
)
from latentens.inference.smooth_errors import errors_of
from latentens.runtime.threads import one_blas_thread
from latentens.votes import Votes

MAX_INDEPENDENT = 1_000
"""With more parameters than this labels are taken as fitted: the time grows with their cube."""

MAX_WORK = 2e10
"""The same with more than this many products."""

Shares = Float[np.ndarray, " label"]
Codes = Int[np.ndarray, " item"]
Posterior = Float[np.ndarray, "item label"]
MOST_ADDED = 2.0
"""Where intervals are concerned, what is added to a voter's counts is scaled down to this many votes per entry of the
confusion matrix. Half or twice as many changed the coverage of 95 % intervals on simulated crowds by a point or two."""

Information = Float[np.ndarray, "parameter parameter"]


@one_blas_thread()
def independent_skill(
    shares: Shares,
    confusion: Confusion,
    votes: Votes,
    known: Codes | None = None,
    *,
    added: Confusion | None = None,
    level: float = COVERAGE,
) -> VoterSkill:
    """Skill of independent voters with its uncertainty.

    An estimate at its bound, where curvature says nothing, is moved half a vote inside.

    Args:
        shares: Estimated shares of the labels.
        confusion: Estimated confusion matrices.
        votes: The votes that they were estimated from.
        known: The code of each item's label, −1 where it is unknown, if some were known.
        added: What was added to the counts of each voter, and the smallest of it to that of each class.
        level: Coverage of the intervals.
    """
    found, size = skills_of(shares, confusion), shares.size + confusion.size
    number = np.bincount(votes.triplets.voter, minlength=votes.num_voters)
    margin = 0.5 / (number.mean() + 1)
    shares, confusion = (_inside(part, margin) for part in (shares, confusion))
    probs = _posterior(shares, confusion, votes, known)
    counts = count_by_label(votes, probs)
    if size > MAX_INDEPENDENT or votes.num_items * size**2 > MAX_WORK:
        return as_fitted(found, counts, shares, level)
    added = np.zeros(confusion.shape) if added is None else added
    # It makes the information of few votes positive definite, and must not stand for knowledge of the voter.
    most = MOST_ADDED * added[0].size
    added = added * (most / np.maximum(added.sum(axis=(1, 2)), most))[:, None, None]
    num_items = votes.num_items + len(shares) * added.min()
    information = _complete(shares, confusion, counts + added, num_items) - _missing(confusion, votes, probs)
    errors = errors_of(information, _slopes(shares, confusion)) * _unaided(number, added)
    centre = skills_of(shares, _inside(_frequencies(counts, confusion), margin) if added.any() else confusion)
    return lay_out(found, errors, number, level, INFORMATION, centre=centre)


def _unaided(number: Int[np.ndarray, " voter"], added: Confusion) -> Float[np.ndarray, " skill"]:
    """How much larger errors are without the pseudo-counts; with known labels this is exact."""
    larger = np.sqrt((number + added.sum(axis=(1, 2))) / np.maximum(number, 0.5))
    return np.concatenate([larger, larger, np.repeat(larger, added[0].size)])


def _frequencies(counts: Confusion, confusion: Confusion) -> Confusion:
    """Confusion matrices that pseudo-counts draw nowhere; the estimate where a voter never met the label."""
    cast = counts.sum(axis=2, keepdims=True)
    return np.where(cast > 0.5, counts / np.maximum(cast, 0.5), confusion)


def _posterior(shares: Shares, confusion: Confusion, votes: Votes, known: Codes | None) -> Posterior:
    """The posterior of the labels, certain where they are known."""
    columns = np.log(confusion).transpose(0, 2, 1).reshape(-1, len(shares))
    item, joint = votes.triplets.item, np.tile(np.log(shares), (votes.num_items, 1))
    for label, column in enumerate(columns.T):
        joint[:, label] += np.bincount(item, column[votes.indicator_columns], minlength=votes.num_items)
    probs = softmax(joint, axis=1)
    return probs if known is None else certain_where_known(probs, known)


def count_by_label(votes: Votes, label_probs: Posterior) -> Confusion:
    """How often each voter cast each vote, by label: counts weighted with the label probabilities."""
    size = votes.num_voters * votes.num_classes
    totals = np.zeros((label_probs.shape[1], size))
    for start, block in votes.blocks():
        probs = label_probs[start : start + block.num_items]
        for label, total in enumerate(totals):
            total += np.bincount(block.indicator_columns, probs[block.triplets.item, label], minlength=size)
    return totals.reshape(-1, votes.num_voters, votes.num_classes).transpose(1, 0, 2)


def _inside(probs: np.ndarray, margin: float) -> np.ndarray:
    """Probabilities at their bounds moved inside."""
    moved = np.maximum(probs, margin)
    return moved / moved.sum(axis=-1, keepdims=True)


def _complete(shares: Shares, confusion: Confusion, counts: Confusion, num_items: float) -> Information:
    """The information if labels were known: coordinates are the shares', then by label, voter and vote."""
    num_voters, num_labels, num_votes = confusion.shape
    size = num_labels + confusion.size
    found = np.zeros((size, size))
    found[:num_labels, :num_labels] = num_items * _curvature(shares)
    start = num_labels
    for label in range(num_labels):
        for voter in range(num_voters):
            place = slice(start, start + num_votes)
            found[place, place] = counts[voter, label].sum() * _curvature(confusion[voter, label])
            start += num_votes
    return found


def _curvature(probs: Float[np.ndarray, " outcome"]) -> Float[np.ndarray, "outcome outcome"]:
    return np.diag(probs) - np.outer(probs, probs)


def _missing(confusion: Confusion, votes: Votes, label_probs: Posterior) -> Information:
    """The information that is lost because labels are not known: the variance of the complete score."""
    num_labels, size = confusion.shape[1], confusion.shape[1] + confusion.size
    per_label, found = confusion[:, 0].size, np.zeros((size, size))
    for probs, deviations in _deviations(confusion, votes, label_probs):
        mean = np.empty((len(probs), size))
        mean[:, :num_labels] = probs
        for label, deviation in enumerate(deviations):
            start = num_labels + label * per_label
            place = slice(start, start + per_label)
            mean[:, place] = probs[:, [label]] * deviation
            found[label, label] += probs[:, label].sum()
            total = mean[:, place].sum(axis=0)
            found[label, place] += total
            found[place, label] += total
            found[place, place] += mean[:, place].T @ deviation
        found -= mean.T @ mean
    return found


def _deviations(
    confusion: Confusion, votes: Votes, label_probs: Posterior
) -> Iterator[tuple[Posterior, list[Float[np.ndarray, "item voter_vote"]]]]:
    """By blocks of items: the posterior and, for each label, the votes less what is expected of those who voted."""
    num_voters, num_labels, num_votes = confusion.shape
    for start, block in votes.blocks():
        places = block.triplets.item.astype(np.int64) * num_voters * num_votes + block.indicator_columns
        cast = np.bincount(places, minlength=block.num_items * num_voters * num_votes)
        by_voter = cast.reshape(block.num_items, num_voters, num_votes).astype(float)
        number = by_voter.sum(axis=2, keepdims=True)
        flat = [(by_voter - number * confusion[:, k]).reshape(block.num_items, -1) for k in range(num_labels)]
        yield label_probs[start : start + block.num_items], flat


def _slopes(shares: Shares, confusion: Confusion) -> Float[np.ndarray, "skill parameter"]:
    """How skills change with the parameters."""
    num_voters, num_labels, num_votes = confusion.shape
    right = np.diagonal(confusion, axis1=1, axis2=2)
    by_confusion = np.zeros((num_voters, num_labels, num_votes, num_labels, num_voters, num_votes))
    for voter in range(num_voters):
        for label in range(num_labels):
            by_confusion[voter, label, :, label, voter] = _curvature(confusion[voter, label])
    of_right = np.stack([by_confusion[:, k, k] for k in range(num_labels)], axis=1)
    by_shares = np.zeros((num_voters * (2 + num_labels * num_votes), num_labels))
    by_shares[:num_voters] = shares * (right - (right @ shares)[:, None])
    rates = [np.einsum("k,jkabc->jabc", weights, of_right) for weights in (shares, np.full(num_labels, 1 / num_labels))]
    size = confusion.size
    return np.hstack(
        [by_shares, np.vstack([*(rate.reshape(-1, size) for rate in rates), by_confusion.reshape(-1, size)])]
    )
