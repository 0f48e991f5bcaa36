"""A part on single items: those nobody is sure of, and those on which methods disagree, with their votes."""

from collections.abc import Mapping

import numpy as np

from latentens.reporting.html import Html, details, number_cell, table
from latentens.reporting.label_tables import consensus
from latentens.reporting.parts import Part
from latentens.reporting.table_cells import words_cell
from latentens.reporting.view import View

MOST_ITEMS = 25
"""Rows of each table; the file `labels.csv` has all items."""

MOST_NAMED = 6
"""Up to this many votes are listed with the voters' names; more are counted."""


def items_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The items that a person should look at, for votes whose origin is unknown."""
    del colour
    if view.is_simulated or not view.estimates:
        return None
    label, agreeing = consensus(view)
    confidence = np.mean([probs.max(axis=1) for probs in view.estimates.values()], axis=0)
    order = np.argsort(confidence, kind="stable")
    disputed = [int(item) for item in order if agreeing[item] < len(view.estimates)]
    words = [
        "The items about which the methods are least sure, by the mean probability of their labels. A person who can "
        "label a few items should begin here; for measuring accuracy, take items at random instead."
    ]
    body = [_uncertain_table(view, order[:MOST_ITEMS].tolist(), label, confidence)]
    if len(view.estimates) > 1:
        body += _disputed(view, disputed)
    return Part("items", "Items to look at", words, body=body)


def _uncertain_table(view: View, items: list[int], label: np.ndarray, confidence: np.ndarray) -> Html:
    rows = [
        [
            _name(view, item),
            words_cell(votes_text(view, item)),
            view.class_names[label[item]],
            _percent(confidence[item]),
        ]
        for item in items
    ]
    return table(["Least certain items", "votes", "label by most methods", "mean confidence"], rows)


def _disputed(view: View, items: list[int]) -> list[Html]:
    """The items on which methods disagree, with every method's label."""
    share = len(items) / view.num_items
    summary = f"{len(items):,} items ({100 * share:.1f}\u00a0%) on which methods disagree"
    rows = [
        [
            _name(view, item),
            words_cell(votes_text(view, item)),
            *(_given(view, probs[item]) for probs in view.estimates.values()),
        ]
        for item in items[:MOST_ITEMS]
    ]
    return [details(summary, table(["Disputed items", "votes", *view.estimates], rows))] if rows else []


def _given(view: View, probs: np.ndarray) -> str:
    best = int(probs.argmax())
    return f"{view.class_names[best]} ({100 * probs[best]:.0f}\u00a0%)"


def votes_text(view: View, item: int) -> str:
    """The votes on an item: with the voters' names if they are few, else counted."""
    votes = view.votes.between(item, item + 1)
    _, voters, classes = votes.triplets
    if 0 < len(voters) <= MOST_NAMED:
        named = zip(voters, classes, strict=True)
        return ", ".join(f"{view.voter_names[voter]}: {view.class_names[vote]}" for voter, vote in named)
    counts = np.bincount(classes, minlength=len(view.class_names))
    said = [f"{count}\u00a0×\u00a0{view.class_names[vote]}" for vote, count in enumerate(counts) if count]
    return ", ".join(said) or "no votes"


def _name(view: View, item: int) -> str:
    return str(view.votes.item_names[item])


def _percent(share: float) -> Html:
    return number_cell(f"{100 * share:.0f}\u00a0%", order=share)
