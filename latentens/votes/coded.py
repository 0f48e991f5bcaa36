"""Columns of a table as numbers of their distinct values."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.votes.names import written


class Coded(NamedTuple):
    """A column as numbers of its distinct values, −1 where it has none."""

    codes: Int[np.ndarray, " entry"]
    names: np.ndarray
    """The distinct values as they are written: integers or text."""


Chunk = Mapping[str, Coded]


def code(values: Any) -> Coded:
    """Number the distinct values of a column."""
    return coded(*pd.factorize(values))


def coded(codes: Int[np.ndarray, " entry"], values: Any) -> Coded:
    """A column from the numbers of some values, which are written alike only if they are the same."""
    names = written(np.asarray(values))
    if names.dtype.kind == "i":
        return Coded(codes.astype(_index_type(len(names))), names)
    names[names == ""] = None
    merged, names = pd.factorize(names)
    return Coded(np.append(merged, -1).astype(_index_type(len(names)))[codes], names)


def join(parts: Sequence[Coded]) -> Coded:
    """One column of several."""
    values = [part.names for part in parts]
    if len({part.dtype.kind for part in values}) > 1:  # integers here and text there
        values = [part.astype(str).astype(object) for part in values]
    everywhere, names = pd.factorize(np.concatenate(values))
    ends = np.cumsum([len(part.names) for part in parts])
    new_codes = [np.append(piece, -1).astype(_index_type(len(names))) for piece in np.split(everywhere, ends[:-1])]
    codes = [new[part.codes] for new, part in zip(new_codes, parts, strict=True)]
    return Coded(np.concatenate(codes), names)


def in_order(column: Coded) -> Coded:
    """The same column with its names sorted."""
    order = np.argsort(column.names, kind="stable")
    rank = np.empty(len(order) + 1, dtype=column.codes.dtype)
    rank[order] = np.arange(len(order))
    rank[-1] = -1
    return Coded(rank[column.codes], column.names[order])


def _index_type(size: int) -> type[np.signedinteger]:
    return np.int8 if size < 127 else np.int32
