"""Settings: frozen dataclasses whose annotations say which values they take, checked when one is made.

`restarts: Count = 8` refuses 0, −1, 2.5 and "many"; `schedule: Literal["constant", "cosine"]` refuses any other word.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from numbers import Integral, Real
from textwrap import shorten
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from latentens.errors import SettingError


class Rule(NamedTuple):
    """A condition on a value: its text, which follows "must be", and its test."""

    words: str
    holds: Callable[[Any], bool]


def at_least(bound: float) -> Rule:
    """Not below the bound."""
    return Rule(f"at least {bound}", lambda value: value >= bound)


def above(bound: float) -> Rule:
    """Greater than the bound."""
    return Rule(f"above {bound}", lambda value: value > bound)


def below(bound: float) -> Rule:
    """Less than the bound."""
    return Rule(f"below {bound}", lambda value: value < bound)


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
Positive = Annotated[float, above(0)]
NotNegative = Annotated[float, at_least(0)]
PartialShare = Annotated[float, at_least(0), below(1)]
"""A share that leaves something."""

NUMBERS: dict[Any, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (Integral,)),
    float: ("a number", (Real,)),
    bool: ("True or False", (bool, np.bool_)),
}
"""Name and accepted classes of each type of number; NumPy's numbers are accepted, too."""


class Settings:
    """Base of frozen dataclasses of settings; a subclass with a `__post_init__` of its own calls this one first."""

    def __post_init__(self) -> None:
        kind: Any = type(self)  # mypy holds that classes cannot be hashed
        hints = _hints(kind)
        for setting in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, setting.name)
            wanted = None if value is setting.default else _wanted(hints.get(setting.name, Any), value)
            if wanted is not None:
                is_class = isinstance(value, type)
                shown = f"the class {value.__name__}" if is_class else shorten(repr(value), 60, placeholder=" …")
                raise SettingError(f"{type(self).__name__}: {setting.name} must be {wanted}, not {shown}")


@lru_cache(maxsize=256)
def _hints(settings: type) -> dict[str, Any]:
    try:
        return get_type_hints(settings, include_extras=True)
    except NameError:  # annotations as strings that name what only a function or a type checker knows
        return {}


def _wanted(hint: Any, value: Any) -> str | None:
    """The text of the condition in an annotation that the value does not meet; None if it meets all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        broken = (rule.words for rule in arguments[1:] if isinstance(rule, Rule) and not rule.holds(value))
        return _wanted(arguments[0], value) or next(broken, None)
    if origin in (Union, UnionType):
        wanted = [_wanted(option, value) for option in arguments]
        return None if None in wanted else _either(sorted(map(str, wanted), key=lambda words: words != "None"))
    if origin is Literal:
        return None if value in arguments else _either([repr(word) for word in arguments])
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        part = arguments[0]
        if not isinstance(value, tuple):
            bare = get_args(part)[0] if get_origin(part) is Annotated else part
            return "a tuple such as (3, 1)" if bare in NUMBERS else "a tuple"
        missed = next((words for each in value if (words := _wanted(part, each))), None)
        return missed and f"a tuple in which each value is {missed}"
    kind = origin or hint
    if not isinstance(kind, type) or kind is Any:
        return None
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    words, kinds = NUMBERS.get(kind, (f"{article} {kind.__name__}", (kind,)))
    if isinstance(value, kinds) and (kind is bool or kind not in NUMBERS or not isinstance(value, bool)):
        return None
    if kind is NoneType:
        return "None"
    return f"{words} such as {value.__name__}()" if isinstance(value, type) and issubclass(value, kinds) else words


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
