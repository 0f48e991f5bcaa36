"""Threads: how many this process may use, and one for the linear algebra of small products."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

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
