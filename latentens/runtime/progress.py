"""Progress on a terminal or in a notebook: one display for all that goes on, nothing in a pipe.

Bars of steps within steps, and of several threads, stand below each other. A bar shows only once its work takes long.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Step = TypeVar("Step")
Advance = Callable[[str], None]
"""Called after each step with what to say from now on; "" leaves the words as they are."""

PATIENCE = 2.0
"""Seconds without a bar."""

INTERVAL = 0.1
"""Seconds between two looks at a task."""


class _Display:
    """The bars of this process; it is on the screen while there is any task."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.progress: Progress | None = None
        self.tasks = 0

    def begin(self) -> Progress:
        with self.lock:
            if self.progress is None:
                words = TextColumn("{task.description}", markup=False)  # names in users' files are no markup
                columns = (words, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
                self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
                self.progress.start()
            self.tasks += 1
            return self.progress

    def end(self) -> None:
        with self.lock:
            self.tasks -= 1
            if self.tasks == 0 and self.progress is not None:
                self.progress.stop()
                self.progress = None


_display = _Display()


def is_shown() -> bool:
    """Whether anybody would see progress: standard error is a terminal, or a notebook that can draw bars."""
    console = Console(stderr=True)
    if console.is_jupyter:  # which Rich does not count as a terminal
        return find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def task(description: str, total: int | None = None, patience: float | None = None) -> Iterator[Advance]:
    """A piece of work with its bar; what is yielded is called after each step, from any thread.

    Args:
        description: What stands before the bar.
        total: Number of steps, if it is known.
        patience: Seconds until the bar shows, by default two.
    """
    patience = PATIENCE if patience is None else patience
    if not is_shown():
        yield lambda _: None
        return
    progress, start = _display.begin(), time.monotonic()
    number = progress.add_task(description, total=total, visible=patience <= 0)
    done, looked, lock = 0, start, threading.Lock()

    def advance(words: str) -> None:
        nonlocal done, looked
        with lock:
            done, now = done + 1, time.monotonic()
            if now - looked < INTERVAL:
                return
            looked = now
        progress.update(number, completed=done, visible=now - start > patience)
        if words:
            progress.update(number, description=words)

    try:
        yield advance
    finally:
        progress.remove_task(number)
        _display.end()


def track_late(
    steps: Iterable[Step], description: str | Callable[[Step], str], total: int | None = None
) -> Iterator[Step]:
    """Yield the steps, with a progress bar once they take longer than two seconds.

    Args:
        steps: The steps.
        description: What stands before the bar, perhaps told by the step.
        total: Number of steps, where they do not tell it themselves.
    """
    total = len(steps) if isinstance(steps, Sized) else total
    with task(description if isinstance(description, str) else "", total) as advance:
        for number, step in enumerate(steps):
            if number or not isinstance(description, str):
                advance(description if isinstance(description, str) else description(step))
            yield step
