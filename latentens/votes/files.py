"""Tables in files, read in chunks: a file need not fit into memory, only its votes."""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd

from latentens.errors import VotesError
from latentens.votes.coded import Chunk, Coded, code, coded

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
        raise error if str(error).startswith(str(path)) else VotesError(f"{path}: {error}") from None


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
