"""Labels and codes, names as written, and the options of reading them."""

import itertools
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.errors import Keyword, VotesError

Names = Sequence[Any] | np.ndarray

SHOWN = 5
"""At most this many names are listed in a message."""


def written(values: np.ndarray) -> np.ndarray:
    """Values as they are written: integers, or else text without surrounding spaces, "" where missing.

    Whole numbers in a column of floats, which is what pandas makes of integers with gaps, are written as integers.
    """
    if values.dtype == object and pd.api.types.infer_dtype(values, skipna=False) == "integer":
        values = np.array(values.tolist())  # numbers beyond 64 bits stay objects
    whole = values.dtype.kind in "iu" or (values.dtype.kind == "f" and (values == np.floor(values)).all())
    if whole and np.abs(values).max(initial=0) < 2**63:
        return values.astype(np.int64)
    return np.array([as_text(value) for value in values.tolist()], dtype=object)


def as_text(value: Any) -> str:
    """A value as `written`."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return str(int(value)) if whole else str(value).strip()


def natural_names(names: np.ndarray) -> np.ndarray:
    """Names as integers if all of them are written as such, so that 10 sorts after 9."""
    if names.dtype.kind == "i":
        return names
    try:
        numbers = names.astype(np.int64)
    except (ValueError, OverflowError):
        return names
    return numbers if (numbers.astype(str) == names.astype(str)).all() else names


def listed(names: Iterable[Any]) -> str:
    """The names as a list for a sentence, cut short if there are many."""
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    shown = len(names) if len(names) <= SHOWN + 1 else SHOWN  # a single further name is as short as the remark
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(repr(name) if isinstance(name, str) else str(name) for name in names[:shown]) + rest


def suggestion(name: Any, names: Names, kind: str = "classes") -> str:
    """A hint for a name that is not among those known."""
    lowered = {str(known).casefold(): str(known) for known in names}
    close = get_close_matches(str(name).casefold(), lowered, n=1)
    return f"did you mean {lowered[close[0]]!r}?" if close else f"the {kind} are {listed(names)}"


class Coded(NamedTuple):
    """A column as numbers of its distinct values, −1 where it has none."""

    codes: Int[np.ndarray, " entry"]
    names: np.ndarray
    """The distinct values as they are written: integers or text."""

    def each(self, values: Any, dtype: Any = np.int32, missing: Any = -1) -> np.ndarray:
        """A value for each entry, given those of the names."""
        return np.append(np.asarray(values, dtype=dtype), dtype(missing))[self.codes]


Chunk = Mapping[str, Coded]


def code(values: Any) -> Coded:
    """Number the distinct values of a column; values that are written alike are the same."""
    codes, uniques = pd.factorize(values)
    names = written(np.asarray(uniques))
    if names.dtype.kind == "i":
        return Coded(codes.astype(_index_type(len(names))), names)
    names[names == ""] = None
    merged, distinct = pd.factorize(names)
    return Coded(Coded(codes, names).each(merged, _index_type(len(distinct))), distinct)


def join(parts: Sequence[Coded]) -> Coded:
    """One column of several."""
    values = [part.names for part in parts]
    if len({part.dtype.kind for part in values}) > 1:  # integers here and text there
        values = [part.astype(str).astype(object) for part in values]
    everywhere, names = pd.factorize(np.concatenate(values))
    pieces = np.split(everywhere, np.cumsum([len(part.names) for part in parts])[:-1])
    codes = [part.each(piece, _index_type(len(names))) for part, piece in zip(parts, pieces, strict=True)]
    return Coded(np.concatenate(codes), names)


def in_order(column: Coded) -> Coded:
    """The same column with its names sorted."""
    order = np.argsort(column.names, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Coded(column.each(rank, column.codes.dtype.type), column.names[order])


def _index_type(size: int) -> type[np.signedinteger]:
    return np.int8 if size < 127 else np.int32


ORDERED = Keyword("ordered", True)

CHOICES = ITEM, VOTER, VOTE, CLASSES, LAST, KEEP = (
    *map(Keyword, ("item", "voter", "vote", "classes")),
    *(Keyword("duplicates", value) for value in ("last", "keep")),
)
"""Options of reading that messages name."""

Classes = Sequence[Hashable] | int | None
"""The labels in order, or their number for ordered votes; None: those among the votes."""

Ordered = bool | Sequence[Hashable]
"""Whether votes are grades, as numbers; or the grades from the lowest to the highest."""

Bins = int | Sequence[float]
"""Number of grades into which numbers are sorted, or the cut-points between the grades."""

Duplicates = Literal["error", "first", "last", "keep"]


class TableOptions(TypedDict, total=False):
    """The settings of `Reading` as keyword arguments."""

    item: str | None
    voter: str | None
    vote: str | None
    ignore: Collection[str]
    classes: Classes
    missing: Collection[Hashable]
    duplicates: Duplicates
    ordered: Ordered
    bins: Bins
    weight: str | None
    chunk_cells: int


class FileOptions(TableOptions, total=False):
    """Options for reading a file that may be from another tool, as in `Votes.from_tool`."""

    tool: str
    only: Mapping[str, Hashable | Collection[Hashable]]


@dataclass(frozen=True)
class Reading:
    """A user's options for reading a table of votes.

    Attributes:
        item: The column of items; by default it is found by its name.
        voter: The column of voters of a long table; by default it is found by its name.
        vote: The column of votes of a long table; by default it is found by its name.
        ignore: Columns to ignore.
        classes: The labels in order; by default the sorted distinct ones. Where they are listed, any other vote is a
            category of its own that is not a label.
        missing: Labels that mean a missing vote; an empty cell always does.
        duplicates: What to do where a voter voted on an item repeatedly: refuse (`error`), take the `first` or the
            `last` vote, or `keep` them all, each of which then counts.
        ordered: Whether the votes are grades in order, such as scores: True for numbers, or the grades from the lowest
            to the highest. The classes, in the same order, need not be among them.
        bins: Number of grades for more than `MOST_GRADES` different numbers, or the cut-points between the grades.
        weight: The column of probabilities of a long table of soft votes.
        chunk_cells: Number of cells of a file that are read at a time.
    """

    item: str | None = None
    voter: str | None = None
    vote: str | None = None
    ignore: Collection[str] = ()
    classes: Classes = None
    missing: Collection[Hashable] = ()
    duplicates: Duplicates = "error"
    ordered: Ordered = False
    bins: Bins = 10
    weight: str | None = None
    chunk_cells: int = 2**20

    def __post_init__(self) -> None:
        for name in ("ignore", "classes", "missing", "ordered", "bins"):
            if isinstance(value := getattr(self, name), str):
                choice = Keyword(name, (value,))
                raise VotesError(f"{name} takes several values: write {choice}", choice)
        if self.duplicates not in get_args(Duplicates):
            raise VotesError(f"duplicates={self.duplicates!r} is not one of 'error', 'first', 'last' and 'keep'")
        for name in ("classes", "ordered"):
            value = getattr(self, name)
            if isinstance(value, Sequence) and len(set(value)) < len(value):
                raise VotesError(f"{name}={tuple(value)!r} names a {'class' if name == 'classes' else 'grade'} twice")
        if isinstance(self.classes, int) and not self.ordered:
            raise VotesError(f"classes={self.classes} is a number: list the labels, or give {ORDERED}", ORDERED)
        _check_bins(self.bins)

    @property
    def label_texts(self) -> list[str] | None:
        """The classes as texts, if they are listed and votes are for them."""
        return None if self.ordered or not isinstance(self.classes, Sequence) else [*map(label_text, self.classes)]


def _check_bins(bins: Bins) -> None:
    if isinstance(bins, int):
        if not 2 <= bins <= MAX_GRADES:
            raise VotesError(f"bins={bins} must be between 2 and {MAX_GRADES}")
        return
    cuts = np.asarray(bins, dtype=float)
    if not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise VotesError(f"the cut-points bins={tuple(bins)!r} must be strictly increasing finite numbers")


MISSING = -1
MAX_CLASSES, MAX_GRADES = np.iinfo(np.int16).max, np.iinfo(np.int8).max

FEW_LABELS = 10
"""More distinct labels than this are doubted if there are few votes for each."""

MOST_GRADES = 20
"""More different numbers than this are sorted into bins: grades that hardly any vote has teach nothing."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)
"""An integer as pandas writes it in a column with gaps."""


