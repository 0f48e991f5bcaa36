"""Votes larger than memory: files are read once, chunk by chunk, and only distinct rows and their counts are kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import numpy as np
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.runtime.limits import check_memory
from latentens.votes.distinct import distinct_matrix_rows
from latentens.votes.labels import Chunk, Coded, Reading, TableOptions, encode_labels, join, label_text, without
from latentens.votes.tables import Table, Wide, find_layout, naming, open_table, refuse_strange_columns
from latentens.votes.votes import Votes

PENDING_ROWS = 2**20
"""Distinct rows of single chunks are brought together when they are so many, or as many as all before."""

Counts = Int[np.ndarray, " row"]
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class CountedVotes:
    """Distinct rows of votes and how many items have each: what is left of votes that are too many to be kept.

    Methods that ask no more of votes fit them like any others (`Method.counts_rows`). The items of such a fit are the
    distinct rows; `latentens.methods.persistence` writes the labels of the items themselves.

    Attributes:
        rows: The distinct rows, as votes on one item each.
        counts: The number of items with each row.
    """

    rows: Votes
    counts: Counts

    @property
    def num_items(self) -> int:
        """Number of items."""
        return int(self.counts.sum())

    @property
    def weighted(self) -> Votes:
        """The rows as votes that know their counts, for methods to fit."""
        return replace(self.rows, counts=self.counts)

    def without_gold(self, gold: object) -> "CountedVotes":
        """These votes; refused if labels of some items are known, since items are not told apart."""
        if gold is not None:
            raise VotesError("known labels are of items, and counted rows do not tell which: read the items")
        return self

    def __repr__(self) -> str:
        return f"CountedVotes({self.num_items:,} items; distinct rows: {self.rows.summary})"


def count_votes_in(paths: Paths, **options: Unpack[TableOptions]) -> CountedVotes:
    """Count the distinct rows of wide tables in one pass, in memory that grows with the distinct rows only.

    Args:
        paths: A Parquet or text file with one column per voter, a folder of Parquet files, or several files. Each row
            is an item of its own; the names of items are not kept.
        options: As in `Votes.from_csv`.
    """
    reading, layout = Reading(**options), None
    parts: list[tuple[Coded, Counts]] = []
    for table in tables_in(paths):
        with naming(table.path):
            found = wide_layout(table, reading)
            if layout is not None and set(found.voters) != set(layout.voters):
                raise VotesError("its voters are not those of the files before")
            layout = layout or found
            parts.append(_merge([*parts, *_distinct_parts(layout, table.read(layout.voters))]))
            del parts[:-1]
    assert layout is not None
    rows, counts = parts[0]
    votes = without(rows, reading.missing)
    refuse_strange_columns(layout, votes, None if reading.classes is None else [*map(label_text, reading.classes)])
    codes, class_names = encode_labels(votes, reading.classes)
    codes, counts = _distinct(codes, counts)  # labels that mean a missing vote have become one
    return CountedVotes(
        Votes(codes, len(codes), codes.shape[1], len(class_names), (), layout.voters, class_names), counts
    )


def tables_in(paths: Paths) -> Iterator[Table]:
    """The tables in a file, in a folder of Parquet files, or in several files."""
    several = [paths] if isinstance(paths, str | Path) else paths
    files = [
        file for path in map(Path, several) for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])
    ]
    if not files:
        raise VotesError(f"{paths}: there are no Parquet files")
    return map(open_table, files)


def wide_layout(table: Table, reading: Reading) -> Wide:
    """Which columns of a wide table hold what; a long table is refused."""
    layout = find_layout(table.names, table.index, reading)
    if not isinstance(layout, Wide):
        raise VotesError("rows are counted in tables with one column per voter, but this one has one vote per row")
    return layout


def coded_rows(layout: Wide, chunk: Chunk) -> Coded:
    """The votes in a chunk of a wide table, one row per item."""
    by_voter = join([chunk[name] for name in layout.voters])
    return Coded(by_voter.codes.reshape(len(layout.voters), -1).T, by_voter.names)


def _distinct_parts(layout: Wide, chunks: Iterable[Chunk]) -> Iterator[tuple[Coded, Counts]]:
    """Distinct rows of some chunks at a time."""
    parts: list[tuple[Coded, Counts]] = []
    merged = pending = 0
    for chunk in chunks:
        rows = coded_rows(layout, chunk)
        codes, counts = _distinct(rows.codes, np.ones(len(rows.codes), dtype=np.int64))
        parts.append((Coded(codes, rows.names), counts))
        pending += len(counts)
        if pending > max(PENDING_ROWS, merged):
            parts = [_merge(parts)]
            merged, pending = len(parts[0][1]), 0
            check_memory(
                3.0 * parts[0][0].codes.nbytes, f"{merged:,} distinct rows of votes", "fit a sample of the items"
            )
    yield from parts


def _merge(parts: Sequence[tuple[Coded, Counts]]) -> tuple[Coded, Counts]:
    """The distinct rows of several parts and their counts."""
    rows, counts = zip(*parts, strict=True)
    together = join(rows)
    codes, totals = _distinct(together.codes, np.concatenate(counts))
    return Coded(codes, together.names), totals


def _distinct(codes: Int[np.ndarray, "row voter"], counts: Counts) -> tuple[Int[np.ndarray, "row voter"], Counts]:
    found = distinct_matrix_rows(codes)
    return codes[found.representative], np.bincount(found.inverse, counts).round().astype(np.int64)
