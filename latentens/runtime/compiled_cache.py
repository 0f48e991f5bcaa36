"""Compiled programs kept in a folder, so that a later process need not compile them again.

The command keeps them in the user's cache folder; code that imports the package has to ask for it. JAX writes one file
per program, named by all that the program depends on, and compiles anew, with a warning, where a file cannot be read,
such as one that another process is writing. The files that were not used for longest are removed, once per process, if
all are larger than a bound. JAX's own bound, `jax_compilation_cache_max_size`, is not used: in JAX 0.10 it looks at all
files under a lock whenever one is written (13 ms for each thousand of them, and small programs are many), needs the
package filelock, and fails in a folder that was filled without it.
"""

import os
import sys
from pathlib import Path

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