def code_type(num_classes: int) -> type[np.signedinteger]:
    """The type of codes: one byte for up to 127 classes, else two."""
    return np.int8 if num_classes <= np.iinfo(np.int8).max else np.int16


def as_numbers(array: np.ndarray, truth_values: bool = False) -> np.ndarray | None:
    """The array with a numeric type, NaN where a vote is missing; None if it holds text.

    Args:
        array: The array.
        truth_values: Whether True and False count as 1 and 0, not as text.
    """
    if array.dtype.kind in ("iufb" if truth_values else "iuf"):
        return array
    kind = pd.api.types.infer_dtype(array.ravel(), skipna=True)
    numeric = ("integer", "floating", "mixed-integer-float", "empty", *(["boolean"] if truth_values else []))
    return np.where(pd.isna(array), np.nan, array).astype(float) if kind in numeric else None


def encode_codes(numbers: np.ndarray, num_classes: int | None) -> tuple[Int[np.ndarray, "..."], int]:
    """Check an array of class codes; −1 and NaN mean missing.

    Args:
        numbers: Integers 0 … K−1, in any numeric type.
        num_classes: K, or None to take it from the largest code (at least 2).

    Returns:
        The codes and the number of classes.
    """
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), MISSING, numbers)
        fraction = numbers != np.floor(numbers)
        if fraction.any() or np.isinf(numbers).any():
            odd = numbers[fraction | np.isinf(numbers)][0]
            raise VotesError(f"vote {odd} is not an integer; votes are class codes 0, 1, … with -1 or NaN for missing")
    low, high = int(numbers.min()), int(numbers.max())
    if num_classes is None:
        if low == -1 and high == 1 and not (numbers == 0).any():
            raise VotesError(
                "the votes are all -1 or 1, and -1 would mean missing: "
                "recode them as (votes + 1) // 2, or give num_classes if -1 is meant as missing"
            )
        num_classes = max(2, high + 1)
    if not 2 <= num_classes <= MAX_CLASSES:
        raise VotesError(f"{num_classes} classes are not supported: the number must be between 2 and {MAX_CLASSES}")
    if low < MISSING or high >= num_classes:
        odd = low if low < MISSING else high
        raise VotesError(f"vote {odd} is out of range: with {num_classes} classes the codes are 0 … {num_classes - 1}")
    return numbers.astype(code_type(num_classes)), num_classes


