"""The terminal: messages, progress, interrupts."""

import atexit
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from latentens.cli.options import as_option
from latentens.errors import FailedFitWarning, LatentensError, LatentensWarning
from latentens.runtime.progress import Advance, task
from latentens.runtime.text import printable


class PlainConsole(Console):
    """A console on which names from files have no effect, neither by markup nor by control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text without any markup."""
        return super().render_str(printable(text), **options)


console = PlainConsole(markup=False, emoji=False, highlight=False)
messages = PlainConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def tell(line: object) -> None:
    """Print a line of the result."""
    console.print(line, soft_wrap=True)


def say(message: object) -> None:
    """Print an error or a warning, with options of the command where it names keyword arguments."""
    text = message.text(as_option) if isinstance(message, LatentensError) else message
    messages.print(f"latentens: {text}")


def status(words: str) -> AbstractContextManager[Advance]:
    """A progress line for a step of unknown length."""
    return task(words, patience=0.0)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show the package's own warnings as sentences, and others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LatentensWarning)
        warnings.simplefilter("ignore", FailedFitWarning)  # which is printed below the tables
        show = warnings.showwarning
        warnings.showwarning = lambda message, *where, **more: (
            say(message) if isinstance(message, LatentensWarning) else show(message, *where, **more)
        )
        yield


SIGNALS = (signal.SIGINT, signal.SIGTERM)

CLEAR_LINE = "\r\x1b[2K\x1b[?25h"
"""Removes a progress bar and shows the cursor again."""

NOTHING_KEPT = "nothing was written"

_kept = [NOTHING_KEPT]
"""Sentences about the results; an interrupt prints the last one."""


def report_fits_on_interrupt(folder: Path | None) -> Callable[[int, int], None]:
    """Let an interrupt say how many fits are kept; the result takes the numbers of finished fits and of all."""
    _kept.append("no fit was finished")
    if folder is None:
        _kept.append(f"{NOTHING_KEPT}: add --out FOLDER to keep finished fits, so that the same command resumes")
        return lambda *_: None
    words = "{} of {} fits are finished and kept; run the same command to continue"
    return lambda finished, total: _kept.append(words.format(finished, total))


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
        del _kept[1:]


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
        print(f"{start}latentens: interrupted; {_kept[-1]}", file=screen, flush=True)
    finally:
        os._exit(128 + number)
