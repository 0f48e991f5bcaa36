"""Matching by name: the voters, classes and items of later votes and labels are matched to those of a fit."""

import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from latentens.errors import LatentensWarning, VotesError
from latentens.votes.labels import MISSING, ORDERED, Names, as_numbers, code_type, listed, suggestion
from latentens.votes.triplets import Triplets
from latentens.votes.votes import Votes

Gold = Mapping[Hashable, Hashable] | pd.Series | np.ndarray | Sequence[Any]


def check_votes(votes: object, taker: str) -> None:
    """Raise `VotesError` unless `votes` are `Votes`; `taker` is the subject of the message."""
    if not isinstance(votes, Votes):
        raise VotesError(f"{taker} takes Votes, not a {type(votes).__name__}: see Votes.from_matrix and from_long")


def align(
    votes: Votes, voter_names: Names, class_names: Names, other_names: Names = (), grade_names: Names = ()
) -> Votes:
    """The votes with the voters and classes of a fit, matched by name.

    Args:
        votes: The votes.
        voter_names: Names of the voters of the fit. One who is absent from the votes counts as missing; a voter of
            the votes who is not among them is left out with a warning.
        class_names: Names of the classes of the fit.
        other_names: The categories of votes of the fit that are not labels; votes for any others are refused.
        grade_names: The grades of a fit to ordered votes.
    """
    votes = votes.as_ordered()
    if len(grade_names):
        if not votes.is_ordered:
            raise VotesError(f"the method was fitted to ordered votes: read these votes with {ORDERED}, too", ORDERED)
        other_names = ()
    wanted = (voter_names, class_names, other_names, grade_names)
    if all(map(_same, (votes.voter_names, votes.class_names, votes.other_names, votes.grade_names), wanted)):
        return votes
    categories = grade_names if len(grade_names) else (*class_names, *other_names)
    if isinstance(votes.voter_names, range) and isinstance(voter_names, range) and votes.num_voters != len(voter_names):
        raise VotesError(
            f"the method was fitted to {len(voter_names)} voters and cannot predict from the votes of "
            f"{votes.num_voters}: name the voters, so that they can be matched"
        )
    voters, classes = positions(votes.voter_names, voter_names), positions(votes.category_names, categories)
    used = np.unique(votes.storage if isinstance(votes.storage, np.ndarray) else votes.storage.vote)
    if len(unknown := [code for code in used if code >= 0 and classes[code] < 0]):
        name = votes.category_names[unknown[0]]
        raise VotesError(f"some votes are for {name!r}, not a class of the fit: {suggestion(name, categories)}")
    strangers = [name for name, position in zip(votes.voter_names, voters, strict=True) if position < 0]
    if len(strangers) == votes.num_voters:
        raise VotesError(
            f"none of the voters {listed(strangers)} is in the fit, whose voters are {listed(voter_names)}"
        )
    if strangers:
        message = (
            f"{listed(strangers)} did not vote in the fit, so nothing is known about them: their votes are left out"
        )
        warnings.warn(message, LatentensWarning, stacklevel=3)
    recode = np.append(classes, MISSING).astype(code_type(len(categories)))  # code −1 picks the last
    if isinstance(votes.storage, np.ndarray):
        matrix = np.full((votes.num_items, len(voter_names)), MISSING, dtype=recode.dtype)
        matrix[:, voters[voters >= 0]] = recode[votes.storage[:, voters >= 0]]
        storage: np.ndarray | Triplets = matrix
        weights = None
    else:
        part = votes.at_entries(voters[votes.storage.voter] >= 0)
        item, voter, vote = part.triplets
        moved = Triplets(item, voters[voter].astype(np.int32), recode[vote])
        storage, weights = moved.in_order(), None if part.weights is None else part.weights[moved.order]
    sizes = votes.num_items, len(voter_names), len(class_names)
    names = votes.item_names, voter_names, class_names, other_names, grade_names
    return Votes(storage, *sizes, *names, weights=weights)


def gold_codes(votes: Votes, gold: Gold) -> Int[np.ndarray, " item"]:
    """The code of each item's true label, −1 where it is unknown.

    Args:
        votes: The votes whose items the labels are of.
        gold: A mapping or a Series from the item's name to its label, or an array with one entry per item. Items that
            are not among those of the votes are ignored with a warning; an item may occur again with the same label,
            but not with another one. Labels are class names if all of them are, else codes; an empty or missing label
            is unknown, and so is −1 if no class has that name.
    """
    if isinstance(gold, Mapping | pd.Series):
        return _gold_by_name(votes, pd.Series(gold, dtype=object))
    values = np.asarray(gold, dtype=object)
    if values.shape != (votes.num_items,):
        raise VotesError(
            f"gold labels have shape {values.shape}, but there are {votes.num_items} items: give one entry per item, "
            "or a mapping from the items' names to their labels"
        )
    return label_codes(values, votes.class_names)


