"""Compiled programs: quick compilation of what runs once, and the memory that they hold."""

import time
from functools import partial
from pathlib import Path

import jax

compile_quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""`jax.jit` in a half or a third of the time, for programs that then take about twice as long; not inside of others."""

ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}
"""Compiler options by which sums have one order, whatever the number of cores."""


MAPPINGS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")

FULL = 0.6
"""Compiled programs are let go when this share of the mappings is taken."""

SECONDS = 5.0
"""Mappings are counted no more often than this."""

_last_count = 0.0


def release_compiled() -> None:
    """Let compiled programs go if there are so many that more might end the process; they are compiled again."""
    global _last_count
    now = time.monotonic()
    if now - _last_count < SECONDS:
        return
    _last_count = now
    try:
        with MAPPINGS.open("rb") as lines:
            taken = sum(1 for _ in lines)
        allowed = int(LIMIT.read_text())
    except OSError:  # a system that does not tell
        return
    if taken > FULL * allowed:
        jax.clear_caches()
