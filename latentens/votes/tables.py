"""CSV and Parquet files and data frames as tables of codes, read in chunks."""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.errors import Keyword, VotesError
from latentens.votes.labels import (
    CHOICES,
    CLASSES,
    FEW_LABELS,
    ITEM,
    KEEP,
    LAST,
    MISSING,
    VOTE,
    VOTER,
    Chunk,
    Coded,
    Duplicates,
    Names,
    Reading,
    as_numbers,
    code,
    coded,
    encode_codes,
    encode_labels,
    in_order,
    join,
    label_text,
    listed,
    natural_names,
    suggestion,
    without,
)
from latentens.votes.triplets import Triplets, sort_triplets, to_matrix, to_triplets

CHUNK_CELLS = 2**20
"""A file is read this many cells at a time."""

SAMPLE_BYTES = 2**16
"""The beginning of a text file that tells its encoding and separator."""

SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """A file with named columns.

    Attributes:
        path: The file.
        names: The names of its columns.
        index: The column that numbers or names the rows, if the file tells which.
        chunks: Reads some of the columns, a number of rows at a time.
    """

    path: Path
    names: tuple[str, ...]
    index: str | None
    chunks: Callable[[Sequence[str]], Iterator[Chunk]]

    def read(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Some of the columns, a number of rows at a time; a table without rows is refused."""
        empty = True
        for chunk in self.chunks(columns):
            empty = empty and not any(len(column.codes) for column in chunk.values())
            yield chunk
        if empty:
            raise VotesError("there is a header but no rows")


class Dialect(NamedTuple):
    """How a text file is written."""

    encoding: str
    separator: str
    names: tuple[str, ...]


def open_table(path: str | Path) -> Table:
    """The table in a Parquet file, if its name ends so, or in a text file."""
    return parquet_table(path) if Path(path).suffix == ".parquet" else csv_table(path)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file in what is said about its votes."""
    try:
        yield
    except VotesError as error:
        raise error if str(error).startswith(str(path)) else error.about(path) from None


@contextmanager
def readable(path: str | Path, kind: str) -> Iterator[None]:
    """Say in one sentence why a file cannot be read."""
    try:
        with naming(path):
            yield
    except VotesError:
        raise
    except FileNotFoundError:
        raise VotesError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise VotesError(f"{path} is a folder, not a {kind} file") from None
    except UnicodeError:
        raise VotesError(f"{path} is not a readable {kind} file: save it as UTF-8, which it is not") from None
    except (ValueError, OSError, EOFError, NotImplementedError, csv.Error, zlib.error) as error:
        raise VotesError(f"{path} is not a readable {kind} file ({' '.join(str(error).split())})") from None


def csv_table(path: str | Path) -> Table:
    """The table in a text file whose cells are separated by commas, semicolons, tabs or bars."""
    path = Path(path)
    with readable(path, "CSV"):
        dialect = _dialect(path)
        first = dialect.names[0]
        index = first if first == "" or first.startswith("Unnamed:") else None
        return Table(path, dialect.names, index, partial(_csv_chunks, path, dialect))


def _dialect(path: Path) -> Dialect:
    with _open(path) as file:
        sample = file.read(SAMPLE_BYTES)
    encoding = "utf-16" if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    whole = len(sample) < SAMPLE_BYTES
    text = codecs.getincrementaldecoder(encoding)().decode(sample, final=whole)
    if "\0" in text:
        raise ValueError("it is not text")
    if not text.strip():
        raise VotesError(f"{path} is empty")
    rows = {separator: _rows(text, separator, whole) for separator in SEPARATORS}
    separator = max(SEPARATORS, key=lambda separator: _plausibility(rows[separator]))
    return Dialect(encoding, separator, _checked_header(rows[separator][0]))


def _rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The rows of the beginning of a file, without the last if that may go on."""
    lines = io.StringIO(text, newline=None)
    rows = [row for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row]
    return rows if whole or len(rows) < 2 else rows[:-1]


def _plausibility(rows: Sequence[Sequence[str]]) -> tuple[bool, int]:
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths != {1}, len(rows[0])


def _checked_header(cells: Sequence[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise VotesError(f"two columns are named {name!r}: the first row must give each column a name of its own")
        if not name and position:
            raise VotesError(f"column {position + 1} has no name: the first row must name every column")
    return names


def _csv_chunks(path: Path, dialect: Dialect, columns: Sequence[str]) -> Iterator[Chunk]:
    """Some columns of a text file; their values stay as they were written, and only an empty cell is missing."""
    places = {name: dialect.names.index(name) for name in columns}
    num_rows = 0
    with readable(path, "CSV"):
        try:
            with _open(path) as file, pd.read_csv(file, **_pandas_options(dialect)) as frames:
                for frame in frames:
                    if not isinstance(frame.index, pd.RangeIndex):  # there are more cells than names
                        _refuse_ragged(path, dialect)
                    num_rows += len(frame)
                    yield {name: code(frame[place]) for name, place in places.items()}
        except pd.errors.ParserError:
            _refuse_ragged(path, dialect)
            raise
        if _may_be_ragged(path, dialect, num_rows):
            _refuse_ragged(path, dialect)


def _pandas_options(dialect: Dialect) -> dict[str, Any]:
    width = len(dialect.names)
    return {
        "sep": dialect.separator,
        "encoding": dialect.encoding,
        "header": 0,
        "names": range(width),
        "dtype": object,  # text as written: the type `category` turns 007 into 7
        "keep_default_na": False,
        "na_values": [""],
        "skipinitialspace": True,
        "skip_blank_lines": width > 1,
        "chunksize": max(1, CHUNK_CELLS // width),
    }


def _may_be_ragged(path: Path, dialect: Dialect, num_rows: int) -> bool:
    """Whether some row may be too short, which pandas fills up without a word; too long a row it refuses itself."""
    separators = 0
    with _open(path) as file:
        while block := file.read(CHUNK_CELLS):
            separators += block.count(dialect.separator.encode())
            if b'"' in block or b"\0" in block:
                return True
    return separators != (num_rows + 1) * (len(dialect.names) - 1)


def _refuse_ragged(path: Path, dialect: Dialect) -> None:
    """Refuse a row with too many or too few cells, or one that is no text."""
    width = len(dialect.names)
    with io.TextIOWrapper(_open(path), encoding=dialect.encoding, newline=None) as text:
        rows = csv.reader(text, delimiter=dialect.separator, skipinitialspace=True, strict=True)
        for row in rows:
            if row and len(row) != width:
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                raise VotesError(f"line {rows.line_num} has {cells}, but the first has {width}")
            if any("\0" in cell for cell in row):
                raise VotesError(f"line {rows.line_num} is not text")


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def parquet_table(path: str | Path) -> Table:
    """The table in a Parquet file."""
    path = Path(path)
    try:
        import pyarrow.parquet
    except ImportError:
        raise VotesError(f"{path}: Parquet files are read by pyarrow; install the extra `latentens[parquet]`") from None
    with readable(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        names = _checked_header(schema.names)
        stored = [name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)]
        return Table(path, names, stored[0] if len(stored) == 1 else None, partial(_parquet_chunks, path, len(names)))


def _parquet_chunks(path: Path, width: int, columns: Sequence[str]) -> Iterator[Chunk]:
    import pyarrow.parquet

    with readable(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=max(1, CHUNK_CELLS // width), columns=list(columns)):
            yield {name: _arrow_coded(batch.column(name)) for name in columns}


def _arrow_coded(column: Any) -> Coded:
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()  # its dictionary may have values that do not occur
    column = (column.cast("string") if types.is_binary(column.type) else column).dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return coded(codes, column.dictionary.to_numpy(zero_copy_only=False))


ROLES: Mapping[str, tuple[str, ...]] = {
    "item": ("item", "task", "question", "example", "instance", "document", "unit"),
    "voter": ("voter", "worker", "annotator", "rater", "judge", "classifier", "user", "coder", "labeler", "labeller"),
    "vote": ("vote", "label", "answer", "response", "annotation", "rating", "judgment", "judgement", "verdict"),
}
"""Usual names of the columns of a long table, also with `_id` or `_name` after them."""

ITEM_COLUMNS = ("item", "item_id", "id", "task", "question", "example")
"""Names of the column of items in a wide table."""

SURE_TRUTH = re.compile(r"(.*_)?(truth|gold|golden|groundtruth)(_.*)?|(true|correct)_(label|class|answer)|y_true")
LIKELY_TRUTH = frozenset({"label", "labels", "target", "y", "class", "answer", "correct", "expected", "gt", "true"})
"""Names of a column of true labels."""


class Long(NamedTuple):
    """A table with one vote per row: the names of its three columns."""

    item: str
    voter: str
    vote: str


class Wide(NamedTuple):
    """A table with one column per voter: the columns of voters, and that of items, if there is one."""

    voters: tuple[str, ...]
    items: tuple[str, ...]


def find_layout(names: Sequence[str], index: str | None, reading: Reading) -> Long | Wide:
    """Which columns hold what.

    Args:
        names: The names of the columns.
        index: The column that numbers or names the rows, if the file tells.
        reading: What the user says.
    """
    given = {role: getattr(reading, role) for role in ROLES}
    refuse_unknown([name for name in (*given.values(), *reading.ignore) if name is not None], names)
    left = [name for name in names if name not in reading.ignore]
    others = [name for name in left if name not in given.values()]
    roles = {role: given[role] or _by_role(role, others) for role in ROLES}
    absent = [role for role, name in roles.items() if name is None]
    if not absent:
        return Long(**{role: str(name) for role, name in roles.items()})
    said = reading.voter or reading.vote
    if said or (roles["voter"] and (len(absent) == 1 or len(left) <= len(ROLES))):
        name, choice = absent[0], Keyword(absent[0])
        wide = "" if said else f"; if each column is a voter, rename {roles['voter']!r}"
        raise VotesError(f"none of the columns {listed(others)} is named like the {name}s: give {choice}{wide}", choice)
    return _wide(left, index, reading.item)


def refuse_unknown(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise `VotesError` unless all columns are there."""
    for name in wanted:
        if name not in names:
            raise VotesError(f"there is no column {name!r}; the columns are {listed(names)}")


def _by_role(role: str, names: Sequence[str]) -> str | None:
    """The column of that role by its name; the role's own name goes before others, and `id` comes last."""
    for aliases in ((role,), ROLES[role], ("id",) if role == "item" else ()):
        found = [name for name in names if _plain(name) in aliases]
        if exact := [name for name in found if name.strip().lower() == role]:
            found = exact[:1]
        if len(found) > 1:
            choices = [Keyword(role, name) for name in found]
            either = " or ".join(map(str, choices))
            raise VotesError(f"columns {listed(found)} may all hold the {role}s: give {either}", *choices)
        if found:
            return found[0]
    return None


def _plain(name: str) -> str:
    """A name in small letters and underscores, without what only says that it is a name: WorkerId is worker."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name.strip()).strip("_").lower()
    return re.sub(r"_(id|name)$", "", words)


def _wide(names: Sequence[str], index: str | None, item: str | None) -> Wide:
    if item is None:
        known = [name for name in names if name.strip().lower() in ITEM_COLUMNS]
        if len(known) > 1:
            choices = [Keyword("item", name) for name in known]
            either = " or ".join(map(str, choices))
            message = f"columns {listed(known)} may all name the items: give {either}, and ignore the other"
            raise VotesError(message, *choices)
        item = known[0] if known else index
    voters = tuple(name for name in names if name not in (item, index))
    if not voters:
        raise VotesError("there is no column of votes beside the items")
    for name in voters:
        if SURE_TRUTH.fullmatch(_plain(name)) or _is_likely_truth(name, voters):
            ignore = Keyword("ignore", (name,))
            message = f"column {name!r} looks like the true labels: give {ignore}, or rename it if it is a voter"
            raise VotesError(message, ignore)
    return Wide(voters, () if item is None else (item,))


def _is_likely_truth(name: str, others: Sequence[str]) -> bool:
    """Whether a column is named like the truth; `y` between `x` and `z` is not."""
    letters = sum(len(other) == 1 for other in others)
    return _plain(name) in LIKELY_TRUTH and not (len(name) == 1 and letters > 1)


def truth_columns(names: Sequence[str], index: str | None, item: str | None) -> tuple[str, str]:
    """The column of items and that of true labels in a table of the truth.

    Args:
        names: The names of the columns.
        index: The column that numbers or names the rows, if the file tells.
        item: What the column of items is called in the table of votes, if the user says so.
    """
    if item not in names:
        item = _by_role("item", names) or index
    if item is None:
        raise VotesError(f"there is no column of items among {listed(names)}: call it 'item'")
    others = [name for name in names if name not in (item, index)]
    sure = [name for name in others if SURE_TRUTH.fullmatch(_plain(name))]
    found = sure or [name for name in others if _plain(name) in LIKELY_TRUTH] or others
    if len(found) != 1:
        raise VotesError(f"which of the columns {listed(found)} holds the true labels is not clear: call it 'truth'")
    return item, found[0]


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
            f"row: give {ITEM}, {VOTER} and {VOTE} or, if they are voters, list the labels by {CLASSES}",
            *CHOICES,
        )
    elif identifiers:
        name = identifiers[0]
        item, ignore = Keyword("item", name), Keyword("ignore", (name,))
        names_items = "" if layout.items else f"{item} if it names the items, or "
        raise VotesError(
            f"column {name!r} has a different value in every row: give {names_items}{ignore}", item, ignore
        )
    else:
        _refuse_strangers({name: column.labels for name, column in columns.items()}, own)


def _refuse_unknown_labels(columns: Mapping[str, Held], classes: Sequence[str]) -> None:
    for name, (labels, _) in columns.items():
        if unknown := sorted(labels.difference(classes)):
            ignore = Keyword("ignore", (name,))
            raise VotesError(
                f"column {name!r} holds {unknown[0]!r}, which is not one of the classes (if it holds no votes, give "
                f"{ignore}): {suggestion(unknown[0], classes)}",
                ignore,
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
            f"no two of the columns {listed(labels)} share their labels: if each row is one vote, give {ITEM}, {VOTER} "
            f"and {VOTE}; if each column is a voter, list the labels by {CLASSES}",
            *CHOICES,
        )
    if strangers:
        name = strangers[0]
        ignore = Keyword("ignore", (name,))
        raise VotesError(
            f"column {name!r} does not share its labels ({listed(sorted(labels[name]))}) with other columns: give "
            f"{ignore} if it holds no votes, or list all labels by {CLASSES} if it does",
            ignore,
            CLASSES,
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
            f"of items by {ITEM}; if each column is a voter, rename {layout.voter!r} and {layout.vote!r}",
            ITEM,
        )


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
            f"item {name} has more than one row: if each row is one vote, give {VOTER} and {VOTE}; if not, take one of "
            f"its rows by {LAST}, or count them all by {KEEP}",
            *CHOICES,
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
