"""Priors as settings of a model: checked when the model is made, kept as tuples so that it can be hashed."""

from typing import Annotated, Any

import numpy as np

from latentens.errors import SettingError
from latentens.programs.model import GenerativeModel
from latentens.runtime.settings import at_least

Classes = Annotated[int, at_least(2)]

Prior = float | tuple[Any, ...] | list[Any] | np.ndarray
"""A number, or numbers in nested tuples, lists or an array; kept as tuples."""

Pair = tuple[float, float]
"""Two concentrations of a beta distribution, or mean and standard deviation of a normal one."""


def keep_positive(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds positive numbers in an array of one of the shapes; None stands for the default."""
    if getattr(model, name) is not None:
        array = _array(model, name, shapes)
        if (array <= 0).any():
            raise _wrong(model, name, f"positive, but holds {array.min():g}")
        _keep(model, name, array)


def keep_normal(model: GenerativeModel, name: str, *shapes: tuple[int, ...]) -> None:
    """Check that a setting holds pairs (mean, standard deviation) in an array of one of the shapes, by default one."""
    if getattr(model, name) is not None:
        array = _array(model, name, tuple((*shape, 2) for shape in shapes or ((),)))
        if (array[..., 1] <= 0).any():
            raise _wrong(model, name, f"(mean, standard deviation), but holds the deviation {array[..., 1].min():g}")
        _keep(model, name, array)


def _array(model: GenerativeModel, name: str, shapes: tuple[tuple[int, ...], ...]) -> np.ndarray:
    value = getattr(model, name)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(model, name, f"numbers only, in rows of one length, not {value!r}") from None
    if array.shape not in shapes:
        raise _wrong(model, name, f"{' or '.join(map(_form, shapes))}, not {_form(array.shape)}")
    if not np.isfinite(array).all():
        raise _wrong(model, name, f"finite, not {value!r}")
    return array


def _form(shape: tuple[int, ...]) -> str:
    return f"of shape {shape}" if shape else "one number"


def _keep(model: GenerativeModel, name: str, array: np.ndarray) -> None:
    object.__setattr__(model, name, _tuples(array.tolist()))  # frozen for users, not while the model is made


def _tuples(value: Any) -> Prior:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _wrong(model: GenerativeModel, name: str, words: str) -> SettingError:
    return SettingError(f"{type(model).__name__}: {name} must be {words}")
