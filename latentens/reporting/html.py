"""HTML by small functions; whatever is not HTML already is escaped."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_markup

from latentens.runtime.printable import printable

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
