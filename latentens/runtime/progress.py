"""A progress bar that shows only when the work takes long."""

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Step = TypeVar("Step")

PATIENCE = 2.0
"""Seconds without a bar."""


def track_late(
    steps: Iterable[Step], description: str | Callable[[Step], str], total: int | None = None
) -> Iterator[Step]:
    """Yield the steps, with a progress bar on a terminal's standard error once they take longer than two seconds.

    Args:
        steps: The steps.
        description: What stands before the bar, perhaps told by the step.
        total: Number of steps, where they do not tell it themselves.
    """
    console = Console(stderr=True)
    start = time.monotonic()
    total = len(steps) if isinstance(steps, Sized) else total
    words_of_task = TextColumn("{task.description}", markup=False)  # names in users' files are no markup
    columns = (words_of_task, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=total, visible=False)
        for done, step in enumerate(steps):
            words = description if isinstance(description, str) else description(step)
            late = time.monotonic() - start > PATIENCE
            progress.update(task, description=words, completed=done, visible=late, refresh=True)
            yield step
