"""Compiled programs: quick compilation of what runs once, the memory they hold, and a folder of them on disk."""

import os
import sys
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


CACHE_VARIABLE = "LATENTENS_CACHE"
"""Names the folder in which compiled programs are kept; `off` keeps none."""

OFF = "off"

LARGEST = 2**29
"""Bytes that the folder may hold when a process begins to use it."""

SHORTEST = 0.0
"""Programs that compile in fewer seconds than this are not kept; the many small ones add up."""


def user_folder() -> Path:
    """The user's folder for compiled programs, made when something is kept in it."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "latentens" / "compiled"


def keep_compiled(folder: str | Path | None = None) -> None:
    """Keep compiled programs in a folder.

    Args:
        folder: The folder; by default what the variable LATENTENS_CACHE says, else the one that JAX has been told
            about, else one in the user's cache folder. `off` keeps nothing.
    """
    named = folder or os.environ.get(CACHE_VARIABLE)
    if str(named) == OFF or (not named and _of_jax()):
        return
    chosen = Path(named) if named else user_folder()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError:
        if named:
            raise
        return  # a user without a folder to write to compiles every time
    remove_oldest(chosen, LARGEST)
    _tell_jax(chosen)


def remove_oldest(folder: Path, largest: int) -> None:
    """Remove the files that were not used for longest until the others have at most so many bytes."""
    found = []
    for path in folder.iterdir():
        try:
            about = path.stat()
        except OSError:  # removed by another process
            continue
        if path.is_file():
            found.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= largest:
            return
        path.unlink(missing_ok=True)
        total -= size


def _of_jax() -> bool:
    """Whether JAX has a folder already."""
    if "jax" in sys.modules:
        return sys.modules["jax"].config.jax_compilation_cache_dir is not None
    return bool(os.environ.get("JAX_COMPILATION_CACHE_DIR"))


def _tell_jax(folder: Path) -> None:
    """By its configuration or, where it is not imported yet and need not be, by its variables."""
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": SHORTEST,
    }
    for name, value in settings.items():
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name, value)
        else:
            os.environ[name.upper()] = str(value)
