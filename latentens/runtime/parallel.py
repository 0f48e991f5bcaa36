"""Threads that stop together: what interrupts the caller, or fails in one of them, ends them all at their next step.

So does a limit of time, in whatever thread the work is done. Threads within threads share the cores: each of n threads
may start a n-th of those that the thread around it had, and at least one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from latentens.errors import LimitError
from latentens.runtime.limits import TIME_VARIABLE, time_limit
from latentens.runtime.progress import track_late
from latentens.runtime.threads import available_cores, one_blas_thread

Part = TypeVar("Part")
Result = TypeVar("Result")

_thread = threading.local()


class Stopped(BaseException):
    """Raised inside a thread whose result nobody waits for any longer."""


class _Deadline(NamedTuple):
    """When some work must have ended, and what is said of it otherwise."""

    at: float
    words: str


@contextmanager
def time_limited(purpose: str) -> Iterator[None]:
    """Limit what goes on inside to the seconds of LATENTENS_SECONDS; a limit that holds already is not prolonged.

    Args:
        purpose: What goes on, as the subject of a sentence.
    """
    outer, seconds = _deadline(), time_limit()
    if outer is None and seconds < float("inf"):
        words = f"{purpose} has not ended within the limit of {seconds:g} seconds; raise it by {TIME_VARIABLE}"
        _thread.deadline = _Deadline(time.monotonic() + seconds, words)
    try:
        yield
    finally:
        _thread.deadline = outer


def in_threads(
    run: Callable[[Part], Result], parts: Sequence[Part], *, workers: int | None = None, description: str = ""
) -> list[Result]:
    """What `completed` yields, in the order of the parts.

    Args:
        run: What to do with a part.
        parts: The parts.
        workers: Number of threads, by default that of the cores.
        description: What a progress bar says; none by default.
    """
    finished = completed(run, parts, workers=workers)
    found = dict(track_late(finished, description, total=len(parts)) if description else finished)
    return [found[number] for number in range(len(parts))]


def completed(
    run: Callable[[Part], Result], parts: Sequence[Part], *, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Run something on each part, several at a time; long runs call `stop_if_asked` between their steps.

    Without that, an interrupt such as Ctrl-C would wait for all parts to be done. What is run may call this again, and
    has then its share of the cores. A result must not depend on the number of threads.

    Args:
        run: What to do with a part.
        parts: The parts.
        workers: Number of threads, by default that of the cores; within another thread, at most the share of that.

    Yields:
        The number of each part with its result, as soon as that is there.
    """
    stop = threading.Event()
    around, deadline, own = _stops(), _deadline(), _share()
    cores = own or available_cores()
    num_threads = max(1, min(workers or cores, own or len(parts), len(parts)))

    def watched(part: Part) -> Result:
        _thread.stops, _thread.deadline = (*around, stop), deadline
        _thread.share = max(1, cores // num_threads)
        return run(part)

    with one_blas_thread(), ThreadPoolExecutor(num_threads) as pool:
        try:
            numbers = {pool.submit(watched, part): number for number, part in enumerate(parts)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def stop_if_asked() -> None:
    """End this thread if its result is no longer wanted, and the work if its time is up; else do nothing."""
    if any(stop.is_set() for stop in _stops()):
        raise Stopped
    deadline = _deadline()
    if deadline is not None and time.monotonic() > deadline.at:
        raise LimitError(deadline.words)


def _stops() -> tuple[threading.Event, ...]:
    return getattr(_thread, "stops", ())


def _share() -> int | None:
    """How many threads this one may start; None if it was not started here, and all cores are its own."""
    return getattr(_thread, "share", None)


def _deadline() -> _Deadline | None:
    return getattr(_thread, "deadline", None)
