"""Compiled programs: quick compilation of programs that run once, and the memory mappings that programs hold."""

import time
from functools import partial
from pathlib import Path

import jax

compile_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""`jax.jit` in half or a third of the time, for programs that then take about twice as long; not inside of others."""

ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}
"""Compiler options by which sums have the same order for any number of cores."""


MAPPINGS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")

FULL = 0.6
"""Compiled programs are dropped when this share of the mappings is taken."""

SECONDS = 5.0
"""Mappings are counted at most this often."""

_last_count = 0.0


def release_compiled() -> None:
    """Drop compiled programs if more of them might exceed the system's limit on mappings and end the process."""
    global _last_count
    now = time.monotonic()
    if now - _last_count < SECONDS:
        return
    _last_count = now
    try:
        with MAPPINGS.open("rb") as lines:
            taken = sum(1 for _ in lines)
        allowed = int(LIMIT.read_text())
    except OSError:  # not Linux
        return
    if taken > FULL * allowed:
        jax.clear_caches()
