"""Where results go: looked at before the work starts, written whole or not at all, and never lost at the end."""

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from latentens.errors import LatentensError, LatentensWarning


def check_file(out: Path) -> None:
    """Refuse a CSV file that could not be written."""
    if out.suffix != ".csv":
        raise LatentensError(f"{out} does not end in .csv")
    if out.is_dir():
        raise LatentensError(f"{out} is a folder; name a file in it, such as {out / 'result.csv'}")
    if out.exists() and not os.access(out, os.W_OK):
        raise LatentensError(f"{out} must not be written; name another file")
    check_folder(out.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or in which nothing could be written; nothing is left behind."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise LatentensError(f"{_as_typed(existing)} is a file, where a folder is needed; name another")
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise LatentensError(f"nothing can be written in {folder} ({error.strerror}); name another place") from None


def write_whole(out: Path, write: Callable[[Path], object]) -> Path:
    """Write a file under another name first; if its place fails after all, write it in the temporary folder.

    Args:
        out: Where the file should be.
        write: Writes it to a path.

    Returns:
        Where it is.
    """
    part = out.with_name(f"{out.name}.{uuid4().hex}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(out)
    except (OSError, RuntimeError) as error:  # HDF5 has errors of its own for a full disk
        _remove(part)
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        saved = Path(tempfile.mkdtemp(prefix="latentens-")) / out.name
        try:
            write(saved)
        except (OSError, RuntimeError):
            raise LatentensError(f"neither {out} nor {saved} can be written ({reason}); make room and repeat") from None
        warnings.warn(f"{out} cannot be written ({reason}); the result is in {saved}", LatentensWarning, stacklevel=2)
        return saved
    return out


def _as_typed(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _remove(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError:  # a folder that has gone has nothing left to remove
        return