class Encoded(NamedTuple):
    """Votes as codes: those for classes first, then those for categories that are not labels; or grades in order."""

    codes: Int[np.ndarray, "..."]
    class_names: Names
    other_names: Names
    grade_names: Names = ()


def encode_labels(column: Coded, classes: Classes = None) -> Encoded:
    """Turn votes into codes.

    Labels that are all integers count as such, even if some are written like 1.0; other labels are text.

    Args:
        column: The labels.
        classes: The classes in order, beside which other votes are categories that are not labels; by default all
            labels are classes, sorted, unless it is doubtful that they are classes.
    """
    labels = [label_text(name) for name in column.names.tolist()]
    assert not isinstance(classes, int), "only ordered votes have a number of classes"
    if classes is None:
        classes = _classes_of(sorted(set(labels)), int((column.codes >= 0).sum()))
    if not 2 <= len(classes) <= MAX_CLASSES:
        number = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
        raise VotesError(
            f"the votes are for {number} ({listed(classes)}), but 2 to {MAX_CLASSES} are possible: "
            f"list them by {CLASSES}",
            CLASSES,
        )
    used = np.unique(column.codes[column.codes >= 0])
    others = _other_votes([labels[place] for place in used.tolist()], classes)
    code_of = {label_text(name): code for code, name in enumerate((*classes, *others))}
    codes = [code_of.get(label, MISSING) for label in labels]
    return Encoded(column.each(codes, code_type(len(code_of))), tuple(classes), tuple(others))


