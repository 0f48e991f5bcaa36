"""Columns whose names settle nothing are looked at: what does not look like votes is refused, never guessed.

The one exception is plain enough: a first column that has a different value in every row names the items.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.votes.coded import Coded
from latentens.votes.columns import ROLES, Long, Wide
from latentens.votes.labels import FEW_LABELS, label_text
from latentens.votes.names import listed, suggestion

DECIMAL = re.compile(r"[-+]?\d*[.,]\d+([eE][-+]?\d+)?")


class Held(NamedTuple):
    """What a column of a wide table holds: its distinct labels, and in how many cells."""

    labels: set[str]
    cells: int


def _what_columns_hold(layout: Wide, votes: Coded) -> dict[str, Held]:
    """The labels in each column of a wide table."""
    labels = [label_text(name) for name in votes.names.tolist()]
    held = {}
    for name, codes in zip(layout.voters, votes.codes.T, strict=True):
        counts = np.bincount(codes.astype(np.int64) + 1, minlength=len(labels) + 1)[1:]
        held[name] = Held({labels[code] for code in np.flatnonzero(counts)}, int(counts.sum()))
    return held


def first_names_items(layout: Wide, votes: Coded, classes: Sequence[str] | None) -> bool:
    """Whether the first column of a wide table plainly names the items, whatever it is called.

    It has a value in every row, always another one, and more than twice as many of its own as the other columns, which
    share labels with each other, have labels together: no voter who uses their labels can do that. With fewer rows the
    values of a voter may differ by chance, and values with decimals may be measurements; these are not decided here.

    Args:
        layout: The columns, none of which is known to be that of the items.
        votes: What they hold.
        classes: The labels, if the user names them; a column that holds nothing else is a voter's.
    """
    (_, first), *others = _what_columns_hold(layout, votes).items()
    voters = [(name, column.labels) for name, column in others if column.labels]
    uses = Counter(label for _, labels in voters for label in labels)
    return (
        not layout.items
        and not (classes and first.labels.issubset(classes))
        and len(first.labels) == first.cells == len(votes.codes)
        and sum(label not in uses for label in first.labels) > 2 * len(uses)
        and not any(DECIMAL.fullmatch(label) for label in first.labels)
        and len(voters) > 1
        and all(any(uses[label] > 1 for label in labels) for _, labels in voters)
        and not all(name in labels for name, labels in voters)  # else the first row holds votes, not headings
    )


def refuse_strange_columns(layout: Wide, votes: Coded, classes: Sequence[str] | None) -> None:
    """Raise `VotesError` if a column of a wide table does not look like a voter's labels.

    Args:
        layout: The columns.
        votes: What the voters' columns hold.
        classes: The labels, if the user names them.
    """
    held = _what_columns_hold(layout, votes)
    columns = {name: column for name, column in held.items() if column.labels}
    uses = Counter(label for column in columns.values() for label in column.labels)
    own = {name: sum(uses[label] == 1 for label in column.labels) for name, column in columns.items()}
    identifiers = [
        name for name, (labels, cells) in columns.items() if len(labels) == cells > 2 and 2 * own[name] > cells
    ]
    voters = [name for name in columns if name not in identifiers]
    if voters and not layout.items and all(name in columns[name].labels for name in voters):
        raise VotesError("the first row looks like votes: put a row with the names of the columns above it")
    if classes is not None:
        _refuse_unknown_labels(columns, classes)
    elif not layout.items and _may_be_long(votes.codes, [column.labels for column in held.values()]):
        raise VotesError(
            f"the columns {listed(layout.voters)} may be three voters, or the item, the voter and the vote of each "
            "row: say item=…, voter=… and vote=…, or, if they are voters, name the labels, classes=(…)"
        )
    elif identifiers:
        name = identifiers[0]
        items = f"say item={name!r} if it names the items, or" if not layout.items else "say"
        raise VotesError(f"column {name!r} has a different value in every row: {items} ignore=({name!r},)")
    else:
        _refuse_strangers({name: column.labels for name, column in columns.items()}, own)


def _refuse_unknown_labels(columns: Mapping[str, Held], classes: Sequence[str]) -> None:
    for name, (labels, _) in columns.items():
        if unknown := sorted(labels.difference(classes)):
            raise VotesError(
                f"column {name!r} holds {unknown[0]!r}, which is no class (if it holds no votes, say "
                f"ignore=({name!r},)): {suggestion(unknown[0], classes)}"
            )


def _refuse_strangers(labels: Mapping[str, set[str]], own: Mapping[str, int]) -> None:
    """Refuse a column that shares no label with the others, or few of many."""
    strangers = [
        name
        for name in labels
        if len(labels) > 1 and (own[name] == len(labels[name]) or 2 * own[name] > len(labels[name]) > FEW_LABELS)
    ]
    if len(strangers) == len(labels) > 2:
        raise VotesError(
            f"no two of the columns {listed(labels)} share their labels: if each row is one vote, say which column is "
            "which, item=…, voter=…, vote=…; if each column is a voter, name the labels, classes=(…)"
        )
    if strangers:
        name = strangers[0]
        raise VotesError(
            f"column {name!r} does not share its labels ({listed(sorted(labels[name]))}) with other columns: say "
            f"ignore=({name!r},) if it holds no votes, or name all labels, classes=(…), if it does"
        )


def _may_be_long(codes: Int[np.ndarray, "item voter"], labels: Sequence[set[str]]) -> bool:
    """Whether three columns may be items, voters and votes: two tell all rows apart, and their labels are not alike."""
    if len(labels) != len(ROLES) or len(codes) < 3 or len(set.union(*labels)) < 3 or all(map(labels[0].__eq__, labels)):
        return False
    pairs = [codes[:, pair] for pair in ([0, 1], [0, 2], [1, 2])]
    return any(
        (rows >= 0).all() and (rows != rows[0]).any(axis=0).all() and len(np.unique(rows, axis=0)) == len(rows)
        for rows in pairs
    )


def refuse_single_votes(layout: Long, item: Coded, voter: Coded) -> None:
    """Raise `VotesError` if every row of a long table has an item of its own: that may not be the column of items."""
    if len(item.names) == len(item.codes) > 1 and len(voter.names) > 1:
        raise VotesError(
            f"column {layout.item!r} has a different value in every row, so no item has two votes: name the column "
            f"of items, item=…; if each column is a voter, rename {layout.voter!r} and {layout.vote!r}"
        )
