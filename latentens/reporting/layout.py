"""Parts and tables of the page as plain data; `page.html.j2` turns them into HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from latentens.comparison import EXACT
from latentens.reporting.conclusions import Leader
from latentens.reporting.drawing import Picture
from latentens.reporting.tables import Mean, Means, Pairs, column, number_text, ranked
from latentens.runtime.text import probability_text, signed
from latentens.scores import PairedDifference
from latentens.scores.scores import Score

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: Its content.
        small: Small print below it.
        kind: `number` aligns right, `words` wraps.
        best: Whether it is highlighted.
    """

    text: str
    small: str = ""
    kind: str = ""
    best: bool = False


Row = list[str | Cell]


def number(text: str, small: str = "", best: bool = False) -> Cell:
    """A cell of a number."""
    return Cell(text, small, "number", best)


def measured(value: float, low: float = np.nan, high: float = np.nan, *, digits: int = 3) -> Cell:
    """A cell of a number with its interval in small print, as far as they are known."""
    if np.isnan(value):
        return number(MISSING)
    return number(f"{value:.{digits}f}", "" if np.isnan(low) else f"{low:.{digits}f} – {high:.{digits}f}")


def words(text: str) -> Cell:
    """A cell of running text."""
    return Cell(text, kind="words")


@dataclass(frozen=True)
class Table:
    """A table that scrolls sideways, and with scripts can be sorted and, if long, searched.

    Attributes:
        headings: Headings of the columns; the meaning of a score is its tooltip.
        rows: The first cell of each row, a text, is its heading.
        emphasised: The row with this heading stands out.
        summary: If given, the table is shown on demand under this title.
    """

    headings: Sequence[str | Score]
    rows: Sequence[Row]
    emphasised: str = ""
    summary: str = ""


@dataclass(frozen=True)
class Matrices:
    """Small confusion matrices, shown on demand if they are many.

    Attributes:
        note: How to read them.
        classes: Names of the rows.
        votes: Names of the columns.
        matrices: Shares by the name of the voter.
    """

    note: str
    classes: Sequence[str]
    votes: Sequence[str]
    matrices: Sequence[tuple[str, np.ndarray]]


Block = Table | Matrices | str
"""A string is a paragraph in small print."""


@dataclass(frozen=True, eq=False)
class Part:
    """A titled part of a data set's chapter.

    Attributes:
        name: Its address within the chapter: letters, digits and dashes.
        title: Its heading.
        words: Paragraphs below the heading.
        pictures: Figures.
        beside: A narrow table next to the figures.
        body: Tables and notes after the figures.
        tables: Data frames that become files, by name; those of several data sets are joined.
    """

    name: str
    title: str
    words: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    beside: Table | None = None
    body: Sequence[Block] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def _best(score: Score, means: Mapping[str, Mean]) -> str | None:
    """The best method by a score; the exact posterior does not compete."""
    competing = {method: mean for method, mean in means.items() if method != EXACT}
    return ranked(score, competing)[0] if score.better and len(competing) > 1 else None


def score_tables(means: Means, scores: Sequence[Score]) -> list[Table]:
    """The scores of one data set, one table per group of scores."""
    tables = []
    for group in dict.fromkeys(score.group for score in scores):
        columns = [(score, found) for score in scores if score.group == group and (found := column(means, score.name))]
        if columns:
            headings = [group, *(score for score, _ in columns)]
            tables.append(Table(headings, _method_rows(columns, in_full=True), EXACT))
    return tables


def glance_tables(means: Mapping[str, Means], scores: Sequence[Score]) -> list[Table]:
    """The main scores of every method on every data set, one table per score."""
    tables = []
    for score in scores:
        columns = [(score, column(found, score.name)) for found in means.values()]
        if score.heading and score.group != "Cost" and (rows := _method_rows(columns)):
            tables.append(Table([score, *means], rows, EXACT))
    return tables


def _method_rows(columns: Sequence[tuple[Score, Mapping[str, Mean]]], *, in_full: bool = False) -> list[Row]:
    """A row for each method with its mean in each column; in full, with deviation and interval."""

    def cell(score: Score, means: Mapping[str, Mean], method: str) -> Cell:
        if method not in means:
            return number(MISSING)
        mean, ends = means[method], ""
        text = score.text(mean.value)
        if in_full and np.isfinite(mean.deviation):
            text += f" ± {score.text(mean.deviation)}"
        if in_full and np.isfinite(mean.low):
            ends = f"{score.text(mean.low)} – {score.text(mean.high)}"
        return number(text, ends, best=method == _best(score, means))

    methods = dict.fromkeys(method for _, means in columns for method in means)
    return [[method, *(cell(*each, method) for each in columns)] for method in methods]


def leader_table(pairs: Pairs, leader: Leader, score: Score) -> Table:
    """The best method by a score against each other one."""
    rows = [_pair_row(other, pairs[score.name, leader.method, other], score) for other in leader.others]
    return Table([f"{leader.method} against", _difference(score), "adjusted p-value"], rows)


def all_pairs_table(pairs: Pairs, score: Score) -> Table:
    """Every method against every other one by a score."""
    methods = list(dict.fromkeys(method for what, method, _ in pairs if what == score.name))
    found = [(one, other) for one, other in combinations(methods, 2) if (score.name, one, other) in pairs]
    rows = [_pair_row(f"{one} − {other}", pairs[score.name, one, other], score) for one, other in found]
    headings = [f"Difference in {score.title}", _difference(score), "adjusted p-value"]
    return Table(headings, rows, summary="All pairs of methods")


def _difference(score: Score) -> str:
    return "difference, points" if score.unit == "%" else f"difference, {score.unit}"


def _pair_row(name: str, pair: PairedDifference, score: Score) -> Row:
    scale, digits = (100.0, 2) if score.unit == "%" else (1.0, 3)
    value, low, high = (signed(scale * part, digits) for part in (pair.difference, pair.low, pair.high))
    return [name, number(value, f"{low} to {high}"), number(probability_text(pair.p_value))]


def frame_table(frame: pd.DataFrame, headings: Sequence[str] | None = None, summary: str = "") -> Table:
    """A data frame; the first column heads the rows."""
    rows: list[Row] = [[str(first), *map(_frame_cell, rest)] for first, *rest in frame.itertuples(index=False)]
    return Table(list(headings or frame.columns), rows, summary=summary)


def _frame_cell(value: Any) -> Cell:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number(number_text(value)) if is_number else words(number_text(value))


def meanings_table(scores: Sequence[Score]) -> Table:
    """The meaning of each score."""
    rows: list[Row] = [[score.title, words(score.meaning)] for score in scores]
    return Table(["Score", "Meaning"], rows, summary="What the scores mean")
