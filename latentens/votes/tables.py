"""CSV and Parquet files and data frames as columns of votes, read in chunks."""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from latentens.errors import Keyword, VotesError
from latentens.votes.labels import (
    CHOICES,
    ITEM,
    KEEP,
    LAST,
    MISSING,
    VOTE,
    VOTER,
    Chunk,
    Coded,
    Duplicates,
    Encoded,
    Names,
    Reading,
    as_numbers,
    code,
    encode,
    encode_codes,
    in_order,
    join,
    listed,
    natural_names,
    refuse_scores,
    without,
)
from latentens.votes.triplets import Triplets, sort_triplets, to_matrix, to_triplets
from latentens.votes.validation import first_names_items, refuse_strange_columns

SEPARATORS = ",;\t|"

Storage = Int[np.ndarray, "item voter"] | Triplets


class Content(NamedTuple):
    """The content of `Votes`: fields of the same names, and the names of the codes."""

    storage: Storage
    item_names: Names
    voter_names: Names
    encoded: Encoded
    note: str = ""
    weights: Float[np.ndarray, " entry"] | None = None


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
    chunks: Callable[[Sequence[str], int], Iterator[Chunk]]

    def read(self, columns: Sequence[str], reading: Reading) -> Iterator[Chunk]:
        """Some of the columns, a number of rows at a time; a table without rows is refused."""
        empty = True
        for chunk in self.chunks(columns, max(1, reading.chunk_cells // len(self.names))):
            empty = empty and not any(len(column.codes) for column in chunk.values())
            yield chunk
        if empty:
            raise VotesError("there is a header but no rows")

    def columns(self, columns: Sequence[str], reading: Reading) -> list[Coded]:
        """Some of the columns as a whole."""
        parts = [[chunk[name] for name in columns] for chunk in self.read(columns, reading)]
        return [join(column) for column in zip(*parts, strict=True)]


def open_table(path: str | Path) -> Table:
    """The table in a Parquet file, if its name ends so, or in a text file."""
    return parquet_table(path) if Path(path).suffix == ".parquet" else csv_table(path)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Begin messages about votes with the file that they are from."""
    try:
        yield
    except VotesError as error:
        raise error if str(error).startswith(str(path)) else error.about(path) from None


@contextmanager
def readable(path: str | Path, kind: str) -> Iterator[None]:
    """Explain in one sentence why a file cannot be read."""
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
        raise VotesError(f"{path} is not UTF-8: save it as UTF-8") from None
    except (ValueError, OSError, EOFError, NotImplementedError, csv.Error, zlib.error) as error:
        raise VotesError(f"{path} is not a readable {kind} file ({' '.join(str(error).split())})") from None


def csv_table(path: str | Path, *, sample_bytes: int = 2**16) -> Table:
    """The table in a text file whose cells are separated by commas, semicolons, tabs or bars.

    Args:
        path: The file.
        sample_bytes: Size of its beginning, from which encoding and separator are found.
    """
    path = Path(path)
    with readable(path, "CSV"):
        with _open(path) as file:
            sample = file.read(sample_bytes)
        encoding = "utf-16" if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        whole = len(sample) < sample_bytes
        text = codecs.getincrementaldecoder(encoding)().decode(sample, final=whole)
        if "\0" in text:
            raise ValueError("it is not text")
        if not text.strip():
            raise VotesError(f"{path} is empty")
        rows = {separator: _sample_rows(text, whole, separator) for separator in SEPARATORS}
        widths = {separator: {*map(len, found)} for separator, found in rows.items()}
        separator = max(SEPARATORS, key=lambda s: (len(widths[s]) == 1 and widths[s] != {1}, len(rows[s][0])))
        names = _checked_header(rows[separator][0])

    def chunks(columns: Sequence[str], num_rows: int) -> Iterator[Chunk]:
        with readable(path, "CSV"):
            may_be_short = False
            try:
                with (
                    _open(path) as file,
                    pd.read_csv(
                        file,
                        sep=separator,
                        encoding=encoding,
                        header=0,
                        names=range(len(names)),
                        dtype=object,  # text as written: the type `category` turns 007 into 7
                        keep_default_na=False,
                        na_values=[""],
                        skipinitialspace=True,
                        skip_blank_lines=len(names) > 1,
                        chunksize=num_rows,
                    ) as frames,
                ):
                    for frame in frames:
                        if not isinstance(frame.index, pd.RangeIndex):  # there are more cells than names
                            _refuse_ragged(path, encoding, separator, len(names))
                        may_be_short = may_be_short or bool(frame.iloc[:, -1].isna().any())
                        yield {name: code(frame[names.index(name)]) for name in columns}
            except pd.errors.ParserError:
                _refuse_ragged(path, encoding, separator, len(names))
                raise
            if may_be_short:  # pandas fills up short rows silently
                _refuse_ragged(path, encoding, separator, len(names))

    return Table(path, names, names[0] if names[0] == "" or names[0].startswith("Unnamed:") else None, chunks)


def _sample_rows(text: str, whole: bool, separator: str) -> list[list[str]]:
    """The rows of the beginning of a file, without the last if that may go on."""
    lines = io.StringIO(text, newline=None)
    rows = [row for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row]
    return rows if whole or len(rows) < 2 else rows[:-1]


def _checked_header(cells: Sequence[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise VotesError(f"two columns are named {name!r}: column names in the first row must be unique")
        if not name and position:
            raise VotesError(f"column {position + 1} has no name: the first row must name every column")
    return names


def _refuse_ragged(path: Path, encoding: str, separator: str, width: int) -> None:
    """Raise `VotesError` for the first row with too many or too few cells."""
    with io.TextIOWrapper(_open(path), encoding=encoding, newline=None) as text:
        rows = csv.reader(text, delimiter=separator, skipinitialspace=True, strict=True)
        for row in rows:
            if row and len(row) != width:
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                raise VotesError(f"line {rows.line_num} has {cells}, but the first has {width}")


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
        names = _checked_header(file.schema_arrow.names)
        metadata = file.schema_arrow.pandas_metadata or {}
        index = [name for name in metadata.get("index_columns", ()) if isinstance(name, str)]

    def chunks(columns: Sequence[str], num_rows: int) -> Iterator[Chunk]:
        with readable(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
            yield from map(_coded_batch, file.iter_batches(batch_size=num_rows, columns=list(columns)))

    return Table(path, names, index[0] if len(index) == 1 else None, chunks)


def arrow_table(source: Any) -> Table:
    """The table that an object exports as Arrow data; codes of labels in Hugging Face datasets become their names."""
    if hasattr(source, "with_format"):  # a Hugging Face dataset, which has its own name for this
        source = source.with_format("arrow")[:]
    kind = _kind(source)
    if not hasattr(source, "__arrow_c_stream__"):
        raise VotesError(f"{kind} does not export Arrow data: convert it to a table that has __arrow_c_stream__")
    try:
        import pyarrow
    except ImportError:
        raise VotesError(f"{kind}: Arrow data are read by pyarrow; install the extra `latentens[parquet]`") from None
    with readable(kind, "Arrow"):
        table = pyarrow.table(source)  # once, since some streams end after the first reading
        info = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {})
        for name, feature in info.get("features", {}).items():
            if feature.get("_type") == "ClassLabel":
                texts = [
                    None if code is None or code < 0 else feature["names"][code] for code in table[name].to_pylist()
                ]
                table = table.set_column(table.schema.names.index(name), name, pyarrow.array(texts, pyarrow.string()))
        names = _checked_header(table.schema.names)

    def chunks(columns: Sequence[str], num_rows: int) -> Iterator[Chunk]:
        return map(_coded_batch, table.select(list(columns)).to_batches(max_chunksize=num_rows))

    return Table(Path(kind), names, None, chunks)


def refuse_arrow(source: Any) -> None:
    """Raise `VotesError` for Arrow data, whose names of columns pandas and NumPy would lose."""
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pd.DataFrame):
        raise VotesError(f"{_kind(source)} holds Arrow data: read it by Votes.from_arrow")


def _kind(source: Any) -> str:
    return f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"


def _coded_batch(batch: Any) -> Chunk:
    """The columns of a batch of Arrow data."""
    series = (column.to_pandas(integer_object_nulls=True) for column in batch.columns)
    return dict(zip(batch.schema.names, map(code, series), strict=True))


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
        reading: The user's options.
    """
    given = {role: getattr(reading, role) for role in ROLES}
    refuse_unknown([name for name in (*given.values(), *reading.ignore) if name is not None], names)
    left = [name for name in names if name not in reading.ignore]
    others = [name for name in left if name not in given.values()]
    roles = {role: given[role] or _by_role(role, others) for role in ROLES}
    absent = [role for role, name in roles.items() if name is None]
    if not absent:
        return Long(**{role: str(name) for role, name in roles.items()})
    is_long = reading.voter or reading.vote
    if is_long or (roles["voter"] and (len(absent) == 1 or len(left) <= len(ROLES))):
        name, choice = absent[0], Keyword(absent[0])
        wide = "" if is_long else f"; if each column is a voter, rename {roles['voter']!r}"
        raise VotesError(f"none of the columns {listed(others)} is named like the {name}s: give {choice}{wide}", choice)
    item = reading.item or _only([name for name in left if name.strip().lower() in ITEM_COLUMNS], "item") or index
    voters = tuple(name for name in left if name not in (item, index))
    if not voters:
        raise VotesError("there are no columns of votes beside the items")
    letters = sum(len(name) == 1 for name in voters)
    for name in voters:
        is_likely = _plain(name) in LIKELY_TRUTH and not (len(name) == 1 and letters > 1)  # `y` between `x` and `z`
        if is_likely or SURE_TRUTH.fullmatch(_plain(name)):
            ignore = Keyword("ignore", (name,))
            message = f"column {name!r} looks like the true labels: give {ignore}, or rename it if it is a voter"
            raise VotesError(message, ignore)
    return Wide(voters, () if item is None else (item,))


def truth_columns(names: Sequence[str], index: str | None, item: str | None) -> tuple[str, str]:
    """The column of items and that of true labels in a table of the truth.

    Args:
        names: The names of the columns.
        index: The column that numbers or names the rows, if the file tells.
        item: The name of the column of items in the table of votes, if the user gives it.
    """
    if item not in names:
        item = _by_role("item", names) or index
    if item is None:
        raise VotesError(f"none of the columns {listed(names)} is named like the items: rename one to 'item'")
    others = [name for name in names if name not in (item, index)]
    sure = [name for name in others if SURE_TRUTH.fullmatch(_plain(name))]
    found = sure or [name for name in others if _plain(name) in LIKELY_TRUTH] or others
    if len(found) != 1:
        raise VotesError(
            f"it is unclear which of the columns {listed(found)} holds the true labels: rename it to 'truth'"
        )
    return item, found[0]


def refuse_unknown(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raise `VotesError` unless all columns are there."""
    for name in wanted:
        if name not in names:
            raise VotesError(f"there is no column {name!r}; the columns are {listed(names)}")


def _by_role(role: str, names: Sequence[str]) -> str | None:
    """The column of that role by its name; the role's own name takes precedence, and `id` comes last."""
    for aliases in ((role,), ROLES[role], ("id",) if role == "item" else ()):
        found = [name for name in names if _plain(name) in aliases]
        exact = [name for name in found if name.strip().lower() == role]
        if found:
            return _only(exact[:1] or found, role)
    return None


def _only(found: Sequence[str], role: str) -> str | None:
    """The one column that was found; several are refused."""
    if len(found) > 1:
        choices = [Keyword(role, name) for name in found]
        either = " or ".join(map(str, choices))
        raise VotesError(
            f"columns {listed(found)} may all be the {role}s: give {either}, and ignore the other", *choices
        )
    return found[0] if found else None


def _plain(name: str) -> str:
    """A name in small letters and underscores, without a final `id` or `name`: WorkerId is worker."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name.strip()).strip("_").lower()
    return re.sub(r"_(id|name)$", "", words)


def tabulate_matrix(array: Any, num_classes: int | None, reading: Reading) -> Content:
    """The votes in a matrix with one row per item and one column per voter, as codes or as labels."""
    refuse_arrow(array)
    frame = array if isinstance(array, pd.DataFrame) else None
    for axis, index in () if frame is None else (("rows", frame.index), ("columns", frame.columns)):
        if index.has_duplicates:
            raise VotesError(f"two {axis} are named {listed(index[index.duplicated()][:1])}: give each its own name")
    array = np.array(array, dtype=object) if isinstance(array, list | tuple) else np.asarray(array)
    if array.ndim != 2:
        raise VotesError(f"votes form a matrix (item, voter), but this array has shape {array.shape}")
    if array.size == 0:
        raise VotesError(f"no votes: the matrix has shape {array.shape}")
    items: Names = range(array.shape[0]) if frame is None else frame.index.to_numpy()
    voters: Names = range(array.shape[1]) if frame is None else tuple(frame.columns)
    if num_classes is not None and reading.ordered and reading.classes is None:
        reading, num_classes = replace(reading, classes=num_classes), None
    if reading.classes is None and not reading.ordered:
        numbers = as_numbers(array, truth_values=num_classes is not None)
        if numbers is not None:
            absent = [value for value in reading.missing if isinstance(value, int | float)]
            missing = np.int8(MISSING)  # typed: numbers without a sign widen for it
            codes, number = encode_codes(np.where(np.isin(numbers, absent), missing, numbers), num_classes)
            return Content(_stored(codes), items, voters, Encoded(codes, range(number), ()))
    found = encode(without(code(array.ravel()), reading.missing), reading)
    if num_classes not in (None, len(found.class_names)):
        raise VotesError(f"{num_classes} classes were asked for, but the labels are {found.class_names}")
    return Content(_stored(found.codes.reshape(array.shape)), items, voters, found)


def long_columns(names: Sequence[str], reading: Reading) -> Long:
    """The three columns of a table with one vote per row: as the user names them, or by their usual names."""
    given = {role: getattr(reading, role) for role in ROLES}
    others = [name for name in names if isinstance(name, str) and name not in given.values()]
    return Long(**{role: name or _by_role(role, others) or role for role, name in given.items()})


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
        item, voter, vote = table.columns(layout, reading)
        item, voter = (Coded(column.codes, natural_names(column.names)) for column in (item, voter))
        if reading.item is None and len(item.names) == len(item.codes) > 1 and len(voter.names) > 1:
            raise VotesError(
                f"column {layout.item!r} has a different value in every row, so no item has two votes: name the column "
                f"of items by {ITEM}; if each column is a voter, rename {layout.voter!r} and {layout.vote!r}",
                ITEM,
            )
        return _tabulate_long(layout, item, voter, vote, reading)


def _tabulate_long(columns: Long, item: Coded, voter: Coded, vote: Coded, reading: Reading) -> Content:
    for name, column in ((columns.item, item), (columns.voter, voter)):
        refuse_gap(name, column)
    items, voters = in_order(item), in_order(voter)
    found = encode(without(vote, reading.missing), reading)
    triplets = sort_triplets(items, voters, found.codes, reading.duplicates)
    storage = stored_triplets(triplets, (len(items.names), len(voters.names)))
    return Content(storage, _short(items.names), tuple(voters.names.tolist()), found)


def stored_triplets(triplets: Triplets, shape: tuple[int, int]) -> Storage:
    """Votes as a matrix, or as the triplets that they are where few cells are filled or votes are repeated."""
    dense = _is_dense(shape, len(triplets.vote)) and not triplets.repeated.any()
    return to_matrix(triplets, shape) if dense else triplets


def wide_rows(layout: Wide, chunk: Chunk) -> Coded:
    """The votes in a chunk of a wide table, one row per item."""
    by_voter = join([chunk[name] for name in layout.voters])
    return Coded(by_voter.codes.reshape(len(layout.voters), -1).T, by_voter.names)


def _tabulate_wide(layout: Wide, table: Table, reading: Reading) -> Content:
    items: list[Coded] = []
    parts: list[Coded] = []
    for chunk in table.read([*layout.voters, *layout.items], reading):
        items += [chunk[name] for name in layout.items]
        parts.append(wide_rows(layout, chunk))
    votes = without(join(parts), reading.missing)
    classes = reading.label_texts
    if not items and first_names_items(layout.voters, votes, classes):
        first, *voters = layout.voters
        content = _tabulate_wide(Wide(tuple(voters), (first,)), table, reading)
        return content._replace(note=f"items named by the first column, {first!r}")
    if not reading.ordered:
        refuse_scores(votes, classes)
        refuse_strange_columns(layout.voters, bool(items), votes, classes)
    found = encode(votes, reading)
    if not items:
        return Content(_stored(found.codes), range(len(found.codes)), layout.voters, found)
    item = join(items)
    refuse_gap(layout.items[0], item)
    item = Coded(item.codes, natural_names(item.names))
    storage = _by_item(item, found.codes, reading.duplicates)
    return Content(storage, _short(item.names), layout.voters, found)


def _by_item(item: Coded, codes: Int[np.ndarray, "row voter"], duplicates: Duplicates) -> Storage:
    """The votes in the rows of a wide table, whose items may have several rows."""
    if len(item.names) == len(codes):
        return _stored(codes)
    if duplicates == "error":
        second = int(np.argmax(pd.Series(item.codes).duplicated()))
        raise VotesError(
            f"item {listed(item.names[item.codes[[second]]])} has more than one row: if each row is one vote, give "
            f"{VOTER} and {VOTE}; if not, take one of its rows by {LAST}, or count them all by {KEEP}",
            *CHOICES,
        )
    num_rows, num_voters = codes.shape
    voter = Coded(np.tile(np.arange(num_voters), num_rows), np.arange(num_voters))
    triplets = sort_triplets(Coded(item.codes.repeat(num_voters), item.names), voter, codes.ravel(), duplicates)
    return triplets if triplets.repeated.any() else to_matrix(triplets, (len(item.names), num_voters))


def _is_dense(shape: tuple[int, ...], num_votes: int, *, small: int = 2**12) -> bool:
    """Whether to keep votes as a matrix: if it is small or smaller than triplets, which take nine bytes per vote."""
    return np.prod(shape, dtype=float) <= max(small, 9 * num_votes)


def _stored(codes: Int[np.ndarray, "item voter"]) -> Storage:
    """A matrix of votes as it is, or as triplets where few of its cells are filled."""
    return codes if _is_dense(codes.shape, int(np.count_nonzero(codes != MISSING))) else to_triplets(codes)


def refuse_gap(name: str, column: Coded) -> None:
    """Raise `VotesError` if a name is missing in a column of items or voters."""
    if (column.codes == MISSING).any():
        raise VotesError(f"row {int(np.argmax(column.codes == MISSING))} has no {name}")


def _short(names: np.ndarray) -> Names:
    """Names as a range if they are 0, 1, …."""
    is_range = names.dtype.kind == "i" and len(names) > 0 and names[0] == 0 and (np.diff(names) == 1).all()
    return range(len(names)) if is_range else names
