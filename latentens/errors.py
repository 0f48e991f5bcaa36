"""The errors a user can cause; each message is one sentence that names the fault and the remedy."""

from collections.abc import Callable
from importlib.util import find_spec
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
    """Input of which a part cannot be used, or a result that needs caution."""


class DataNotFoundError(LatentensError, FileNotFoundError):
    """A data file that was not found; the message says what to fetch and where to put it."""


class MissingExtraError(LatentensError, ImportError):
    """An optional dependency that is not installed; the message says how to install it."""


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
