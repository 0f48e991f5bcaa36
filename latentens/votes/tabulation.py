"""From tables, in memory or in files, to what votes are made of."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.votes.coded import Coded, code, in_order, join
from latentens.votes.columns import Long, Wide, find_layout, refuse_unknown
from latentens.votes.doubts import first_names_items, refuse_single_votes, refuse_strange_columns
from latentens.votes.files import Table, naming
from latentens.votes.labels import MISSING, as_numbers, encode_codes, encode_labels, label_text, without
from latentens.votes.names import Names, listed, natural_names
from latentens.votes.reading import Duplicates, Reading
from latentens.votes.triplets import Triplets, sort_triplets, to_matrix, to_triplets

SMALL_CELLS = 2**12
"""Up to this many cells a matrix is kept however few of them are filled."""

CELLS_A_VOTE = 9
"""Above, triplets are kept where a matrix would have more cells than this for each vote: a triplet takes nine bytes."""


class Content(NamedTuple):
    """What `Votes` hold."""

    storage: Int[np.ndarray, "item voter"] | Triplets
    num_items: int
    num_voters: int
    num_classes: int
    item_names: Names
    voter_names: Names
    class_names: Names
    note: str = ""


def tabulate_matrix(array: Any, num_classes: int | None, reading: Reading) -> Content:
    """The votes in a matrix with one row per item and one column per voter, as codes or as labels."""
    items, voters = _names_of_axes(array)
    array = np.array(array, dtype=object) if isinstance(array, list | tuple) else np.asarray(array)
    if array.ndim != 2:
        raise VotesError(f"votes form a matrix (item, voter), but this array has shape {array.shape}")
    if array.size == 0:
        raise VotesError(f"no votes: the matrix has shape {array.shape}")
    class_names: Names = ()
    if reading.classes is None and (numbers := as_numbers(array, truth_values=num_classes is not None)) is not None:
        absent = [value for value in reading.missing if isinstance(value, int | float)]
        missing = np.int8(MISSING)  # typed: numbers without a sign widen for it
        codes, num_classes = encode_codes(np.where(np.isin(numbers, absent), missing, numbers), num_classes)
    else:
        codes, class_names = encode_labels(without(code(array.ravel()), reading.missing), reading.classes)
        codes = codes.reshape(array.shape)
        if num_classes not in (None, len(class_names)):
            raise VotesError(f"{num_classes} classes were asked for, but the labels are {class_names}")
        num_classes = len(class_names)
    return Content(_stored(codes), len(codes), codes.shape[1], num_classes, items, voters, class_names)


def _is_dense(shape: tuple[int, int], num_votes: int) -> bool:
    """Whether a matrix is the smaller way of keeping votes."""
    return np.prod(shape, dtype=float) <= max(SMALL_CELLS, CELLS_A_VOTE * num_votes)


def _stored(codes: Int[np.ndarray, "item voter"]) -> Int[np.ndarray, "item voter"] | Triplets:
    """A matrix of votes as it is, or as triplets where few of its cells are filled."""
    return codes if _is_dense(codes.shape, int(np.count_nonzero(codes != MISSING))) else to_triplets(codes)


def _names_of_axes(array: Any) -> tuple[Names, Names]:
    if not isinstance(array, pd.DataFrame):
        return (), ()
    for what, names in (("rows", array.index), ("columns", array.columns)):
        if names.has_duplicates:
            raise VotesError(f"two {what} are named {listed(names[names.duplicated()][:1])}: give each its own name")
    return array.index.to_numpy(), tuple(array.columns)


def tabulate_frame(frame: pd.DataFrame, columns: Long, reading: Reading) -> Content:
    """The votes in a data frame with one vote per row."""
    refuse_unknown(columns, list(frame.columns))
    if frame.columns.has_duplicates:
        raise VotesError(f"two columns are named {listed(frame.columns[frame.columns.duplicated()][:1])}")
    if frame.empty:
        raise VotesError("no votes: the table has no rows")
    item, voter, vote = (code(frame[column]) for column in columns)
    return _tabulate_long(columns, item, voter, vote, reading)


def tabulate_file(table: Table, reading: Reading) -> Content:
    """The votes in a file, long or wide."""
    with naming(table.path):
        layout = find_layout(table.names, table.index, reading)
        if isinstance(layout, Wide):
            return _tabulate_wide(layout, table, reading)
        parts = [[chunk[name] for name in layout] for chunk in table.read(layout)]
        item, voter, vote = (join(column) for column in zip(*parts, strict=True))
        item, voter = (Coded(column.codes, natural_names(column.names)) for column in (item, voter))
        if reading.item is None:
            refuse_single_votes(layout, item, voter)
        return _tabulate_long(layout, item, voter, vote, reading)


def _tabulate_long(columns: Long, item: Coded, voter: Coded, vote: Coded, reading: Reading) -> Content:
    for name, column in ((columns.item, item), (columns.voter, voter)):
        refuse_gap(name, column)
    items, voters = in_order(item), in_order(voter)
    codes, class_names = encode_labels(without(vote, reading.missing), reading.classes)
    triplets = sort_triplets(items, voters, codes, reading.duplicates)
    shape = len(items.names), len(voters.names)
    dense = _is_dense(shape, len(triplets.vote)) and not triplets.repeated.any()
    storage = to_matrix(triplets, shape) if dense else triplets
    return Content(storage, *shape, len(class_names), _short(items.names), tuple(voters.names.tolist()), class_names)


def _tabulate_wide(layout: Wide, table: Table, reading: Reading) -> Content:
    items: list[Coded] = []
    parts: list[Coded] = []
    for chunk in table.read([*layout.voters, *layout.items]):
        items += [chunk[name] for name in layout.items]
        by_voter = join([chunk[name] for name in layout.voters])
        parts.append(Coded(by_voter.codes.reshape(len(layout.voters), -1).T, by_voter.names))
    votes = without(join(parts), reading.missing)
    classes = None if reading.classes is None else [*map(label_text, reading.classes)]
    if first_names_items(layout, votes, classes):
        first, *voters = layout.voters
        found = _tabulate_wide(Wide(tuple(voters), (first,)), table, reading)
        return found._replace(note=f"items named by the first column, {first!r}")
    refuse_strange_columns(layout, votes, classes)
    codes, class_names = encode_labels(votes, reading.classes)
    if not items:
        return Content(_stored(codes), len(codes), codes.shape[1], len(class_names), (), layout.voters, class_names)
    refuse_gap(layout.items[0], item := join(items))
    storage = _by_item(item, codes, reading.duplicates)
    names = _short(natural_names(item.names))
    return Content(storage, len(names), len(layout.voters), len(class_names), names, layout.voters, class_names)


def _by_item(
    item: Coded, codes: Int[np.ndarray, "row voter"], duplicates: Duplicates
) -> Int[np.ndarray, "item voter"] | Triplets:
    """The votes in the rows of a wide table, whose items may have several rows."""
    if len(item.names) == len(codes):
        return _stored(codes)
    if duplicates == "error":
        second = int(np.argmax(pd.Series(item.codes).duplicated()))
        name = listed(natural_names(item.names)[item.codes[[second]]])
        raise VotesError(
            f"item {name} has more than one row: if each row is one vote, say voter=… and vote=…; if not, take one of "
            "its rows by duplicates='last', or count them all by duplicates='keep'"
        )
    num_rows, num_voters = codes.shape
    voter = Coded(np.tile(np.arange(num_voters), num_rows), np.arange(num_voters))
    triplets = sort_triplets(Coded(item.codes.repeat(num_voters), item.names), voter, codes.ravel(), duplicates)
    return triplets if triplets.repeated.any() else to_matrix(triplets, (len(item.names), num_voters))


def refuse_gap(name: str, column: Coded) -> None:
    """Raise `VotesError` if a name is missing in a column of items or voters."""
    if (column.codes == MISSING).any():
        raise VotesError(f"row {int(np.argmax(column.codes == MISSING))} has no {name}")


def _short(names: np.ndarray) -> Names:
    """Names as a range if they are 0, 1, …."""
    is_range = names.dtype.kind == "i" and len(names) > 0 and names[0] == 0 and (np.diff(names) == 1).all()
    return range(len(names)) if is_range else names
