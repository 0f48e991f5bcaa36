"""HTML by small functions; whatever is not HTML already is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

VOID = frozenset({"br", "img", "link", "meta"})


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


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], emphasised: str = "") -> Html:
    """A table in a box of its own that scrolls sideways.

    Args:
        headings: Of the columns.
        rows: Cells, finished or as text; the first of each row is its heading.
        emphasised: The row with this heading stands out.
    """
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    body = []
    for first, *rest in rows:
        cells = (cell if cell.startswith("<td") and isinstance(cell, Html) else element("td", cell) for cell in rest)
        mark = {"class_": "exact"} if emphasised and first == emphasised else {}
        body.append(element("tr", element("th", first, scope="row"), *cells, **mark))
    inner = element("table", element("thead", head), element("tbody", *body))
    return element("div", inner, class_="scroll", tabindex="0")


def details(summary: str, *children: str) -> Html:
    """What is shown on demand."""
    return element("details", element("summary", summary), *children)
