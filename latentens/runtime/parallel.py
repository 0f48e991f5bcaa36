"""Threads that can be stopped: one budget of cores for nested pools, BLAS bound to one thread, a time limit."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

from latentens.errors import LimitError
from latentens.runtime.limits import TIME_VARIABLE, time_limit
from latentens.runtime.progress import track_late

CORES_VARIABLE = "LOKY_MAX_CPU_COUNT"
"""Names the most cores to use, as joblib has it."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """The number of cores this process may use, by its affinity and by the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get(CORES_VARIABLE, "")
    bounds = [float(allowed), _quota(), float(given) if given.isdecimal() else math.inf]
    return max(1, math.ceil(min(bounds)))


def _quota() -> float:
    """Cores' worth of time that the control group allows, by either version of their files; endless if it is free."""
    try:
        unified = CONTROL_GROUPS / "cpu.max"
        if unified.is_file():
            quota, period = unified.read_text().split()
        else:
            quota, period = (
                (CONTROL_GROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        return float(quota) / float(period) if float(quota) > 0 else math.inf
    except (OSError, ValueError):  # no control groups, or "max"
        return math.inf


class _Bound:
    """The bound on BLAS's threads, one for the whole process: set by who comes first, lifted by who leaves last."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.limits: Any = None
        self.controller, self.num_modules = ThreadpoolController(), 0

    def enter(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                if self.num_modules != len(sys.modules):  # only an import loads a library, and to look takes long
                    self.controller, self.num_modules = ThreadpoolController(), len(sys.modules)
                self.limits = self.controller.limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.limits is not None:
                self.limits.restore_original_limits()
                self.limits = None


_bound = _Bound()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread, as a context or as the decorator `@one_blas_thread()`.

    The threads of BLAS wait for each other by spinning: on small products, on a busy machine or beside Python threads
    that takes many times longer than the product itself. Every fit, prediction and score runs under this bound; what
    is large enough for several cores is divided among Python threads (starts, blocks of rows) or compiled by XLA.
    OpenBLAS has one bound for the whole process and obeys the first thread that sets it, so bound BLAS where threads
    are started and not inside them.
    """
    _bound.enter()
    try:
        yield
    finally:
        _bound.leave()


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