def _other_votes(labels: Sequence[str], classes: Sequence[Hashable], most: int = 20) -> list[Any]:
    """The votes that are not among the classes, sorted.

    They are refused if they are likely misspelt, or so many that they are scores or names, not categories.
    """
    known = {label_text(name) for name in classes}
    others = sorted(set(labels) - known)
    lowered = {name.casefold() for name in known}
    for label in others:
        if label.casefold() in lowered:
            raise VotesError(f"{label!r} is not one of the classes: {suggestion(label, classes)}")
    if others and len(others) == len(set(labels)):
        raise VotesError(
            f"no vote is for one of the classes {listed(classes)}: the votes are {listed(others)}; list the labels by "
            f"{CLASSES}, or give {ORDERED} if the votes are scores",
            CLASSES,
            ORDERED,
        )
    if len(others) > most:
        raise VotesError(
            f"{len(others)} different votes ({listed(others)}) are not among the classes {listed(classes)}, but "
            f"{most} at most can be categories of their own: sort them into fewer, or list all labels by "
            f"{CLASSES}",
            CLASSES,
        )
    return sorted(natural_names(np.array(others, dtype=object)).tolist())


def without(column: Coded, missing: Collection[Hashable]) -> Coded:
    """The column with some of its labels taken as missing."""
    absent = {label_text(name) for name in missing}
    kept = np.array([label_text(name) not in absent for name in column.names.tolist()], dtype=bool)
    if kept.all():
        return column
    places = np.where(kept, np.cumsum(kept) - 1, MISSING)
    return Coded(column.each(places, column.codes.dtype.type), column.names[kept])


def label_text(name: Any) -> str:
    """A label as the text by which it is compared: 1, "1" and "1.0" are one label."""
    text = as_text(name)
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text


def _classes_of(labels: Sequence[str], num_votes: int) -> tuple[Any, ...]:
    """The classes that some distinct labels stand for: integers if all are, else text."""
    if not labels:
        raise VotesError("there are no votes: every cell is empty or missing")
    text = [label for label in labels if not NUMBER.fullmatch(label)]
    numbers = [label for label in labels if NUMBER.fullmatch(label)]
    if text and numbers:
        missing = Keyword("missing", tuple(text) if len(text) <= SHOWN else ...)
        raise VotesError(
            f"the labels mix numbers and text ({numbers[0]} and {text[0]!r}): give {missing} if a vote is missing "
            f"there, or list the classes by {CLASSES}",
            missing,
            CLASSES,
        )
    fractions = [label for label in numbers if float(label) % 1 != 0]
    if fractions:
        raise scores_error(fractions[0])
    if len(labels) > FEW_LABELS and 2 * len(labels) > num_votes:
        raise VotesError(
            f"{num_votes} votes have {len(labels)} different labels ({listed(labels)}); "
            f"if all of them are classes, list them by {CLASSES}",
            CLASSES,
        )
    found = natural_names(np.array(labels, dtype=object)).tolist()
    if 0 in found and -1 in found:
        choice = Keyword("missing", (-1,)), Keyword("classes", tuple(sorted(found)) if len(found) <= SHOWN else ...)
        raise VotesError(f"-1 beside 0 may be a class or a missing vote: give {choice[0]} or {choice[1]}", *choice)
    for pair in ((0, 1), ("False", "True")):
        if set(found) <= set(pair):
            return pair
    return tuple(sorted(found))


def scores_error(example: str) -> VotesError:
    """The error for scores where labels are expected."""
    return VotesError(
        f"vote {example} is not {'an integer' if float(example) % 1 else 'a class'}, so the votes are not labels: if "
        f"they are scores, give {ORDERED}, and the labels by {CLASSES}",
        ORDERED,
        CLASSES,
    )


def refuse_scores(votes: Coded, classes: Sequence[str] | None) -> None:
    """Raise `VotesError` if every column of a wide table holds many numbers that cannot be labels."""
    labels = [label_text(name) for name in votes.names.tolist()]
    if len(labels) <= MOST_GRADES or not all(NUMBER.fullmatch(label) for label in labels):
        return
    known = set(classes or labels)
    strange = np.array([float(label) % 1 != 0 or label not in known for label in labels])
    if all(strange[column[column >= 0]].any() for column in votes.codes.T):
        raise scores_error(next(label for label, is_strange in zip(labels, strange, strict=True) if is_strange))


