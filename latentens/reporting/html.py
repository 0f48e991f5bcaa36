"""Elements, tables and cells of a page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_markup
from itertools import combinations

import numpy as np
import pandas as pd

from latentens.comparison import EXACT
from latentens.reporting.findings import Leader
from latentens.reporting.tables import Mean, Means, Pairs, column, number_text, ranked
from latentens.runtime.text import printable, probability_text, signed
from latentens.scores import PairedDifference
from latentens.scores import scores as evaluation
from latentens.scores.scores import Score

VOID = frozenset({"br", "img", "link", "meta"})
NUMBER = re.compile(r"[−+-]?(\d[\d,.]*|\.\d+)(e[+-]?\d+)?\s?%?(\s?(±|–|to|of)\s?.*)?|p [<=] .*|–")
"""What is written like a number, or stands for one that is missing, stands at the right of its column."""

BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\()(?=[A-Z])|(?<=[_/=,.:])(?=[A-Za-z])")
"""Where names such as `Tempered(DawidSkeneEM)` may go on in the next line."""


def escape(text: str) -> str:
    """Text as HTML, in which nothing is markup and nothing turns the direction of writing."""
    return escape_markup(printable(text))


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str) -> Html:
    """An element; `class_` and the like stand for names that Python keeps for itself."""
    opening = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(text)}"' for name, text in attributes.items())
    if tag in VOID:
        return Html(f"<{tag}{opening}>")
    return Html(f"<{tag}{opening}>{join(children)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def breakable(text: str) -> Html:
    """Text whose long names may be broken where their words end."""
    return text if isinstance(text, Html) else Html("<wbr>".join(map(escape, BREAKS.split(text))))


def number_cell(*children: str, order: float | None = None, mark: str = "") -> Html:
    """A cell of a number, at the right of its column.

    Args:
        children: What stands in it.
        order: What it is sorted by, where that is not what stands in it.
        mark: A further class.
    """
    data = {} if order is None else {"data_order": repr(float(order))}
    return element("td", *children, class_=f"number {mark}".strip(), **data)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], emphasised: str = "") -> Html:
    """A table in a box of its own that scrolls sideways; with scripts it can be sorted, and a long one searched.

    Args:
        headings: Of the columns.
        rows: Cells, finished or as text; the first of each row is its heading.
        emphasised: The row with this heading stands out.
    """
    made = [[element("th", breakable(first), scope="row"), *map(_cell, rest)] for first, *rest in rows]
    is_number = [any('class="number' in row[place][:20] for row in made) for place in range(len(headings))]
    head = element("tr", *(_heading(text, right) for text, right in zip(headings, is_number, strict=True)))
    marked = element("th", breakable(emphasised), scope="row") if emphasised else ""
    body = (element("tr", *row, **({"class_": "exact"} if row[0] == marked else {})) for row in made)
    inner = element("table", element("thead", head), element("tbody", *body))
    return element("div", inner, class_="scroll", tabindex="0")


def _heading(text: str, right: bool) -> Html:
    return element("th", breakable(text), scope="col", **({"class_": "number"} if right else {}))


def _cell(content: str) -> Html:
    if isinstance(content, Html) and content.startswith("<td"):
        return content
    return number_cell(content) if NUMBER.fullmatch(content) else element("td", content)


def details(summary: str, *children: str, opened: bool = False) -> Html:
    """What is shown on demand, or until it is closed."""
    return element("details", element("summary", summary), *children, **({"open": ""} if opened else {}))


def footnotes(short: Mapping[str, str]) -> list[Html]:
    """What short names stand for.

    Args:
        short: Short names by full ones.
    """
    notes = (element("li", element("strong", brief), ": ", element("code", name)) for name, brief in short.items())
    return [element("ul", *notes, class_="reasons soft")] if short else []


MISSING = "–"
BEST = "best"


def score_tables(means: Means) -> list[Html]:
    """The scores of one data set, a table for each group of which there is any."""
    tables = []
    for group in dict.fromkeys(score.group for score in evaluation.SCORES):
        mine = {score: column(means, score.name) for score in evaluation.SCORES if score.group == group}
        columns = {score: found for score, found in mine.items() if found}
        methods = dict.fromkeys(method for found in columns.values() for method in found)
        rows = [[method, *_score_cells(method, columns)] for method in methods]
        if rows:
            tables.append(table([group, *map(heading, columns)], rows, EXACT))
    return tables


def _score_cells(method: str, columns: Mapping[Score, Mapping[str, Mean]]) -> list[str]:
    return [
        _score_cell(score, found[method], method == _best(score, found)) if method in found else MISSING
        for score, found in columns.items()
    ]


def _best(score: Score, means: Mapping[str, Mean]) -> str | None:
    """The best method by a score; the exact posterior does not compete."""
    competing = {method: mean for method, mean in means.items() if method != EXACT}
    return ranked(score.name, competing)[0] if score.better and len(competing) > 1 else None


def _score_cell(score: Score, mean: Mean, best: bool) -> Html:
    text = score.text(mean.value)
    if np.isfinite(mean.deviation):
        text += f" ± {score.text(mean.deviation)}"
    interval = [f"{score.text(mean.low)} – {score.text(mean.high)}"] if np.isfinite(mean.low) else []
    return number_cell(text, *(element("small", words) for words in interval), mark=BEST if best else "")


def heading(score: Score) -> Html:
    """The heading of a score's column; its meaning shows where a pointer rests on it."""
    unit = f", {score.unit}" if score.unit else ""
    better = {"larger": "\u00a0↑", "smaller": "\u00a0↓", None: ""}[score.better]
    return element("span", score.title + unit + better, title=score.meaning)


