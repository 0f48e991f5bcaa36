"""From tables, in memory or in files, to what votes are made of."""

from collections.abc import Generator, Hashable, Iterable, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from jaxtyping import Int8

from latentens.errors import VotesError
from latentens.votes.files import Chunk, Coded, in_order, join
from latentens.votes.labels import (
    MISSING,
    encode_labels,
    is_item_column,
    long_columns,
    natural_names,
    refuse_incomplete_columns,
)
from latentens.votes.triplets import Duplicates, Triplets, sort_triplets, to_matrix

DENSE_CELLS = 2**24
"""Up to this many cells a matrix is kept however few of them are filled."""

CELLS_A_VOTE = 9
"""Above, triplets are kept where a matrix would have more cells than this for each vote."""

Names = Sequence[Any] | np.ndarray
Classes = Sequence[Hashable] | None


class Content(NamedTuple):
    """What `Votes` hold."""

    storage: Int8[np.ndarray, "item voter"] | Triplets
    num_items: int
    num_voters: int
    num_classes: int
    item_names: Names
    voter_names: Names
    class_names: Names


class TableOptions(TypedDict, total=False):
    """How to read a table of votes: the columns of a long one, the labels in order, what to do with second votes."""

    item: str | None
    voter: str | None
    vote: str | None
    classes: Classes
    duplicates: Duplicates


def tabulate_file(path: str | Path, chunks: Generator[Chunk, None, None], **options: Unpack[TableOptions]) -> Content:
    """The votes in the chunks of a file, long or wide."""
    given = [options.get("item"), options.get("voter"), options.get("vote")]
    classes, duplicates = options.get("classes"), options.get("duplicates", "error")
    with closing(chunks):
        first = next(chunks, None)
        if first is None or not any(len(column.codes) for column in first.values()):
            raise VotesError(f"{path} has a header but no rows")
        try:
            found = long_columns(list(first))
            if not found and not any(given):
                refuse_incomplete_columns(list(first))
                return _tabulate_wide(chain([first], chunks), classes)
            usual = found or ("item", "voter", "vote")
            names = [column or alias for column, alias in zip(given, usual, strict=True)]
            refuse_missing_columns(names, first)
            parts = [[chunk[name] for name in names] for chunk in chain([first], chunks)]
            item, voter, vote = (join(column) for column in zip(*parts, strict=True))
            item, voter = (Coded(column.codes, natural_names(column.names)) for column in (item, voter))
            return tabulate_long((names[0], item), (names[1], voter), vote, classes, duplicates)
        except VotesError as error:
            named = str(error).startswith(str(path))  # as a fault of the file itself is
            raise VotesError(f"{error}" if named else f"{path}: {error}") from None


def tabulate_long(
    item: tuple[str, Coded], voter: tuple[str, Coded], vote: Coded, classes: Classes, duplicates: Duplicates
) -> Content:
    """The votes in columns of items and voters, each with its name, and of votes."""
    for name, column in (item, voter):
        if (column.codes == MISSING).any():
            raise VotesError(f"row {int(np.argmax(column.codes == MISSING))} has no {name}")
    items, voters = in_order(item[1]), in_order(voter[1])
    codes, class_names = _encode(vote, classes)
    triplets = sort_triplets(items, voters, codes, duplicates)
    shape = len(items.names), len(voters.names)
    dense = np.prod(shape, dtype=float) <= max(DENSE_CELLS, CELLS_A_VOTE * len(codes))
    storage = to_matrix(triplets, shape) if dense else triplets
    return Content(storage, *shape, len(class_names), _short(items.names), tuple(voters.names.tolist()), class_names)


def _tabulate_wide(chunks: Iterable[Chunk], classes: Classes) -> Content:
    """The votes in a table with one column a voter and perhaps a first one of item names."""
    items: list[Coded] = []
    parts: list[Coded] = []
    voters: list[str] = []
    for chunk in chunks:
        first, *others = chunk
        named = is_item_column(first)
        voters = others if named else [first, *others]
        items += [chunk[first]] if named else []
        by_voter = join([chunk[name] for name in voters])
        parts.append(Coded(by_voter.codes.reshape(len(voters), -1).T, by_voter.names))
    codes, class_names = _encode(join(parts), classes)
    item_names: Names = ()
    if items:
        column = join(items)
        item_names = _short(natural_names(column.names)[column.codes])
    return Content(codes, len(codes), len(voters), len(class_names), item_names, tuple(voters), class_names)


def refuse_missing_columns(wanted: Sequence[str], columns: Iterable[Any]) -> None:
    """Raise `VotesError` unless all columns are there."""
    columns = list(columns)
    for column in wanted:
        if column not in columns:
            raise VotesError(f"there is no column {column!r}; the columns are {', '.join(map(repr, columns))}")


def _encode(vote: Coded, classes: Classes) -> tuple[Int8[np.ndarray, "..."], tuple[Any, ...]]:
    """The class code of each vote, by way of the distinct ones."""
    codes, class_names = encode_labels(vote.names, classes)
    return np.append(codes, np.int8(MISSING))[vote.codes], class_names


def _short(names: np.ndarray) -> Names:
    """Names as a range if they are 0, 1, …."""
    is_range = names.dtype.kind == "i" and len(names) > 0 and names[0] == 0 and (np.diff(names) == 1).all()
    return range(len(names)) if is_range else names
