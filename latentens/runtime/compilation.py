"""Compiled programs: quick compilation of programs that run once, and the memory mappings that programs hold."""

import time
from functools import partial
from pathlib import Path

import jax

compile_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""`jax.jit` in half or a third of the time, for programs that then take about twice as long; not inside of others."""

ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}
"""Compiler options by which sums have the same order for any number of cores."""

_last_count = -float("inf")


def release_compiled(
    *,
    mappings: Path = Path("/proc/self/maps"),
    limit: Path = Path("/proc/sys/vm/max_map_count"),
    full: float = 0.6,
    every: float = 5.0,
) -> None:
    """Drop compiled programs if more of them might exceed the system's limit on mappings and end the process.

    Args:
        mappings: The system's list of mappings, one per line; there is none outside of Linux.
        limit: The file with their largest number.
        full: Programs are dropped when this share of the mappings is taken.
        every: Mappings are counted at most once in this many seconds.
    """
    global _last_count
    if (now := time.monotonic()) - _last_count < every:
        return
    _last_count = now
    try:
        with mappings.open("rb") as lines:
            taken = sum(1 for _ in lines)
        allowed = int(limit.read_text())
    except OSError:
        return
    if taken > full * allowed:
        jax.clear_caches()
