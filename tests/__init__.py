"""The tests; `checked` compares arrays with their annotations while they run (see `test_annotations`)."""

import inspect
from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray


def checked(function):
    """Check the annotations that speak of arrays; all others are the business of mypy."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _speaks_of_arrays(hint)}
    return beartype(function)


def _speaks_of_arrays(hint):
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(_speaks_of_arrays(part) for part in get_args(hint))
