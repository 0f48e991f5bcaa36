"""The errors a user can cause; each message is one sentence that names the fault and the remedy."""

import sysconfig
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self


class Keyword(NamedTuple):
    """A keyword argument that resolves an error, such as `item='question'`; `...` stands for a value to be chosen."""

    name: str
    value: Any = ...

    def __str__(self) -> str:
        return f"{self.name}={'…' if self.value is ... else repr(self.value)}"


class LatentensError(ValueError):
    """Input that cannot be used as it is.

    Attributes:
        keywords: The keyword arguments that the message names.
    """

    def __init__(self, message: str, *keywords: Keyword) -> None:
        super().__init__(message)
        self.keywords = keywords

    def text(self, spell: Callable[[Keyword], str]) -> str:
        """The message with its keyword arguments spelled by a function, for example as options of a command."""
        text = str(self)
        for keyword in self.keywords:
            text = text.replace(str(keyword), spell(keyword))
        return text

    def about(self, source: object) -> Self:
        """The same error with a message that begins with the file that it is about."""
        return type(self)(f"{source}: {self}", *self.keywords)


class VotesError(LatentensError):
    """Votes that are malformed or do not fit the model."""


class ContractError(LatentensError):
    """A generative program that breaks the program contract; the message names the site."""


class ParameterError(LatentensError):
    """Parameter values that do not fit the program."""


class LatentensWarning(UserWarning):
    """Input that can be used only in part, or a result that needs caution."""


class FailedFitWarning(LatentensWarning):
    """A method that failed in a comparison, which goes on without it."""


class DataNotFoundError(LatentensError, FileNotFoundError):
    """A data file that was not found; the message says what to fetch and where to put it."""


class MissingExtraError(LatentensError, ImportError):
    """An optional dependency that is not installed; the message says how to install it."""


LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of Python's and of installed libraries."""


def users_place(error: BaseException) -> str:
    """File and line of the last of the user's code that an error came through; empty if it came through none.

    The user's code is what is neither of this package nor of a library.
    """
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        is_ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "latentens"
        if not is_ours and not str(file).startswith("<") and not any(map(file.is_relative_to, LIBRARIES)):
            shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
            return f"{shown}, line {line}"
    return ""


def in_one_line(error: BaseException) -> str:
    """An error with the place in the user's code that it came from, if it did."""
    if isinstance(error, LatentensError):
        return str(error)
    first = str(error).strip().partition("\n")[0]
    words = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"{words} ({place})" if (place := users_place(error)) else words


def require(purpose: str, *modules: str) -> None:
    """Raise an error that says how to install optional dependencies, unless all of them are installed.

    Args:
        purpose: What needs them; the beginning of the sentence.
        modules: The modules that will be imported.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f'{purpose} needs {", ".join(missing)}: pip install "latentens[all]"')


class LimitError(LatentensError):
    """A step that would exceed the limit on memory or time; the message gives the estimate and the remedy."""


class SettingError(LatentensError):
    """An invalid setting of a method, a model or a training; the message names it."""
