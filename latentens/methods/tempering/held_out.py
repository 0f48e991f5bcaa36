"""Votes and labels that a fit has not seen, and what it says about them."""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from latentens.errors import VotesError
from latentens.methods.base import Fit, GoldCodes, Method, Posterior, nested_fit, posterior_of
from latentens.runtime.numerics import numpy_generator
from latentens.votes import Votes
from latentens.votes.labels import MISSING

MOST_HIDDEN = 2**14
"""Number of votes that are hidden at most; of more a random sample is taken."""


NO_PAIRS = (
    "Tempered predicts hidden votes from the votes of other voters on the same item, but no item has votes of two "
    "voters: collect more votes on some items, or use the method without tempering"
)


class HiddenVotes(NamedTuple):
    """Votes that were hidden one at a time.

    Attributes:
        item: The item of each hidden vote, counted among those that were asked about.
        voter: Its voter.
        vote: The vote.
        label_probs: The posterior of the item's label given the other voters' votes.
        num_voters: Number of voters.
    """

    item: Int[np.ndarray, " hidden"]
    voter: Int[np.ndarray, " hidden"]
    vote: Int[np.ndarray, " hidden"]
    label_probs: Float[np.ndarray, "hidden label"]
    num_voters: int


class HiddenLabels(NamedTuple):
    """True labels that were kept from a fit.

    Attributes:
        label: The true label of each item.
        label_probs: The posterior of the item's label given its votes, by a fit without the item.
    """

    label: Int[np.ndarray, " item"]
    label_probs: Posterior


class HeldOut(NamedTuple):
    """What each fit was asked about, one entry for each fold.

    Attributes:
        votes: Votes on items that the fit has not seen.
        seen: Votes on the items that it was fitted to, each hidden in turn; the fit itself has seen it.
        labels: True labels of items that the fit has not seen.
    """

    votes: list[HiddenVotes]
    seen: list[HiddenVotes]
    labels: list[HiddenLabels]


def hold_out(method: Method, votes: Votes, folds: int, key: jax.Array, gold: GoldCodes | None) -> HeldOut:
    """Fit a method to all items but those of one fold and ask it about these, each fold in turn.

    Args:
        method: The method.
        votes: The votes.
        folds: Number of folds.
        key: Random key.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
    """
    generator = numpy_generator(key)
    fold = generator.permutation(votes.num_items) % folds
    items = _asked_items(votes, generator)
    asked, place = votes.take(items), fold[items]
    hidden = _hidden_entries(asked, generator)
    held = HeldOut([], [], [])
    for number in range(folds):
        others = np.flatnonzero(fold != number)
        known = None if gold is None else gold[others]
        fitted = nested_fit(method, votes.take(others), jax.random.fold_in(key, number), known)
        inside = place[asked.triplets.item[hidden]] == number
        if inside.any() and not inside.all():
            held.votes.append(_ask_about_votes(fitted, asked, hidden[inside]))
            held.seen.append(_ask_about_votes(fitted, asked, hidden[~inside]))
        if gold is not None and (told := np.flatnonzero((fold == number) & (gold >= 0))).size:
            probs = posterior_of(method, fitted, votes.take(told))
            held.labels.append(HiddenLabels(gold[told], probs))
    return held


def without_voter(votes: Votes, item: Int[np.ndarray, " row"], voter: Int[np.ndarray, " row"]) -> Votes:
    """One row of votes for each item given, without the votes of the voter given with it."""
    rows = votes.take(item)
    if isinstance(rows.storage, np.ndarray):
        matrix = rows.storage.copy()
        matrix[np.arange(len(item)), voter] = MISSING
        return replace(rows, storage=matrix)
    return replace(rows, storage=rows.storage.at(rows.storage.voter != voter[rows.storage.item]))


def _asked_items(votes: Votes, generator: np.random.Generator) -> Int[np.ndarray, " asked"]:
    """The items with two votes at least, or a sample of them."""
    items = np.flatnonzero(votes.tally.sum(axis=1) > 1)
    if not len(items):
        raise VotesError(NO_PAIRS)
    return items if len(items) <= MOST_HIDDEN else np.sort(generator.choice(items, MOST_HIDDEN, replace=False))


def _hidden_entries(votes: Votes, generator: np.random.Generator) -> Int[np.ndarray, " hidden"]:
    """The votes on items with votes of another voter, or a sample of them."""
    item = votes.triplets.item
    voters = np.bincount(item[~votes.triplets.repeated], minlength=votes.num_items)
    entries = np.flatnonzero(voters[item] > 1)
    if not len(entries):
        raise VotesError(NO_PAIRS)
    if len(np.unique(item[entries])) < 2:
        raise VotesError("Tempered needs votes of two voters on two items at least, but only one item has them")
    return entries if len(entries) <= MOST_HIDDEN else np.sort(generator.choice(entries, MOST_HIDDEN, replace=False))


def _ask_about_votes(fitted: Fit, votes: Votes, entries: Int[np.ndarray, " hidden"]) -> HiddenVotes:
    item, voter, vote = votes.triplets.at(entries)
    probs = posterior_of(fitted.method, fitted, without_voter(votes, item, voter))
    return HiddenVotes(item, voter, vote, probs, votes.num_voters)
