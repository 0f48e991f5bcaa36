"""Compiled programs are let go before there are more than the system can hold in one process.

Each compiled program takes a few mappings of memory, of which Linux allows a process some tens of thousands; beyond
that the compiler ends the process. A long comparison with groups found anew in each set would get there.
"""

import time
from pathlib import Path

import jax

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