def named_labels(votes: Votes, codes: Int[np.ndarray, " item"]) -> dict[Hashable, Hashable]:
    """Known labels by the names of items and classes: codes might be mistaken for classes whose names are numbers."""
    return {votes.item_names[item]: votes.class_names[codes[item]] for item in np.flatnonzero(codes >= 0).tolist()}


def checked_codes(labels: object, votes_shape: tuple[int, int]) -> Int[np.ndarray, " item"]:
    """Codes of the items' true labels as an array of integers, −1 where a label is unknown.

    Args:
        labels: An array or a sequence.
        votes_shape: Number of items and of classes.
    """
    values, (items, classes) = np.asarray(labels), votes_shape
    if values.shape != (items,):
        raise VotesError(f"labels have shape {values.shape}, but there are {items} items")
    numbers = as_numbers(values, truth_values=True)
    codes = f"the codes of labels are 0 … {classes - 1}, the places of the classes, and −1 where a label is unknown"
    if numbers is None:
        text = next(value for value in values.tolist() if isinstance(value, str) or not np.isscalar(value))
        raise VotesError(f"label {text!r} is not a number: {codes}")
    wrong = ~np.isin(numbers, np.arange(MISSING, classes))  # as is NaN
    if wrong.any():
        raise VotesError(f"label {numbers[wrong][0]} is out of range: {codes}")
    return numbers if numbers.dtype.kind == "i" else numbers.astype(code_type(classes))


def certain_where_known(
    probs: Float[np.ndarray, "item label"], gold: Int[np.ndarray, " item"]
) -> Float[np.ndarray, "item label"]:
    """The posterior of labels once some of them, those that are not −1, are known."""
    return np.where(gold[:, None] >= 0, gold[:, None] == np.arange(probs.shape[1]), probs)


def _gold_by_name(votes: Votes, gold: pd.Series) -> Int[np.ndarray, " item"]:
    items, given = known_items(gold.index, votes, "gold label"), gold.to_numpy()
    labels = label_codes(given[items >= 0], votes.class_names)
    items = items[items >= 0]
    codes = np.full(votes.num_items, MISSING)
    for item, label in zip(items[labels != MISSING], labels[labels != MISSING], strict=True):
        if codes[item] not in (MISSING, label):
            raise VotesError(
                f"item {listed(votes.item_names[item : item + 1])} has more than one gold label, "
                f"{listed([votes.class_names[codes[item]], votes.class_names[label]])}: keep one"
            )
        codes[item] = label
    return codes


def known_items(names: Collection[Any], votes: Votes, what: str) -> Int[np.ndarray, " name"]:
    """The position of each name among the items, −1 with a warning if it is not one of them; refused if none is.

    Args:
        names: Names of items.
        votes: The votes.
        what: What is known about the items, for messages.
    """
    items = positions(names, votes.item_names)
    if len(items) and (items < 0).all():
        first = next(iter(names))
        raise VotesError(
            f"none of the items with a {what} ({listed([first])}, …) is an item of the votes "
            f"({listed(votes.item_names[:1])}, …)"
        )
    if (unknown := int(np.sum(items < 0))) > 0:
        words = f"{unknown:,} of {len(items):,} items with a {what} have no votes: they are ignored"
        warnings.warn(words, LatentensWarning, stacklevel=4)
    return items


def label_codes(labels: np.ndarray, class_names: Names) -> Int[np.ndarray, " label"]:
    """Codes of labels, which are class names or, if not all of them are, codes already."""
    named = positions(labels, class_names)
    empty = np.array([bool(pd.isna(label)) or str(label) in ("", "-1") for label in labels], dtype=bool) & (named < 0)
    if (named[~empty] >= 0).all():
        return named
    numbers = pd.to_numeric(pd.Series(labels[~empty]), errors="coerce").to_numpy(dtype=float)
    if np.isin(numbers, np.arange(len(class_names))).all():
        named[~empty] = numbers.astype(int)
        return named
    strange = labels[~empty & (named < 0)]
    raise VotesError(
        f"the gold labels {listed(dict.fromkeys(strange))} are not among the classes of the votes: "
        f"{suggestion(strange[0], class_names)}"
    )


def positions(wanted: Iterable[Any], names: Names) -> Int[np.ndarray, " wanted"]:
    """The position of each wanted name among the names, −1 if there is none; 1 and "1" are the same name.

    An exact match takes precedence over one that is only spelled alike.
    """
    exact = {name: index for index, name in enumerate(names)}
    as_text = {str(name): index for index, name in reversed(list(enumerate(names)))}
    found = [exact.get(name, as_text.get(str(name), MISSING)) for name in wanted]
    return np.array(found, dtype=np.int64)


def _same(first: Names, second: Names) -> bool:
    return len(first) == len(second) and (first is second or all(a == b for a, b in zip(first, second, strict=True)))
