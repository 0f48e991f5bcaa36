"""Progress on a terminal or in a notebook: one display for all that goes on, nothing in a pipe.

Bars of steps within steps, and of several threads, stand below each other. A bar shows only once its work takes long.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain, islice
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from latentens.runtime.text import printable

Step = TypeVar("Step")
Advance = Callable[[str], None]
"""Called after each step with what to say from now on; "" leaves the words as they are."""

PATIENCE = 2.0
"""Seconds without a bar."""


@dataclass
class _Work:
    """What a task has to show for itself; the display looks at it from time to time."""

    words: str
    patience: float
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    start: float = field(default_factory=time.monotonic)

    def advance(self, words: str) -> None:
        with self.lock:
            self.done += 1
            self.words = words or self.words


class _Bars(Progress):
    """Bars that follow their tasks, also while a long step of these says nothing."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for shown in self.tasks:
            work = shown.fields["work"]
            visible = time.monotonic() - work.start >= work.patience
            self.update(shown.id, completed=work.done, description=printable(work.words), visible=visible)
        return super().get_renderables()


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
                self.progress = _Bars(*columns, console=Console(stderr=True), transient=True)
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
    if not is_shown():
        yield lambda _: None
        return
    work = _Work(description, PATIENCE if patience is None else patience)
    progress = _display.begin()
    number = progress.add_task(description, total=total, visible=False, work=work)
    try:
        yield work.advance
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
    says = (lambda _: description) if isinstance(description, str) else description
    rest = iter(steps)
    first = list(islice(rest, 0 if isinstance(description, str) else 1))  # which may have to be waited for
    with task(description if isinstance(description, str) else "".join(map(says, first)), total) as advance:
        for number, step in enumerate(chain(first, rest)):
            if number:
                advance(says(step))
            yield step
