"""Short names of methods: their classes, so that a table stays narrow; the settings stand in a footnote."""

import ast
from collections.abc import Iterable, Mapping

LONGEST = 30
"""Characters of a short name."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name for each full one, different for different names.

    `Nuts(DawidSkene(prior=2.0), num_samples=50)` becomes `Nuts(DawidSkene)`. Methods that differ in settings only are
    numbered, and a name that the user made up stays as it is, up to its length.
    """
    full = list(dict.fromkeys(names))
    brief = {name: _shortened(name) for name in full}
    found: dict[str, str] = {}
    for name in full:
        alike = [other for other in full if brief[other] == brief[name]]
        found[name] = brief[name] if len(alike) == 1 else f"{brief[name]} {alike.index(name) + 1}"
    return found if len(set(found.values())) == len(full) else {name: name for name in full}


def with_short_names(words: str, short: Mapping[str, str]) -> str:
    """Words with each full name replaced by its short one."""
    for name in sorted(short, key=len, reverse=True):
        words = words.replace(name, short[name])
    return words


def _shortened(name: str) -> str:
    try:
        short = _classes(ast.parse(name, mode="eval").body) or name
    except (SyntaxError, ValueError):  # a name that the user made up
        short = name
    if len(short) > LONGEST and short != name:
        short = short.partition("(")[0]
    return short if len(short) <= LONGEST else short[: LONGEST - 1] + "…"


def _classes(node: ast.expr) -> str:
    """Classes without their settings; nothing for what is neither a class nor a call of one."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call):
        return ""
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    inner = [classes for part in given if isinstance(part, ast.Call | ast.Name) and (classes := _classes(part))]
    return _classes(node.func) + (f"({', '.join(inner)})" if inner else "")
