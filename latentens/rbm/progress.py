"""A progress bar that shows only when the work takes long."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

Step = TypeVar("Step")

PATIENCE = 2.0
"""Seconds without a bar."""


def track_late(steps: Sequence[Step], description: str) -> Iterator[Step]:
    """Yield the steps, with a progress bar on a terminal's standard error once they take longer than two seconds."""
    console = Console(stderr=True)
    start = time.monotonic()
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=len(steps), visible=False)
        for done, step in enumerate(steps):
            progress.update(task, completed=done, visible=time.monotonic() - start > PATIENCE, refresh=True)
            yield step
