"""One program at a time: NumPyro keeps its handlers in a single stack, which threads would mix up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()


@contextmanager
def run_alone() -> Iterator[None]:
    """Run a program under handlers while no other thread does; fits that run side by side meet here only."""
    with _lock:
        yield
