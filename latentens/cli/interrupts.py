"""Ctrl-C and SIGTERM: the command ends at once, with a sentence on what is kept, whatever it is doing.

An exception in the main thread would not do. It has to wait until compiled code returns, it can come out of JAX as
another error that looks like a failed fit, and after it the interpreter takes down what a compilation that still runs
in a thread of XLA needs, which ends in a segmentation fault. So a thread of its own waits for the signal and ends the
process without unwinding. That is safe because every file is written under another name first.
"""

import atexit
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