def meanings() -> Html:
    """What each score says."""
    rows = [[score.title, words_cell(score.meaning)] for score in evaluation.SCORES]
    return table(["Score", "What it says"], rows)


def words_cell(text: str) -> Html:
    """A cell of running text."""
    return element("td", breakable(text), class_="words")


def leader_table(pairs: Pairs, leader: Leader, score: Score) -> Html:
    """The best method by a score against each other one."""
    rows = [_pair_row(other, pairs[score.name, leader.method, other], score) for other in leader.others]
    return table([f"{leader.method} against", _difference(score), "adjusted p-value"], rows)


def all_pairs_table(pairs: Pairs, score: Score) -> Html:
    """Every method against every other one by a score."""
    methods = list(dict.fromkeys(method for what, method, _ in pairs if what == score.name))
    found = [(one, other) for one, other in combinations(methods, 2) if (score.name, one, other) in pairs]
    rows = [_pair_row(f"{one} − {other}", pairs[score.name, one, other], score) for one, other in found]
    return table([f"Difference in {score.title}", _difference(score), "adjusted p-value"], rows)


def _difference(score: Score) -> str:
    return "difference, points" if score.unit == "%" else f"difference, {score.unit}"


def _pair_row(name: str, pair: PairedDifference, score: Score) -> list[str]:
    scale, digits = (100.0, 2) if score.unit == "%" else (1.0, 3)
    shown = [signed(scale * value, digits) for value in (pair.difference, pair.low, pair.high)]
    cell = number_cell(shown[0], element("small", f"{shown[1]} to {shown[2]}"))
    return [name, cell, probability_text(pair.p_value)]


def glance_table(means: Mapping[str, Means], score: Score) -> Html | None:
    """One score of every method on every data set."""
    columns = {name: column(found, score.name) for name, found in means.items()}
    methods = list(dict.fromkeys(method for found in columns.values() for method in found))
    if not methods:
        return None
    rows = []
    for method in methods:
        row: list[str] = [method]
        for found in columns.values():
            shown = score.text(found[method].value) if method in found else MISSING
            row.append(number_cell(shown, mark=BEST if _best(score, found) == method else ""))
        rows.append(row)
    return table([heading(score), *columns], rows, EXACT)


def frame_table(frame: pd.DataFrame, headings: Sequence[str] | None = None) -> Html:
    """A data frame as it is; the first column heads the rows."""
    rows = [[str(first), *map(_frame_cell, rest)] for first, *rest in frame.itertuples(index=False)]
    return table(list(headings or frame.columns), rows)


def _frame_cell(value: object) -> Html:
    text = number_text(value)
    return number_cell(text) if isinstance(value, int | float) and not isinstance(value, bool) else words_cell(text)


def settings_table(settings: pd.DataFrame) -> Html:
    """Every hyperparameter, a row for each method."""
    rows = []
    for method, part in settings.groupby("estimator", sort=False):
        values = [
            join([f"{name} = ", element("code", value), element("br")])
            for name, value in zip(part["setting"], part["value"], strict=True)
        ]
        rows.append([str(method), element("td", *values, class_="words")])
    return table(["Method", "Settings"], rows)
