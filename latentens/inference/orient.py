"""Orientation: a fit knows its classes only up to their order; votes and gold labels fix it, here and only here."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from latentens.inference.identification import NEAR, UNSTABLE
from latentens.votes import Votes
from latentens.votes.labels import Names

Order = Int[np.ndarray, " label"]
Pairs = Float[np.ndarray, "label label"]
PerLabel = Float[np.ndarray, "item label"]
PerItem = Int[np.ndarray, " item"]

VOTES_AS_LABELS = 10.0
"""Votes that agree with a posterior completely count as this many gold labels of two classes, however many they are.

More items make it surer that voters agree with each other, but not that they are right: voters of one panel share their
errors. That most of them are better than chance is a prior belief, and ten gold labels that contradict it outweigh it.
"""


class Orientation(NamedTuple):
    """The order of the labels, and how sure it is.

    Certainty is that of the two labels most easily exchanged: how far the agreement of the posterior with votes and
    with gold labels exceeds its agreement once these two labels have changed places, in standard errors.

    Attributes:
        order: `label_probs[:, order]` is oriented: `order[k]` is the class that stands for label k.
        by_items: The standard error is that of other items with the same voters.
        by_voters: The standard error is that of other voters on the same items; NaN for fewer than three.
        by_gold: The margin of the gold labels alone; NaN without any.
        labels: The two labels; None if hardly any item has another label than the most frequent one.
    """

    order: Order
    by_items: float
    by_voters: float
    by_gold: float
    labels: tuple[int, int] | None

    @property
    def margin(self) -> float:
        """What the votes say, in the larger of the two standard errors."""
        return float(np.nanmin([self.by_items, self.by_voters]))

    def describe(self, class_names: Names) -> dict[str, Any]:
        """What goes into the diagnostics of a fit."""
        if self.labels is None:
            return {}
        numbers = {name: getattr(self, name) for name in ("by_items", "by_voters", "by_gold")}
        return {**numbers, "labels": [str(class_names[label]) for label in self.labels]}

    def warnings(self, class_names: Names, num_gold: int) -> list[str]:
        """What to say where the order is nearly a tie, or where votes and gold labels contradict each other."""
        if self.labels is None:
            return []
        first, second = (str(class_names[label]) for label in self.labels)
        if num_gold and abs(self.by_gold) >= NEAR:
            if np.sign(self.by_gold) == np.sign(self.margin) or abs(self.margin) < NEAR:
                return []
            followed = "votes" if self.by_gold < 0 else "gold labels"
            return [
                f"votes and gold labels contradict each other on which label is {first!r} and which {second!r}; the "
                f"{followed} were followed (the votes count as {VOTES_AS_LABELS:.0f} gold labels, and there are "
                f"{num_gold})"
            ]
        if self.margin >= NEAR:
            return []
        of = "items" if self.margin == self.by_items else "voters"
        return [
            f"it is nearly a tie which label is {first!r} and which {second!r}: the votes agree with this order by "
            f"only {self.margin:.1f} standard errors (of {of}) more than with the other; a few gold labels, or "
            "an anchor (voters known to be better than chance), would settle it"
        ]


def orient(label_probs: PerLabel, votes: Votes, gold: PerItem | None = None) -> Orientation:
    """The order of the classes under which a posterior agrees best with votes and gold labels, and how sure it is.

    Args:
        label_probs: The posterior given the votes alone.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
    """
    order = orientation(label_probs, votes, gold)
    num_labels = min(votes.num_classes, label_probs.shape[1])
    probs, lifts = label_probs[:, order][:, :num_labels], vote_lifts(votes)[:, :num_labels]
    counts = np.ones(len(probs)) if votes.counts is None else votes.counts
    by_items = _item_margins(lifts, probs, counts)
    by_voters = _voter_margins(votes, probs)
    by_gold = np.full_like(by_items, np.nan)
    if gold is not None:
        by_gold = _item_margins(np.equal.outer(gold, np.arange(num_labels)).astype(float), probs, counts)
    # A label that hardly any item has is of little consequence, and little is known about it.
    shares = np.bincount(probs.argmax(axis=1), counts, num_labels) / counts.sum()
    matters = np.triu(np.minimum.outer(shares, shares) > UNSTABLE, k=1)
    certainty = np.where(matters, np.fmin(by_items, by_voters) + np.nan_to_num(by_gold), np.inf)
    first, second = (int(place) for place in np.unravel_index(int(np.argmin(certainty)), certainty.shape))
    items, voters, known = (float(part[first, second]) for part in (by_items, by_voters, by_gold))
    return Orientation(order, items, voters, known, (first, second) if matters.any() else None)


def orientation(
    label_probs: PerLabel, votes: Votes, gold: PerItem | None = None, counts: PerItem | None = None
) -> Order:
    """The order of the classes under which a posterior agrees best with votes and gold labels.

    Agreement is the sum over items of posterior times `order_evidence`; the assignment of classes to labels that
    maximises it is taken. Where the order that the posterior came with does as well, it stays.

    Args:
        label_probs: The posterior given the votes alone.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
        counts: How often each item occurs; once if not given.

    Returns:
        `order` such that `label_probs[:, order]` is oriented: `order[k]` is the class that stands for label k.
    """
    evidence = order_evidence(votes, gold, counts)[:, : label_probs.shape[1]]
    unvoted = label_probs.shape[1] - evidence.shape[1]  # labels for which nobody could vote
    return best_order(np.pad(evidence.T @ label_probs, ((0, max(unvoted, 0)), (0, 0))))


def order_evidence(votes: Votes, gold: PerItem | None = None, counts: PerItem | None = None) -> PerLabel:
    """What each item says about the order of the labels: its vote lifts, and its gold label if it has one.

    Of two classes, label 1 is the one in which 1 is voted more often than in the other, however frequent class and
    vote are. The lifts are scaled so that a posterior which follows them on every item agrees with them by
    `VOTES_AS_LABELS` more than if two labels of average frequency had changed places; a gold label counts one.

    Args:
        votes: The votes; of those with an `anchor` only the votes of the anchor count.
        gold: The code of each item's true label, −1 where it is unknown.
        counts: How often each item occurs; once if not given.
    """
    counts = votes.counts if counts is None else counts
    lifts = vote_lifts(votes, counts)
    weighted = lifts if counts is None else lifts * counts[:, None]
    most = weighted.max(axis=1).sum() * votes.num_classes / (votes.num_classes - 1)  # lifts of an item sum to zero
    evidence = weighted * (VOTES_AS_LABELS * votes.num_classes / 2 / most) if most > 0 else weighted
    return evidence if gold is None else evidence + np.equal.outer(gold, np.arange(votes.num_classes))


def best_order(agreement: Float[np.ndarray, "label class"]) -> Order:
    """The class to stand for each label such that the sum of their agreements is greatest."""
    _, order = linear_sum_assignment(agreement, maximize=True)
    best, unchanged = agreement[np.arange(len(order)), order].sum(), np.trace(agreement)
    return np.arange(len(order)) if np.isclose(best, unchanged, rtol=1e-12) else order


def vote_shares(votes: Votes) -> PerLabel:
    """Each class's share of the votes of each item; equal shares where an item has no votes."""
    cast = votes.tally.sum(axis=1, keepdims=True)
    return np.where(cast > 0, votes.tally / np.maximum(cast, 1), 1 / votes.num_classes)


