"""Votes larger than memory: files are read once, in chunks, and only distinct rows and their counts are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import numpy as np
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.runtime.limits import check_memory
from latentens.votes.distinct import distinct_matrix_rows
from latentens.votes.labels import Coded, Reading, TableOptions, encode_labels, join, without
from latentens.votes.tables import Table, Wide, find_layout, naming, open_table, wide_rows
from latentens.votes.validation import refuse_strange_columns
from latentens.votes.votes import Votes

Counts = Int[np.ndarray, " row"]
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class CountedVotes:
    """Distinct rows of votes and the number of items with each, for votes that do not fit into memory.

    Methods that need no more than that fit them like any others (`Method.counts_rows`). The items of such a fit are the
    distinct rows; `latentens.methods.persistence.write_labels` writes the labels of the items themselves.

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
        """The rows as votes with counts, for methods to fit."""
        return replace(self.rows, counts=self.counts)

    def without_gold(self, gold: object) -> "CountedVotes":
        """These votes; known labels are refused, because counted rows do not identify items."""
        if gold is not None:
            raise VotesError(
                "known labels cannot be used with counted rows, which do not identify items: read them as Votes"
            )
        return self

    def __repr__(self) -> str:
        return f"CountedVotes({self.num_items:,} items; distinct rows: {self.rows.summary})"


def count_votes_in(paths: Paths, *, pending_rows: int = 2**20, **options: Unpack[TableOptions]) -> CountedVotes:
    """Count the distinct rows of wide tables in one pass, in memory that grows with the distinct rows only.

    Args:
        paths: A Parquet or text file with one column per voter, a folder of Parquet files, or several files. Each row
            is an item of its own; the names of items are not kept.
        pending_rows: Rows of chunks are merged when this many, or as many as were merged before, have been read.
        options: As in `Votes.from_csv`.
    """
    reading, layout = Reading(**options), None
    parts: list[tuple[Coded, Counts]] = []
    for table in tables_in(paths):
        with naming(table.path):
            found = wide_layout(table, reading)
            layout = layout or found
            if set(found.voters) != set(layout.voters):
                raise VotesError("its voters differ from those of the previous files")
            for chunk in table.read(layout.voters, reading):
                rows = wide_rows(layout, chunk)
                parts.append(_merge([(rows, np.ones(len(rows.codes), dtype=np.int64))]))
                if sum(len(counts) for _, counts in parts[1:]) > max(pending_rows, len(parts[0][1])):
                    parts = [_merge(parts)]
                    size, number = 3.0 * parts[0][0].codes.nbytes, len(parts[0][1])
                    check_memory(size, f"{number:,} distinct rows of votes", "fit a sample of the items")
    assert layout is not None
    rows, counts = _merge(parts)
    votes = without(rows, reading.missing)
    if reading.ordered:
        raise VotesError("ordered votes cannot be counted in files: read them, or a sample of them, by Votes.from_csv")
    refuse_strange_columns(layout.voters, bool(layout.items), votes, reading.label_texts)
    codes, class_names, others, _ = encode_labels(votes, reading.classes)
    merged, counts = _merge(
        [(Coded(codes, np.arange(len(class_names) + len(others))), counts)]
    )  # missing labels have become one
    sizes, names = (len(counts), len(layout.voters), len(class_names)), ((), layout.voters, class_names, others)
    return CountedVotes(Votes(merged.codes, *sizes, *names), counts)


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
        raise VotesError("only tables with one column per voter can be counted, but this one has one vote per row")
    return layout


def _merge(parts: Sequence[tuple[Coded, Counts]]) -> tuple[Coded, Counts]:
    """The distinct rows of several parts and their counts."""
    rows, counts = zip(*parts, strict=True)
    together = rows[0] if len(rows) == 1 else join(rows)
    found = distinct_matrix_rows(together.codes)
    totals = np.bincount(found.inverse, np.concatenate(counts)).round().astype(np.int64)
    return Coded(together.codes[found.representative], together.names), totals
