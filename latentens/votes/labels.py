"""From what people have in files and frames to class codes: integers from 0, with −1 for a missing vote."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int8

from latentens.errors import VotesError

MISSING = -1
MAX_CLASSES = 127

ITEM_COLUMNS = ("item", "item_id", "task", "question", "example", "id")
VOTER_COLUMNS = ("voter", "worker", "annotator", "rater", "judge", "classifier", "user")
VOTE_COLUMNS = ("vote", "label", "answer", "response", "annotation")


def as_numbers(array: np.ndarray) -> np.ndarray | None:
    """The array with a numeric type, None within it becoming NaN; None if it holds text."""
    if array.dtype.kind in "iufb":
        return array
    kind = pd.api.types.infer_dtype(array.ravel(), skipna=True)
    return array.astype(float) if kind in ("integer", "floating", "mixed-integer-float", "boolean", "empty") else None


def encode_codes(numbers: np.ndarray, num_classes: int | None) -> tuple[Int8[np.ndarray, "..."], int]:
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
    return numbers.astype(np.int8), num_classes


def encode_labels(
    values: np.ndarray, classes: Sequence[Hashable] | None = None
) -> tuple[Int8[np.ndarray, "..."], tuple[Any, ...]]:
    """Turn labels (strings or integers) into codes, the classes in sorted order unless they are given.

    An empty or NaN value is missing; so is −1 beside a class 0. Text that reads as integers counts as integers.

    Returns:
        The codes and the names of the classes.
    """
    flat = pd.Series(np.ravel(values))
    flat = flat.mask(flat.astype(str).str.strip() == "") if flat.dtype.kind not in "iufb" else flat
    observed = flat.dropna()
    labels = _integers_or_text(observed)
    if classes is None:
        classes = _sorted_classes(labels)
    unknown = set(labels.unique()) - set(classes) - ({-1} if 0 in classes else set())
    if unknown:
        raise VotesError(f"label {min(unknown, key=str)!r} is not among the classes {', '.join(map(repr, classes))}")
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise VotesError(
            f"{len(classes)} class{'es' * (len(classes) != 1)} ({', '.join(map(repr, classes[:3]))}…) found; "
            f"between 2 and {MAX_CLASSES} are possible: name them with classes=(…)"
        )
    codes = np.full(len(flat), MISSING, dtype=np.int8)
    codes[observed.index.to_numpy()] = pd.Index(classes).get_indexer(pd.Index(labels))
    return codes.reshape(np.shape(values)), tuple(classes)


def _integers_or_text(observed: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(observed, errors="coerce")
    if numbers.isna().all():
        return observed.astype(str).str.strip()
    if numbers.isna().any():
        text, number = observed[numbers.isna()].iloc[0], observed[numbers.notna()].iloc[0]
        raise VotesError(f"the labels mix numbers and text ({number!r} and {text!r}); use one kind")
    if (numbers % 1 != 0).any():
        raise VotesError(f"vote {numbers[numbers % 1 != 0].iloc[0]} is not an integer; votes are labels, not scores")
    return numbers.astype(np.int64)


def _sorted_classes(labels: pd.Series) -> tuple[Any, ...]:
    distinct = sorted(labels.unique().tolist())
    if 0 in distinct and -1 in distinct:
        distinct.remove(-1)
    return (0, 1) if set(distinct) <= {0, 1} else tuple(distinct)


def read_csv(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text, so that labels and names stay as they were written."""
    with refused_if_unreadable(path, "CSV"):
        frame = pd.read_csv(path, dtype=str, skipinitialspace=True, encoding="utf-8-sig")
    if frame.empty:
        raise VotesError(f"{path} has a header but no rows")
    return frame


@contextmanager
def refused_if_unreadable(path: str | Path, kind: str) -> Iterator[None]:
    """Say in one sentence why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise VotesError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise VotesError(f"{path} is a folder, not a {kind} file") from None
    except pd.errors.EmptyDataError:
        raise VotesError(f"{path} is empty") from None
    except VotesError:
        raise
    except (UnicodeDecodeError, pd.errors.ParserError, ValueError, OSError) as error:
        raise VotesError(f"{path} is not a readable {kind} file ({' '.join(str(error).split())})") from None


def natural_names(names: np.ndarray) -> np.ndarray:
    """Names as integers if all of them are written as such, so that 10 sorts after 9."""
    written = pd.Series(names)
    numbers = pd.to_numeric(written, errors="coerce")
    if numbers.isna().any() or (numbers % 1 != 0).any():
        return names
    integers = numbers.astype(np.int64)
    return integers.to_numpy() if (integers.astype(str) == written).all() else names


def long_columns(columns: Sequence[Any]) -> tuple[str, str, str] | None:
    """The item, voter and vote columns of a table with one vote a row, or None if it is not of that form."""
    item, voter, vote = _usual_columns(columns)
    return (item, voter, vote) if item is not None and voter is not None and vote is not None else None


def refuse_incomplete_columns(columns: Sequence[Any]) -> None:
    """Refuse a table that looks as if it had one vote a row, but lacks the items or the votes."""
    item, voter, vote = _usual_columns(columns)
    if voter is not None and (item is None or vote is None) and len(columns) < 4:
        missing = "items (item, task, …)" if item is None else "votes (vote, label, …)"
        raise VotesError(f"there is no column of {missing}; the columns are {', '.join(map(repr, columns))}")


def _usual_columns(columns: Sequence[Any]) -> tuple[str | None, ...]:
    names = {str(column).strip().lower(): column for column in reversed(columns)}
    return tuple(
        next((names[alias] for alias in aliases if alias in names), None)
        for aliases in (ITEM_COLUMNS, VOTER_COLUMNS, VOTE_COLUMNS)
    )


def is_item_column(name: str) -> bool:
    """Whether the first column of a table with one column a voter holds the names of the items."""
    return name.strip().lower() in ITEM_COLUMNS or name.startswith("Unnamed:")