def vote_lifts(votes: Votes, counts: PerItem | None = None) -> PerLabel:
    """How far each class's share of an item's votes, or of those of the anchor, lies above its mean over items."""
    counts = votes.counts if counts is None else counts
    shares, has_votes = vote_shares(votes.of_anchor), np.asarray(votes.of_anchor.tally.any(axis=1))
    weights = has_votes * np.asarray(1.0 if counts is None else counts)
    if not has_votes.any():
        return np.zeros_like(shares)
    return np.where(has_votes[:, None], shares - np.average(shares, axis=0, weights=weights), 0.0)


def _item_margins(evidence: PerLabel, probs: PerLabel, counts: np.ndarray) -> Pairs:
    """What each two labels gain over their exchange, in standard errors over items.

    An item gains (e_k − e_l)(p_k − p_l). Sums over items of that and of its square, for all pairs at once, are sums of
    products of powers of e and p.
    """
    weighted = evidence * counts[:, None]
    gain = _exchanged(weighted.T @ probs)
    squares = _squared_gains(evidence, probs, counts)
    variance = squares - gain**2 / counts.sum()
    return _ratio(gain, variance)


def _squared_gains(evidence: PerLabel, probs: PerLabel, counts: np.ndarray) -> Pairs:
    weight = counts[:, None]
    both = evidence**2 * weight, evidence * weight, probs**2
    square = both[0].T @ both[2]
    of_label = np.diag(square)
    one_sided = (both[0] * probs).T @ probs + evidence.T @ (both[1] * both[2])  # e_k² p_k p_l and e_k e_l p_l²
    mixed = (both[1] * probs).T @ (evidence * probs)
    return of_label[:, None] + of_label + square + square.T - 2 * (one_sided + one_sided.T) + 4 * mixed


def _voter_margins(votes: Votes, probs: PerLabel) -> Pairs:
    """What each two labels gain over their exchange, in standard errors over voters; NaN for fewer than three."""
    anchor = votes.of_anchor
    item, voter, vote = anchor.triplets
    voters, num_classes = np.unique(voter), votes.num_classes
    if len(voters) < 3:
        return np.full((probs.shape[1], probs.shape[1]), np.nan)
    share = 1 / np.bincount(item, minlength=anchor.num_items)[item]
    if votes.counts is not None:
        share = share * votes.counts[item]
    place = np.searchsorted(voters, voter)
    cast = sparse.csr_array((share, (place * num_classes + vote, item)), (len(voters) * num_classes, len(probs)))
    agreement = np.asarray(cast @ probs).reshape(len(voters), num_classes, -1)  # voter, vote, label
    usual = agreement.sum(axis=(0, 2)) / agreement.sum()
    agreement = agreement - usual[:, None] * agreement.sum(axis=1, keepdims=True)
    gains = _exchanged(agreement[:, : probs.shape[1]])
    variance = gains.var(axis=0, ddof=1) * len(voters)
    return _ratio(gains.sum(axis=0), variance)


def _exchanged(agreement: Float[np.ndarray, "*voter label label"]) -> Float[np.ndarray, "*voter label label"]:
    """What is lost when the labels k and l change places."""
    own = np.diagonal(agreement, axis1=-2, axis2=-1)
    return own[..., :, None] + own[..., None, :] - agreement - np.swapaxes(agreement, -1, -2)


def _ratio(gain: Pairs, variance: Pairs) -> Pairs:
    """The gain in standard errors, finite even without any noise."""
    error = np.sqrt(np.maximum(variance, (1e-6 * gain) ** 2))
    return np.divide(gain, error, out=np.zeros_like(gain), where=error > 0)
