"""From labels as people write them to class codes: integers from 0, with −1 for a missing vote."""

import re
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.errors import VotesError
from latentens.votes.coded import Coded
from latentens.votes.names import SHOWN, as_text, listed, natural_names, suggestion
from latentens.votes.reading import Classes

MISSING = -1
MAX_CLASSES = 2**15 - 1

FEW_LABELS = 10
"""More distinct labels than this are doubted where most votes have one of their own."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)
"""An integer as pandas writes it in a column with gaps."""


def code_type(num_classes: int) -> type[np.signedinteger]:
    """The type of codes: one byte for up to 127 classes, else two."""
    return np.int8 if num_classes <= np.iinfo(np.int8).max else np.int16


def as_numbers(array: np.ndarray, truth_values: bool = False) -> np.ndarray | None:
    """The array with a numeric type, what is missing in it becoming NaN; None if it holds text.

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
        raise VotesError(f"{num_classes} classes; between 2 and {MAX_CLASSES} are possible")
    if low < MISSING or high >= num_classes:
        odd = low if low < MISSING else high
        raise VotesError(f"vote {odd} is out of range: with {num_classes} classes the codes are 0 … {num_classes - 1}")
    return numbers.astype(code_type(num_classes)), num_classes


def encode_labels(column: Coded, classes: Classes = None) -> tuple[Int[np.ndarray, "..."], tuple[Any, ...]]:
    """Turn labels into codes.

    Labels that are all integers count as such, even if some are written like 1.0; other labels are text.

    Args:
        column: The labels.
        classes: The classes in order; by default the sorted labels, unless it is doubtful that they are classes.

    Returns:
        The code of each label, and the names of the classes.
    """
    labels = [label_text(name) for name in column.names.tolist()]
    if classes is None:
        classes = _classes_of(sorted(set(labels)), int((column.codes >= 0).sum()))
    if not 2 <= len(classes) <= MAX_CLASSES:
        number = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
        raise VotesError(
            f"the votes are for {number} ({listed(classes)}), but 2 to {MAX_CLASSES} are possible: "
            "name them with classes=(…)"
        )
    code_of = {label_text(name): code for code, name in enumerate(classes)}
    for label in labels:
        if label not in code_of:
            hint = suggestion(label, classes)
            raise VotesError(f"label {label!r} is no class: {hint}")
    codes = np.array([*(code_of[label] for label in labels), MISSING], dtype=code_type(len(classes)))
    return codes[column.codes], tuple(classes)


def without(column: Coded, missing: Collection[Hashable]) -> Coded:
    """The column with some of its labels taken as missing."""
    absent = {label_text(name) for name in missing}
    kept = np.array([label_text(name) not in absent for name in column.names.tolist()], dtype=bool)
    if kept.all():
        return column
    codes = np.append(np.where(kept, np.cumsum(kept) - 1, MISSING), MISSING).astype(column.codes.dtype)
    return Coded(codes[column.codes], column.names[kept])


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
        codes = tuple(text) if len(text) <= SHOWN else "(…)"
        raise VotesError(
            f"the labels mix numbers and text ({numbers[0]} and {text[0]!r}): say missing={codes} if a vote is missing "
            "there, or name all the classes, classes=(…)"
        )
    fractions = [label for label in numbers if float(label) % 1 != 0]
    if fractions:
        raise VotesError(f"vote {fractions[0]} is not an integer; votes are labels, not scores")
    if len(labels) > FEW_LABELS and 2 * len(labels) > num_votes:
        raise VotesError(
            f"{num_votes} votes have {len(labels)} different labels ({listed(labels)}); "
            "if all of them are classes, name them with classes=(…)"
        )
    found = natural_names(np.array(labels, dtype=object)).tolist()
    if 0 in found and -1 in found:
        classes = tuple(sorted(found)) if len(found) <= SHOWN else "(…)"
        raise VotesError(f"-1 beside 0 may be a class or a missing vote: say missing=(-1,), or classes={classes}")
    for pair in ((0, 1), ("False", "True")):
        if set(found) <= set(pair):
            return pair
    return tuple(sorted(found))
