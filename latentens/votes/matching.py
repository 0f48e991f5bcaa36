"""Names, not positions: votes and labels that come later are matched to the voters, classes and items of a fit."""

import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from latentens.errors import LatentensWarning, VotesError
from latentens.votes.labels import MISSING, Names, code_type, listed, suggestion
from latentens.votes.triplets import Triplets
from latentens.votes.votes import Votes

Gold = Mapping[Hashable, Hashable] | pd.Series | np.ndarray | Sequence[Any]


def align(votes: Votes, voter_names: Names, class_names: Names) -> Votes:
    """The votes with the voters and classes of a fit, matched by name.

    Args:
        votes: The votes.
        voter_names: Names of the voters of the fit. One who is absent from the votes counts as missing; a voter of
            the votes who is not among them is left out with a warning.
        class_names: Names of the classes of the fit; votes for others are refused.
    """
    if _same(votes.voter_names, voter_names) and _same(votes.class_names, class_names):
        return votes
    if isinstance(votes.voter_names, range) and isinstance(voter_names, range) and votes.num_voters != len(voter_names):
        raise VotesError(
            f"the method was fitted to {len(voter_names)} voters and cannot predict from the votes of "
            f"{votes.num_voters}: name the voters, so that they can be matched"
        )
    voters, classes = positions(votes.voter_names, voter_names), positions(votes.class_names, class_names)
    _refuse_unknown_classes(votes, classes, class_names)
    _report_unknown_voters(votes, voters, voter_names)
    recode = np.append(classes, MISSING).astype(code_type(len(class_names)))  # code −1 picks the last
    if isinstance(votes.storage, np.ndarray):
        matrix = np.full((votes.num_items, len(voter_names)), MISSING, dtype=recode.dtype)
        matrix[:, voters[voters >= 0]] = recode[votes.storage[:, voters >= 0]]
        storage: np.ndarray | Triplets = matrix
    else:
        item, voter, vote = votes.storage
        known = voters[voter] >= 0
        storage = Triplets(item[known], voters[voter[known]].astype(np.int32), recode[vote[known]]).in_order()
    return Votes(
        storage, votes.num_items, len(voter_names), len(class_names), votes.item_names, voter_names, class_names
    )


def gold_codes(votes: Votes, gold: Gold) -> Int[np.ndarray, " item"]:
    """The code of each item's true label, −1 where it is unknown.

    Args:
        votes: The votes whose items the labels are of.
        gold: A mapping or a Series from the item's name to its label, or an array with one entry per item. Items that
            are not among those of the votes are ignored with a warning; an item may occur again with the same label,
            but not with another one. Labels are
            read as written where all of them are names of classes, else as codes; empty, missing or, if no class is
            called so, −1 is unknown.
    """
    if isinstance(gold, Mapping | pd.Series):
        return _gold_by_name(votes, pd.Series(gold, dtype=object))
    values = np.asarray(gold, dtype=object)
    if values.shape != (votes.num_items,):
        raise VotesError(
            f"gold labels of shape {values.shape} do not belong to {votes.num_items} items: give one entry per item, "
            "or a mapping from the items' names to their labels"
        )
    return label_codes(values, votes.class_names)


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
                f"{listed([votes.class_names[codes[item]], votes.class_names[label]])}: leave one"
            )
        codes[item] = label
    return codes


def known_items(names: Collection[Any], votes: Votes, what: str) -> Int[np.ndarray, " name"]:
    """The place of each name among the items, −1 with a warning where it is none; refused if that goes for all.

    Args:
        names: Names of items.
        votes: The votes.
        what: What is known of the items.
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
    """Codes of labels as written or, where not all of them are names of classes, of labels that are codes already."""
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
    """Where each wanted name stands among the names, −1 where it does not; 1 and "1" are the same name.

    A name that is matched as it is goes before one that only reads alike.
    """
    exact = {name: index for index, name in enumerate(names)}
    as_text = {str(name): index for index, name in reversed(list(enumerate(names)))}
    found = [exact.get(name, as_text.get(str(name), MISSING)) for name in wanted]
    return np.array(found, dtype=np.int64)


def _same(first: Names, second: Names) -> bool:
    return len(first) == len(second) and (first is second or all(a == b for a, b in zip(first, second, strict=True)))


def _refuse_unknown_classes(votes: Votes, classes: Int[np.ndarray, " class"], class_names: Names) -> None:
    unknown = np.flatnonzero((classes < 0) & (votes.tally.sum(axis=0) > 0))
    if len(unknown):
        name = votes.class_names[unknown[0]]
        raise VotesError(f"some votes are for {name!r}, which was no class of the fit: {suggestion(name, class_names)}")


def _report_unknown_voters(votes: Votes, voters: Int[np.ndarray, " voter"], voter_names: Names) -> None:
    strangers = [name for name, position in zip(votes.voter_names, voters, strict=True) if position < 0]
    if len(strangers) == votes.num_voters:
        raise VotesError(
            f"none of the voters {listed(strangers)} was among the voters of the fit, {listed(voter_names)}"
        )
    if strangers:
        warnings.warn(
            f"{listed(strangers)} did not vote in the fit, so nothing is known about them: their votes are left out",
            LatentensWarning,
            stacklevel=4,
        )