def encode(column: Coded, reading: Reading) -> Encoded:
    """Turn votes into codes, of grades if they are ordered."""
    return _encode_grades(column, reading) if reading.ordered else encode_labels(column, reading.classes)


def _encode_grades(column: Coded, reading: Reading) -> Encoded:
    """Turn ordered votes into the codes of their grades.

    Numbers are sorted. More than `MOST_GRADES` different ones, or numbers with given cut-points, are put into bins.
    """
    labels = [label_text(name) for name in column.names.tolist()]
    cast = np.bincount(column.codes[column.codes >= 0].ravel(), minlength=len(labels))
    used = [label for label, number in zip(labels, cast, strict=True) if number]
    if not used:
        raise VotesError("there are no votes: every cell is empty or missing")
    if not isinstance(reading.ordered, bool):
        grades: tuple[Any, ...] = tuple(reading.ordered)
        place = {label_text(name): code for code, name in enumerate(grades)}
        if strange := [label for label in used if label not in place]:
            raise VotesError(f"vote {strange[0]!r} is not one of the grades in {Keyword('ordered', grades)}")
        codes = [place.get(label, MISSING) for label in labels]
    else:
        if text := [label for label in used if not NUMBER.fullmatch(label)]:
            missing = Keyword("missing", tuple(text) if len(text) <= SHOWN else ...)
            raise VotesError(
                f"ordered votes are numbers, but {text[0]!r} is not one: give {missing} if a vote is missing there, or "
                f"list the votes from the lowest to the highest by {Keyword('ordered')}",
                missing,
            )
        values = np.array([float(label) if NUMBER.fullmatch(label) else np.nan for label in labels])
        edges = _cut_points(values, cast, reading.bins)
        if edges is None:
            of_value = {float(label): label for label in used}  # 1, 1.0 and 01 are one grade
            ascending = sorted(of_value)
            grades = tuple(natural_names(np.array([of_value[value] for value in ascending], dtype=object)).tolist())
            codes = np.searchsorted(ascending, values).tolist()
        else:
            first, last = f"<{edges[0]:g}", f"≥{edges[-1]:g}"
            grades = (first, *(f"{low:g}–{high:g}" for low, high in itertools.pairwise(edges)), last)
            codes = np.searchsorted(edges, values, side="right").tolist()
            if reading.classes is None:
                raise VotesError(
                    f"{len(used)} different scores are sorted into {len(grades)} bins, none of which is a label: list "
                    f"the labels by {CLASSES}",
                    CLASSES,
                )
    classes = reading.classes
    names = grades if classes is None else tuple(range(classes)) if isinstance(classes, int) else tuple(classes)
    for what, number in (("grade", len(grades)), ("class", len(names))):
        if not 2 <= number <= MAX_GRADES:
            kind = what if number == 1 else {"grade": "grades", "class": "classes"}[what]
            raise VotesError(f"ordered votes have {number} {kind}, but 2 to {MAX_GRADES} are possible")
    return Encoded(column.each(codes, code_type(len(grades))), names, (), grades)


def _cut_points(values: np.ndarray, cast: Int[np.ndarray, " value"], bins: Bins) -> np.ndarray | None:
    """The lowest number of each grade but the first; None if each number is a grade.

    Args:
        values: The different numbers.
        cast: How many votes are for each.
        bins: Number of bins, or the cut-points.
    """
    if not isinstance(bins, int):
        return np.asarray(bins, dtype=float)
    seen = cast > 0
    different, inverse = np.unique(values[seen], return_inverse=True)
    if len(different) <= MOST_GRADES:
        return None
    below = np.cumsum(np.bincount(inverse, cast[seen])) / cast[seen].sum()  # up to and including each number
    wanted = np.arange(1, bins) / bins
    places = np.searchsorted(below, wanted, side="left") + 1
    return np.unique(different[places[places < len(different)]])
