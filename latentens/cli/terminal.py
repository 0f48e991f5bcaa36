"""What the commands say: results on standard output, all else on standard error, and nothing of it is markup."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from latentens.cli.reading_options import as_options
from latentens.errors import LatentensWarning
from latentens.runtime.printable import printable
from latentens.runtime.progress import Advance, task


class PlainConsole(Console):
    """A console on which names from files command nothing: neither by markup nor by control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it stands."""
        return super().render_str(printable(text), **options)


console = PlainConsole(markup=False, emoji=False, highlight=False)
messages = PlainConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def tell(line: object) -> None:
    """Print a line of the result."""
    console.print(line, soft_wrap=True)


def say(sentence: object) -> None:
    """Say what is wrong, in terms of the command line."""
    messages.print(f"latentens: {as_options(str(sentence))}")


def status(words: str) -> AbstractContextManager[Advance]:
    """A line that shows what is going on."""
    return task(words, patience=0.0)


def end_if_elsewhere(place: Path, out: Path) -> None:
    """Exit code 1 says that a result is not where it was asked for."""
    if place != out:
        raise typer.Exit(1)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show warnings of ours as sentences, and others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LatentensWarning)
        warnings.showwarning = partial(_show, warnings.showwarning)
        yield


def _show(otherwise: Callable[..., None], message: Warning | str, *where: Any, **more: Any) -> None:
    if isinstance(message, LatentensWarning):
        say(message)
    else:
        otherwise(message, *where, **more)
