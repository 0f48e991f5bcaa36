"""The options that several commands share, above all those for reading votes."""

import csv
import functools
import inspect
import io
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from latentens.errors import Keyword, LatentensError

Items = Annotated[int, Option(min=1, help="Number of items in each simulated data set.")]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Random seed; the same seed gives the same result.")]
Workers = Annotated[
    int | None,
    Option(
        min=1,
        help="Number of parallel fits; by default one per core, or one for very large data. 1 also measures memory.",
    ),
]
Scheduler = Annotated[str | None, Option(help="Address of a Dask scheduler, for example tcp://host:8786.")]
VotesFile = Annotated[Path, Argument(help="CSV or Parquet file: columns item, voter, vote, or one column per voter.")]
GoldFile = Annotated[
    Path | None, Option(help="CSV or Parquet file of known labels (item, gold) for the methods to use.")
]
Anchor = Annotated[
    list[str] | None,
    Option(help="A voter known to be better than chance, whose votes decide which label is which. May be repeated."),
]
MethodNames = Annotated[
    list[str] | None,
    Option("--methods", "-m", help="For example 'RBMStack(hidden=(3, 1))' or 'short=Nuts(Tree)'. May be repeated."),
]


def _reading(kind: Any, words: str, *flags: str, **more: Any) -> Any:
    return Annotated[kind, Option(*flags, help=words, rich_help_panel="Reading votes", **more)]


READING = {
    "tool": _reading(
        str | None,
        "The tool that wrote the file: inspect, promptfoo, deepeval, lm-eval, label-studio or argilla.",
        "--from",
        metavar="TOOL",
    ),
    "only": _reading(
        list[str] | None,
        "COLUMN=VALUE: read only these rows of a tool's file, for example scorer=match. May be repeated.",
    ),
    "item": _reading(str | None, "Column of the items."),
    "voter": _reading(str | None, "Column of the voters, if each row is one vote."),
    "vote": _reading(str | None, "Column of the votes, if each row is one vote."),
    "ignore": _reading(list[str] | None, "A column to ignore. May be repeated."),
    "classes": _reading(
        list[str] | None,
        "The labels in order, for example no,yes; other votes, such as tie, are not labels. May be repeated.",
    ),
    "missing": _reading(list[str] | None, "A value that means a missing vote, for example NA. May be repeated."),
    "ordered": _reading(bool | None, "The votes are numbers in order, such as scores.", "--ordered"),
    "bins": _reading(
        str | None,
        "Number of grades for more than 20 different scores, or cut-points such as 0.2,0.5,0.8 (default: 10).",
    ),
    "weight": _reading(str | None, "Column of probabilities, if each row is a voter's probability of a category."),
    "duplicates": _reading(
        Literal["error", "first", "last", "keep"] | None,
        "How to treat repeated votes of a voter on an item; keep counts them all.",
    ),
}
"""The options for reading votes, named like the keyword arguments of `Votes.from_csv`."""


def reads_votes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for reading votes to a command, which gets those that were used as its argument `reading`."""

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        used = {name: value for name in READING if (value := values.pop(name)) not in (None, [])}
        if "classes" in used:
            used["classes"] = [label for part in csv.reader(used["classes"], skipinitialspace=True) for label in part]
            if used.get("ordered") and len(used["classes"]) == 1 and used["classes"][0].isdecimal():
                used["classes"] = int(used["classes"][0])
        if "bins" in used:
            used["bins"] = _numbers(used["bins"])
        if "only" in used:  # texts such as scorer=match
            pairs = [text.partition("=") for text in used["only"]]
            if strange := ["".join(pair) for pair in pairs if not pair[1]]:
                raise LatentensError(f"--only {strange[0]} is not of the form COLUMN=VALUE")
            used["only"] = {name: [value for other, _, value in pairs if other == name] for name, _, _ in pairs}
        command(**values, reading=used)

    own = inspect.signature(command)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "reading"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in READING.items()
    ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _numbers(text: str) -> int | list[float]:
    """A number of bins, or cut-points."""
    try:
        return int(text) if text.strip().isdecimal() else [float(part) for part in text.split(",")]
    except ValueError:
        raise LatentensError(f"--bins {text} is neither a number of bins nor a list of cut-points") from None


def as_option(keyword: Keyword) -> str:
    """A keyword argument such as item='question' as it is written on the command line: --item question."""
    name, value = keyword
    name = "from" if name == "tool" else name
    if isinstance(value, dict):  # the rows of some columns
        pairs = ((column, kept if isinstance(kept, list) else [kept]) for column, kept in value.items())
        value = [f"{column}={each}" for column, kept in pairs for each in kept]
    values = [str(part) for part in value] if isinstance(value, tuple | list) else [str(value)]
    if value is True:
        return f"--{name}"
    if value is ...:
        return f"--{name} …"
    if name in ("classes", "bins"):
        csv.writer(line := io.StringIO(), lineterminator="").writerow(values)
        values = [line.getvalue()]
    return " ".join(f"--{name} {shlex.quote(part)}" for part in values)
