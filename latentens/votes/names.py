"""Names of items, voters and classes: kept as they are written, and listed as a person would list them."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

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
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) if isinstance(name, str) else str(name) for name in names[:SHOWN]) + rest


def suggestion(name: Any, names: Names, kind: str = "classes") -> str:
    """A hint for a name that is not among those known."""
    lowered = {str(known).casefold(): str(known) for known in names}
    close = get_close_matches(str(name).casefold(), lowered, n=1)
    return f"did you mean {lowered[close[0]]!r}?" if close else f"the {kind} are {listed(names)}"
