"""Compiled programs in a cache folder, so that a later process need not compile them again.

The command keeps them in the user's cache folder; code that imports the package has to ask for it. JAX writes one file
per program and compiles again, with a warning, if a file cannot be read, such as one that another process is writing.
Once per process the least recently used files are removed if the folder is too large. JAX's own limit,
`jax_compilation_cache_max_size`, is not used: in JAX 0.10 it reads the folder under a lock whenever a file is written
(13 ms per thousand files, and small programs are many), needs the package filelock, and fails in a folder that was
filled without it.
"""

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "LATENTENS_CACHE"
"""The variable with the folder of compiled programs; `off` keeps none."""

OFF = "off"


def user_folder() -> Path:
    """The user's folder for compiled programs, made when something is kept in it."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "latentens" / "compiled"


def keep_compiled(folder: str | Path | None = None, *, largest: int = 2**29) -> None:
    """Keep compiled programs in a folder.

    Args:
        folder: The folder; by default that of the variable LATENTENS_CACHE, else the one JAX is configured with, else
            one in the user's cache folder. `off` keeps nothing.
        largest: Bytes that the folder may have when a process begins to use it.
    """
    named = folder or os.environ.get(CACHE_VARIABLE)
    jax = sys.modules.get("jax")  # which need not be imported for the command's help
    given = jax.config.jax_compilation_cache_dir if jax else os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if str(named) == OFF or (not named and given):
        return
    chosen = Path(named) if named else user_folder()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError:
        if named:
            raise
        return  # a user without a folder to write to compiles every time
    remove_oldest(chosen, largest)
    settings = {
        "jax_compilation_cache_dir": str(chosen),
        "jax_persistent_cache_min_compile_time_secs": 0.0,  # the many small programs add up
    }
    for name, value in settings.items():
        if jax:
            jax.config.update(name, value)
        else:
            os.environ[name.upper()] = str(value)


def remove_oldest(folder: Path, largest: int) -> None:
    """Remove the least recently used files until the others have at most this many bytes."""
    try:
        stats = {path: path.stat() for path in folder.iterdir() if path.is_file()}
    except FileNotFoundError:  # another process is removing files
        return
    total = sum(stat.st_size for stat in stats.values())
    for path, stat in sorted(stats.items(), key=lambda found: max(found[1].st_atime, found[1].st_mtime)):
        if total <= largest:
            return
        path.unlink(missing_ok=True)
        total -= stat.st_size
