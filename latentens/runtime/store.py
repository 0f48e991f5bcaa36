"""Finished work in a folder, so that an interrupted run resumes where it stopped.

Each piece of work has a file of its own, named by the fingerprint of all that its result depends on: data, settings,
the user's code, the random key and this package's own source. A file carries that key and a checksum of its content; a
file that is damaged, or that holds other work than its name says, is set aside and its work is done again. Files are
NumPy archives without pickle: reading one executes nothing.
"""

import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from latentens.errors import LatentensError, LatentensWarning
from latentens.runtime.code_content import package_source
from latentens.runtime.fingerprint import fingerprint

SUFFIX = ".npz"
SET_ASIDE = ".damaged"
PREFIX = "array/"


class Record(NamedTuple):
    """A result: what JSON can hold, and arrays by name."""

    about: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = {}


class Store:
    """Finished work in a folder; without a folder nothing is kept and everything is done anew.

    Attributes:
        folder: The folder, made if need be; one folder can serve any number of runs of any kind.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=self.folder).close()
            except OSError as error:
                raise LatentensError(
                    f"finished work cannot be kept in {self.folder} ({error.strerror}); name another folder"
                ) from None

    def key(self, *content: Any) -> str:
        """The name of the work whose result depends on this content; `fingerprint` says what that may be."""
        return "" if self.folder is None else fingerprint(package_source(), *content)

    def get(self, key: str) -> Record | None:
        """A finished piece of work, or None where there is none that can be believed."""
        if self.folder is None or not (path := self._path(key)).is_file():
            return None
        try:
            return _read(path, key)
        except Exception as error:  # whatever a damaged file makes its reader do
            self._set_aside(path, error)
            return None

    def put(self, key: str, record: Record) -> None:
        """Keep a finished piece of work; an interruption leaves all of its file or nothing."""
        if self.folder is None:
            return
        try:
            part = self.folder / f"{key}.{uuid4().hex}.part"
            try:
                _write(part, key, record)
                part.replace(self._path(key))
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"a finished piece of work could not be kept in {self.folder} ({error.strerror}); the run continues, "
                "but would have to repeat it after an interruption",
                LatentensWarning,
                stacklevel=2,
            )

    def recall(self, key: str, work: Callable[[], Record]) -> Record:
        """A finished piece of work; where there is none, do it and keep it."""
        found = self.get(key)
        if found is None:
            found = work()
            self.put(key, found)
        return found

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}{SUFFIX}"

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.with_name(path.name + SET_ASIDE)
        try:
            path.replace(aside)
            where = f"it is now called {aside.name}"
        except OSError:
            where = "it could not be renamed"
        warnings.warn(
            f"{path} cannot be used ({error}): {where}, and its work is done again", LatentensWarning, stacklevel=4
        )


def _write(path: Path, key: str, record: Record) -> None:
    about = json.dumps(record.about)
    arrays = {name: np.asarray(array) for name, array in record.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise LatentensError(f"{name} holds Python objects and not numbers or text, and cannot be kept")
    content: dict[str, Any] = {PREFIX + name: array for name, array in arrays.items()}
    content |= {"about": np.frombuffer(about.encode(), np.uint8), "key": key, "checksum": _checksum(key, about, arrays)}
    with path.open("wb") as file:
        np.savez(file, **content)


def _read(path: Path, key: str) -> Record:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        about, written_key, checksum = (archive[name] for name in ("about", "key", "checksum"))
        names = [name.removeprefix(PREFIX) for name in archive.files if name.startswith(PREFIX)]
        arrays = {name: archive[PREFIX + name] for name in names}
    text = about.tobytes().decode()
    if str(checksum) != _checksum(str(written_key), text, arrays):
        raise ValueError("its content does not agree with its checksum")
    if str(written_key) != key:
        raise ValueError("it holds other work than its name says")
    return Record(json.loads(text), arrays)


def _checksum(key: str, about: str, arrays: Mapping[str, np.ndarray]) -> str:
    return fingerprint(key, about, dict(sorted(arrays.items())))
