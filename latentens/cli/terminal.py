"""The terminal: messages, progress, interruptions."""

import atexit
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from latentens.cli.reading_options import as_options
from latentens.errors import LatentensWarning
from latentens.runtime.progress import Advance, task
from latentens.runtime.text import printable


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


SIGNALS = (signal.SIGINT, signal.SIGTERM)

CLEAR_LINE = "\r\x1b[2K\x1b[?25h"
"""Takes away a progress bar and brings the terminal's cursor back."""

NOTHING_KEPT = "nothing was written"

_kept: list[Callable[[], str]] = []


def tell_on_interrupt(kept: Callable[[], str]) -> None:
    """From now on an interrupt asks this function what is kept, and says so."""
    _kept.append(kept)


def tell_of_fits(folder: Path | None) -> Callable[[int, int], None]:
    """Have an interrupt say how many fits of a comparison are kept; takes the numbers of finished fits and of all."""
    numbers = (0, 0)

    def update(finished: int, total: int) -> None:
        nonlocal numbers
        numbers = finished, total

    def kept() -> str:
        finished, total = numbers
        if folder is None:
            return f"{NOTHING_KEPT}: add --out FOLDER to keep finished fits, so that the same command resumes"
        if not total:
            return "no fit was finished"
        return f"{finished} of {total} fits are finished and kept; run the same command to continue"

    tell_on_interrupt(kept)
    return update


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """End the process on a signal while the context lasts; signals that the caller ignores stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listener, bell = socket.socketpair()
    bell.setblocking(False)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    fd_before = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # what is done cannot be interrupted any more
    threading.Thread(target=_listen, args=(listener,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        bell.close()
        _kept.clear()


def _listen(listener: socket.socket) -> None:
    """Wait for the number of a signal that is ours, or for the end of the context."""
    with listener:
        while received := listener.recv(1):
            if received[0] in SIGNALS:
                _end(received[0])


def _end(number: int) -> None:
    try:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        screen = sys.__stderr__ or sys.stderr  # a progress bar takes the place of the other, and eats the cursor
        start = CLEAR_LINE if screen.isatty() else ""
        print(f"{start}latentens: interrupted; {_kept[-1]() if _kept else NOTHING_KEPT}", file=screen, flush=True)
    finally:
        os._exit(128 + number)
