"""Votes, known labels and data sets from a user's files."""

from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Unpack

import numpy as np
from jaxtyping import Int

from latentens.datasets.dataset import Dataset
from latentens.errors import Keyword, VotesError
from latentens.votes import Votes
from latentens.votes.labels import (
    MISSING,
    FileOptions,
    Reading,
    code_type,
    label_text,
    listed,
    natural_names,
    suggestion,
    without,
)
from latentens.votes.matching import known_items, positions
from latentens.votes.tables import naming, open_table, refuse_gap, truth_columns


def read_votes(path: str | Path, **options: Unpack[FileOptions]) -> Votes:
    """Votes from a file of `tool`, if one is given, from a Parquet file, if the name ends so, or from a text file.

    Args:
        path: The file.
        options: As in `Votes.from_tool` if `tool` is given, else as in `Votes.from_csv`.
    """
    if "tool" in options:
        return Votes.from_tool(path, **options)
    if "only" in options:
        raise VotesError(f"{Keyword('only')} needs {Keyword('tool')}", Keyword("only"), Keyword("tool"))
    read = Votes.from_parquet if Path(path).suffix == ".parquet" else Votes.from_csv
    return read(path, **options)  # type: ignore[misc]


def read_labels(
    path: str | Path, *, item: str | None = None, missing: Collection[Hashable] = ()
) -> dict[Hashable, Hashable]:
    """Known labels by the name of their item, from a text or Parquet file: the truth to score with, or gold labels.

    Args:
        path: The file, with a column of items (`item`, `id`, …) and one of labels (`truth`, `gold`, `label`, …); others
            do not matter. An item may have several rows if they agree.
        item: The column of items in the file of votes; it is used here too, if there is one of that name.
        missing: Texts that mean an unknown label; an empty cell always does.
    """
    table, reading = open_table(path), Reading(missing=missing)
    with naming(path):
        columns = truth_columns(table.names, table.index, item)
        items, labels = table.columns(columns, reading)
        refuse_gap(columns[0], items)
        labels = without(labels, reading.missing)
        if not len(labels.names):
            raise VotesError("it contains no true labels")
        texts = np.array([label_text(name) for name in labels.names.tolist()], dtype=object)
        known, names = labels.codes != MISSING, natural_names(items.names)
        found: dict[Hashable, Hashable] = {}
        pairs = zip(names[items.codes[known]].tolist(), natural_names(texts)[labels.codes[known]].tolist(), strict=True)
        for which, label in pairs:
            if found.setdefault(which, label) != label:
                both = listed([found[which], label])
                raise VotesError(f"item {listed([which])} has more than one true label, {both}: keep one")
        return found


def from_files(votes: str | Path, truth: str | Path | None = None, **options: Unpack[FileOptions]) -> Dataset:
    """A data set from a file of votes and, perhaps, one of true labels.

    Args:
        votes: As `read_votes` reads it.
        truth: As `read_labels` reads it. Items that are not in it have no known label; items that have no votes are
            ignored with a warning. A label that is not a class of the votes is refused, unless `classes` lists it.
        options: As in `read_votes`.
    """
    read = read_votes(votes, **options)
    labels = np.full(read.num_items, MISSING, dtype=code_type(read.num_classes))
    if truth is not None:
        known = read_labels(truth, item=options.get("item"), missing=options.get("missing", ()))
        with naming(truth):
            labels = _truth_codes(read, known)
    return Dataset(Path(votes).stem, read, labels)


def _truth_codes(votes: Votes, truth: Mapping[Hashable, Hashable]) -> Int[np.ndarray, " item"]:
    items = known_items(truth, votes, "true label")
    labels = np.array([*truth.values()], dtype=object)[items >= 0]
    codes = positions(map(label_text, labels), [label_text(name) for name in votes.class_names])
    if (codes < 0).any():
        strange = sorted({str(label) for label in labels[codes < 0]})
        choice, hint = Keyword("classes", (*votes.class_names, *strange)), suggestion(strange[0], votes.class_names)
        raise VotesError(
            f"no voter voted {strange[0]!r} (if it is a class nevertheless, give {choice}): {hint}", choice
        )
    found = np.full(votes.num_items, MISSING, dtype=code_type(votes.num_classes))
    found[items[items >= 0]] = codes
    return found
