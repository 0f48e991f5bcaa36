"""Files of votes, read in chunks: a table need not fit into memory, only its votes."""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.votes.labels import long_columns, refused_if_unreadable

CHUNK_CELLS = 2**20
"""A file is read so many cells at a time."""


class Coded(NamedTuple):
    """A column as numbers of its distinct values, −1 where it has none."""

    codes: Int[np.ndarray, " entry"]
    names: np.ndarray


Chunk = Mapping[str, Coded]


def code(values: Any) -> Coded:
    """Number the distinct values of a column."""
    codes, names = pd.factorize(values)
    return Coded(codes.astype(_index_type(len(names))), np.asarray(names))


def join(parts: Sequence[Coded]) -> Coded:
    """One column of several."""
    everywhere, names = pd.factorize(np.concatenate([part.names for part in parts]))
    ends = np.cumsum([len(part.names) for part in parts])
    new_codes = [np.append(piece, -1).astype(_index_type(len(names))) for piece in np.split(everywhere, ends[:-1])]
    codes = [new[part.codes] for new, part in zip(new_codes, parts, strict=True)]
    return Coded(np.concatenate(codes), names)


def in_order(column: Coded) -> Coded:
    """The same column with its names sorted."""
    order = np.argsort(column.names, kind="stable")
    rank = np.empty(len(order) + 1, dtype=column.codes.dtype)
    rank[order] = np.arange(len(order))
    rank[-1] = -1
    return Coded(rank[column.codes], column.names[order])


def _index_type(size: int) -> type[np.signedinteger]:
    return np.int8 if size < 127 else np.int32


def csv_chunks(path: str | Path) -> Generator[Chunk, None, None]:
    """The columns of a CSV file as text, some rows at a time."""
    with refused_if_unreadable(path, "CSV"):
        width = max(1, len(pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns))
        size = max(1, CHUNK_CELLS // width)
        with pd.read_csv(path, dtype="category", skipinitialspace=True, encoding="utf-8-sig", chunksize=size) as frames:
            for frame in frames:
                yield {
                    str(name): Coded(column.cat.codes.to_numpy(), column.cat.categories.to_numpy())
                    for name, column in frame.items()
                }


def parquet_chunks(path: str | Path) -> Generator[Chunk, None, None]:
    """The columns of a Parquet file, some rows at a time."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise VotesError(f"{path}: Parquet files are read by pyarrow; install the extra `latentens[parquet]`") from None
    with refused_if_unreadable(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
        size = max(1, CHUNK_CELLS // max(1, len(file.schema_arrow)))
        metadata = file.schema_arrow.pandas_metadata or {}
        index = [name for name in metadata.get("index_columns", ()) if isinstance(name, str)]  # a range is no column
        for batch in file.iter_batches(batch_size=size):
            columns = {}
            for name, column in _with_index_first(dict(zip(batch.schema.names, batch.columns, strict=True)), index):
                encoded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
                codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
                columns[name] = Coded(codes, encoded.dictionary.to_pandas().to_numpy())
            yield columns


def _with_index_first(columns: dict[str, Any], index: Sequence[str]) -> list[tuple[str, Any]]:
    """The columns of a data frame; its index, which a file has last, comes first and names items in a wide table."""
    others = [(name, column) for name, column in columns.items() if name not in index]
    if len(index) != 1 or long_columns([name for name, _ in others]):
        return list(columns.items())
    return [("item", columns[index[0]]), *others]
