"""Progress bars on a terminal or in a notebook, nothing in a pipe.

One display has the bars of nested steps and of several threads. A bar appears only once its work takes long.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from latentens.runtime.text import printable

Step = TypeVar("Step")
Advance = Callable[..., None]
"""Called after each step with the new description, "" to leave it as it is, and perhaps another number of steps."""


class _Bars(Progress):
    """Bars that appear once their task has taken long, even while a step of it is silent."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for shown in self.tasks:
            shown.visible = (shown.elapsed or 0.0) >= shown.fields["patience"]
        return super().get_renderables()


_lock = threading.RLock()
_bars: list[_Bars] = []
"""The bars of this process: one display, which is on the screen while there is any task."""


def is_shown() -> bool:
    """Whether progress is visible: standard error is a terminal, or a notebook that can draw bars."""
    console = Console(stderr=True)
    if console.is_jupyter:  # which Rich does not count as a terminal
        return find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def task(description: str, total: int | None = None, patience: float = 2.0) -> Iterator[Advance]:
    """A piece of work with its bar; the function that is yielded is called after each step, from any thread.

    Args:
        description: The text before the bar.
        total: Number of steps, if it is known.
        patience: Seconds until the bar appears.
    """
    if not is_shown():
        yield lambda _text, _steps=1: None
        return
    with _lock:
        if not _bars:
            words = TextColumn("{task.description}", markup=False)  # names in users' files are not markup
            columns = (words, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            _bars.append(_Bars(*columns, console=Console(stderr=True), transient=True))
            _bars[0].start()
        progress = _bars[0]
        number = progress.add_task(printable(description), total=total, visible=False, patience=patience)
    try:
        yield lambda text, steps=1: progress.update(number, advance=steps, description=printable(text) or None)
    finally:
        with _lock:
            progress.remove_task(number)
            if not progress.tasks:
                progress.stop()
                _bars.clear()


def track_late(
    steps: Iterable[Step], description: str | Callable[[Step], str], total: int | None = None, patience: float = 2.0
) -> Iterator[Step]:
    """Yield the steps, with a progress bar once they take long.

    Args:
        steps: The steps.
        description: The text before the bar, or a function that makes it of a step.
        total: Number of steps, if `steps` has no length.
        patience: Seconds until the bar appears.
    """
    total = len(steps) if isinstance(steps, Sized) else total
    text = (lambda _: description) if isinstance(description, str) else description
    with task(description if isinstance(description, str) else "", total, patience) as advance:
        for number, step in enumerate(steps):
            advance(text(step), min(number, 1))
            yield step
