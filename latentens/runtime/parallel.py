"""Threads that stop together: what interrupts the caller, or fails in one of them, ends them all at their next step."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from latentens.runtime.progress import track_late
from latentens.runtime.threads import available_cores, one_blas_thread

Part = TypeVar("Part")
Result = TypeVar("Result")

_thread = threading.local()


class Stopped(BaseException):
    """Raised inside a thread whose result nobody waits for any longer."""


def in_threads(
    run: Callable[[Part], Result], parts: Sequence[Part], *, workers: int | None = None, description: str = ""
) -> list[Result]:
    """Run something on each part, several at a time; long runs call `stop_if_asked` between their steps.

    Without that, an interrupt such as Ctrl-C would wait for all parts to be done.

    Args:
        run: What to do with a part.
        parts: The parts.
        workers: Number of threads, by default that of the cores.
        description: What a progress bar says; none by default.
    """
    stop = threading.Event()
    around = _stops()

    def watched(part: Part) -> Result:
        _thread.stops = (*around, stop)
        return run(part)

    with one_blas_thread(), ThreadPoolExecutor(workers or available_cores()) as pool:
        try:
            futures = [pool.submit(watched, part) for part in parts]
            finished = as_completed(futures)
            for future in track_late(finished, description, total=len(futures)) if description else finished:
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def stop_if_asked() -> None:
    """End this thread if its result is no longer wanted; in any other thread, do nothing."""
    if any(stop.is_set() for stop in _stops()):
        raise Stopped


def _stops() -> tuple[threading.Event, ...]:
    return getattr(_thread, "stops", ())
