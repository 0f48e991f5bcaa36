"""Threads that can be stopped, one budget of cores for nested pools, one BLAS thread, and a time limit."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from latentens.errors import LimitError
from latentens.runtime.limits import TIME_VARIABLE, time_limit
from latentens.runtime.progress import track_late


def available_cores() -> int:
    """The number of cores this process may use, by its affinity, its control group and LOKY_MAX_CPU_COUNT."""
    return joblib.cpu_count()


class _Blas:
    """The limit on the threads of BLAS, which holds for the whole process: it is set once and lifted by the last user.

    `threadpool_limits` alone would not do: of two threads that overlap, the last one to leave would restore the limit
    that the first had set.
    """

    lock, users, num_modules = threading.Lock(), 0, 0
    controller: Any = None
    limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread, as a context or as the decorator `@one_blas_thread()`.

    The threads of BLAS wait for each other by spinning: on small products, on a busy machine or beside Python threads
    that takes many times longer than the product itself. Every fit, prediction and score runs under this limit; larger
    work is divided among Python threads (starts, blocks of rows) or compiled by XLA. OpenBLAS has one limit for the
    whole process and obeys the first thread that sets it, so it is set where threads are started, not inside them.
    """
    with _Blas.lock:
        _Blas.users += 1
        if _Blas.users == 1:
            if _Blas.num_modules != len(sys.modules):  # only an import loads a library, and to search takes long
                _Blas.controller, _Blas.num_modules = ThreadpoolController(), len(sys.modules)
            _Blas.limits = _Blas.controller.limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.users -= 1
            if _Blas.users == 0:
                _Blas.limits.restore_original_limits()


Part = TypeVar("Part")
Result = TypeVar("Result")


class _Thread(threading.local):
    """State of a thread that was started here: its signals to stop, its deadline and its share of the cores."""

    stops: tuple[threading.Event, ...] = ()
    deadline: "_Deadline | None" = None
    share: int | None = None


_thread = _Thread()


class Stopped(BaseException):
    """Raised inside a thread whose result is no longer needed."""


class _Deadline(NamedTuple):
    """When some work must have ended, and the message otherwise."""

    at: float
    message: str


@contextmanager
def time_limited(purpose: str) -> Iterator[None]:
    """Limit the work inside to the seconds of LATENTENS_SECONDS; a limit that holds already is not extended.

    Args:
        purpose: The work, as the subject of a sentence.
    """
    outer, seconds = _thread.deadline, time_limit()
    if outer is None and seconds < float("inf"):
        message = f"{purpose} did not finish within the limit of {seconds:g} seconds; raise it by {TIME_VARIABLE}"
        _thread.deadline = _Deadline(time.monotonic() + seconds, message)
    try:
        yield
    finally:
        _thread.deadline = outer


def in_threads(
    run: Callable[[Part], Result], parts: Sequence[Part], *, workers: int | None = None, description: str = ""
) -> list[Result]:
    """Run a function on each part, as `completed` does; results are in the order of the parts.

    Args:
        run: The function.
        parts: The parts.
        workers: Number of threads, by default the number of cores.
        description: Text of a progress bar; none by default.
    """
    finished = completed(run, parts, workers=workers)
    found = dict(track_late(finished, description, total=len(parts)) if description else finished)
    return [found[number] for number in range(len(parts))]


def completed(
    run: Callable[[Part], Result], parts: Sequence[Part], *, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Run a function on each part, several at a time; long runs call `stop_if_asked` between their steps.

    Without that, an interrupt such as Ctrl-C would wait for all parts to end. The function may call this again and then
    has its share of the cores. A result must not depend on the number of threads.

    Args:
        run: The function.
        parts: The parts.
        workers: Number of threads, by default the number of cores; within another thread, at most its share.

    Yields:
        The number of each part with its result, as soon as it is available.
    """
    stop = threading.Event()
    around, deadline, own = _thread.stops, _thread.deadline, _thread.share
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
    """End this thread if its result is no longer needed, and the work if its time is up; else do nothing."""
    if any(stop.is_set() for stop in _thread.stops):
        raise Stopped
    if _thread.deadline is not None and time.monotonic() > _thread.deadline.at:
        raise LimitError(_thread.deadline.message)
