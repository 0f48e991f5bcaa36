"""The options of reading votes, defined once for every command that reads them."""

import csv
import functools
import inspect
import io
import re
import shlex
from ast import literal_eval
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from typer import Option


class Duplicates(StrEnum):
    """What to do where a voter voted on an item repeatedly."""

    error = "error"
    first = "first"
    last = "last"
    keep = "keep"


def _option(kind: Any, words: str) -> Any:
    return Annotated[kind, Option(help=words, rich_help_panel="Reading votes")]


OPTIONS = {
    "item": _option(str | None, "The column that names the items."),
    "voter": _option(str | None, "The column that names the voters, if each row is one vote."),
    "vote": _option(str | None, "The column of the votes, if each row is one vote."),
    "ignore": _option(list[str] | None, "A column that does not count. May be repeated."),
    "classes": _option(list[str] | None, "The labels in order, such as no,yes. May be repeated."),
    "missing": _option(list[str] | None, "What is written where a vote is missing, such as NA. May be repeated."),
    "duplicates": _option(
        Duplicates | None, "What to do with repeated votes of a voter on an item; keep counts all of them."
    ),
}
"""The options, named like the keyword arguments of `Votes.from_csv`."""


def reads_votes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading votes; it gets those that were used as its argument `reading`."""

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        used = {name: value for name in OPTIONS if (value := values.pop(name)) not in (None, [])}
        if "classes" in used:
            used["classes"] = [label for part in csv.reader(used["classes"], skipinitialspace=True) for label in part]
        command(**values, reading=used)

    own = inspect.signature(command)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "reading"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in OPTIONS.items()
    ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def written_options(reading: Mapping[str, Any]) -> list[str]:
    """Options that were used, as they are written on the command line."""
    texts = {name: value if isinstance(value, list) else str(value) for name, value in reading.items()}
    return [_as_option(name, repr(tuple(value) if isinstance(value, list) else value)) for name, value in texts.items()]


def as_options(sentence: str) -> str:
    """A sentence that names keyword arguments, such as item='question_id', with options: --item question_id."""
    text = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
    argument = rf"""\b({"|".join([*OPTIONS, "root"])})=({text}|\((?:{text}|[^()'"])*\)|…)"""
    return re.sub(argument, lambda found: _as_option(*found.groups()), sentence)


def _as_option(name: str, value: str) -> str:
    try:
        values = literal_eval(value)
    except (ValueError, SyntaxError):  # an ellipsis in a list
        return f"--{name} …"
    values = [str(part) for part in values] if isinstance(values, tuple) else [str(values)]
    if name == "classes":
        csv.writer(line := io.StringIO(), lineterminator="").writerow(values)
        values = [line.getvalue()]
    return " ".join(f"--{name} {shlex.quote(part)}" for part in values)
