"""Ambiguous wide tables: columns that may not be voters are refused, with the option that settles it."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from latentens.errors import Keyword, VotesError
from latentens.votes.labels import (
    CHOICES,
    CLASSES,
    FEW_LABELS,
    ITEM,
    VOTE,
    VOTER,
    Coded,
    label_text,
    listed,
    suggestion,
)

DECIMAL = re.compile(r"[-+]?\d*[.,]\d+([eE][-+]?\d+)?")


class Held(NamedTuple):
    """The distinct labels of a column, and the number of cells that hold one."""

    labels: set[str]
    cells: int


def _columns_of(names: Sequence[str], votes: Coded) -> dict[str, Held]:
    labels = [label_text(name) for name in votes.names.tolist()]
    counts = {
        name: np.bincount(codes.astype(np.int64) + 1, minlength=len(labels) + 1)[1:]
        for name, codes in zip(names, votes.codes.T, strict=True)
    }
    return {name: Held({labels[i] for i in np.flatnonzero(n)}, int(n.sum())) for name, n in counts.items()}


def first_names_items(names: Sequence[str], votes: Coded, classes: Sequence[str] | None) -> bool:
    """Whether the first column of a wide table plainly names the items, whatever it is called.

    It has a different value in every row and more than twice as many labels of its own as the other columns, which
    share labels with each other, have together: no voter who uses their labels can do that. With fewer rows the values
    of a voter may differ by chance, and values with decimals may be measurements: these are left to
    `refuse_strange_columns`.

    Args:
        names: The columns, none of which is known to name the items.
        votes: Their content.
        classes: The labels, if the user lists them; a column that holds nothing else is a voter's.
    """
    (_, first), *others = _columns_of(names, votes).items()
    voters = [(name, column.labels) for name, column in others if column.labels]
    uses = Counter(label for _, labels in voters for label in labels)
    return (
        not (classes and first.labels.issubset(classes))
        and len(first.labels) == first.cells == len(votes.codes)
        and len(first.labels - {*uses}) > 2 * len(uses)
        and not any(DECIMAL.fullmatch(label) for label in first.labels)
        and len(voters) > 1
        and all(any(uses[label] > 1 for label in labels) for _, labels in voters)
        and not all(name in labels for name, labels in voters)  # else the first row holds votes, not headings
    )


def refuse_strange_columns(names: Sequence[str], has_items: bool, votes: Coded, classes: Sequence[str] | None) -> None:
    """Raise `VotesError` if a column of a wide table does not look like a voter's labels.

    Args:
        names: The columns of voters.
        has_items: Whether another column names the items.
        votes: What the columns hold.
        classes: The labels, if the user lists them.
    """
    columns = {name: column for name, column in _columns_of(names, votes).items() if column.labels}
    uses = Counter(label for column in columns.values() for label in column.labels)
    own = {name: sum(uses[label] == 1 for label in column.labels) for name, column in columns.items()}
    identifiers = [
        name for name, (labels, cells) in columns.items() if len(labels) == cells > 2 and 2 * own[name] > cells
    ]
    voters = [name for name in columns if name not in identifiers]
    if voters and not has_items and all(name in columns[name].labels for name in voters):
        raise VotesError("the first row looks like votes: put a row with the names of the columns above it")
    if classes is not None:
        usual = {label for label, number in uses.items() if number > 1}.union(classes)
        lowered = {label.casefold() for label in classes}
        for name, (labels, _) in columns.items():
            unknown = sorted(labels.difference(classes))
            alien = [label for label in unknown if label not in usual] if labels.isdisjoint(classes) else []
            if strange := [label for label in unknown if label in alien or label.casefold() in lowered]:
                ignore, hint = Keyword("ignore", (name,)), suggestion(strange[0], classes)
                raise VotesError(
                    f"column {name!r} holds {strange[0]!r}, which is not one of the classes (if it holds no votes, "
                    f"give {ignore}): {hint}",
                    ignore,
                )
        return
    strangers = [
        name
        for name, (labels, _) in columns.items()
        if len(columns) > 1 and (own[name] == len(labels) or 2 * own[name] > len(labels) > FEW_LABELS)
    ]
    three = not has_items and len(names) == len(columns) == 3
    if len(strangers) == len(columns) > 2 or (three and _may_be_long(votes, [c.labels for c in columns.values()])):
        raise VotesError(
            f"the columns {listed(names)} may be voters, or the item, the voter and the vote of each row: give {ITEM}, "
            f"{VOTER} and {VOTE} or, if they are voters, list the labels by {CLASSES}",
            *CHOICES,
        )
    for name in (*identifiers, *strangers):
        item, ignore = Keyword("item", name), Keyword("ignore", (name,))
        reason = f"does not share its labels ({listed(sorted(columns[name].labels))}) with other columns"
        if name in identifiers:
            reason = "has a different value in every row"
        first = f"{item} if it names the items, or " if name in identifiers and not has_items else ""
        raise VotesError(
            f"column {name!r} {reason}: give {first}{ignore} if it holds no votes, or list all labels by {CLASSES} if "
            "it does",
            *(item, ignore, CLASSES),
        )


def _may_be_long(votes: Coded, labels: Sequence[set[str]]) -> bool:
    """Whether three columns may be items, voters and votes: two identify the rows, and their labels are not alike."""
    if len(votes.codes) < 3 or len(set.union(*labels)) < 3 or labels[0] == labels[1] == labels[2]:
        return False
    pairs = [votes.codes[:, pair] for pair in ([0, 1], [0, 2], [1, 2])]
    return any(
        (rows >= 0).all() and (rows != rows[0]).any(axis=0).all() and len(np.unique(rows, axis=0)) == len(rows)
        for rows in pairs
    )
