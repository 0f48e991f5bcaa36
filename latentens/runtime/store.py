"""Finished work on disk, keyed by the content of data, settings and code."""

import copyreg
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import jax
import jax.numpy as jnp
import joblib
import numpy as np

from latentens.errors import LatentensError, LatentensWarning

PACKAGE = "latentens"
WITHOUT_INFLUENCE = ("reporting", "cli")
"""Folders of this package that no result depends on."""

LIBRARIES = ("jax", "jaxlib", "numpy", "numpyro", "optax", "scikit-learn", "scipy")
"""Libraries whose version a result may depend on."""

PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(*content: Any) -> str:
    """A hexadecimal name for content, the same in every process.

    Args:
        content: Arrays, random keys, numbers, text, containers, dataclasses, functions, classes and objects that can
            be pickled. Functions and classes of the user's own count with the text of their file and with the global
            names that they use; a module imported inside a function counts only if it is loaded already.
    """
    try:
        return joblib.hash(_plain(content, ()))
    except LatentensError:
        raise
    except Exception as error:  # each kind of object refuses to be pickled in its own way
        raise LatentensError(
            f"settings or data cannot be hashed by content ({error}): remove the object, or run without a cache folder"
        ) from None


def _plain(value: Any, around: tuple[int, ...]) -> Any:
    """Content as tuples of plain values and arrays, nothing shared, for `joblib.hash`.

    The hash of the objects themselves would depend on names of functions and classes instead of their code, on whether
    equal objects are shared or copies, and on cached values.

    Args:
        value: The content.
        around: Identities of the objects that hold it; one of them again counts by its distance.
    """
    if type(value) in PLAIN:
        return value
    if id(value) in around:
        return "cycle", len(around) - around.index(id(value))
    around = (*around, id(value))
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return "key", str(jax.random.key_impl(value)), np.asarray(jax.random.key_data(value))
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value, order="C")
        if array.dtype.hasobject or array.dtype.kind == "T":
            return "objects", array.shape, *(_plain(part, around) for part in array.ravel().tolist())
        return "array", str(array.dtype.descr), array.shape, array.reshape(-1).view(np.uint8) if array.size else b""
    if type(value) in (set, frozenset):
        return type(value).__name__, *sorted(joblib.hash(_plain(part, around)) for part in value)
    parts = _parts(value)
    return type(value).__name__, *((_plain(name, around), _plain(part, around)) for name, part in parts)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """The named parts of an object."""
    if isinstance(value, tuple | list):
        yield from enumerate((*value, *([] if type(value) in (tuple, list) else [type(value)])))
    elif type(value) in (dict, types.MappingProxyType):
        yield from value.items()
    elif isinstance(value, types.MethodType | types.BuiltinMethodType) and value.__self__ is not None:
        yield value.__name__, value.__self__
        yield "function", getattr(value, "__func__", None)
    elif isinstance(value, property | cached_property):
        yield from ((name, getattr(value, name, None)) for name in ("fget", "fset", "func"))
    elif hasattr(value, "__wrapped__") and not isinstance(value, type | types.FunctionType):  # compiled, cached, …
        yield "wrapped", value.__wrapped__
    elif isinstance(value, types.CodeType):
        yield value.co_code, (value.co_names, value.co_consts)
    elif isinstance(value, types.ModuleType):
        yield from _module_parts(value.__name__)
    elif callable(value) and hasattr(value, "__qualname__"):
        yield from _code_parts(value)
    elif is_dataclass(value):
        yield "class", type(value)
        yield from ((setting.name, getattr(value, setting.name)) for setting in fields(value))
    else:  # what `pickle` would rebuild it from
        yield "class", type(value)
        rebuild = copyreg.dispatch_table.get(type(value))
        rebuilt = rebuild(value) if rebuild else value.__reduce_ex__(4)
        if isinstance(rebuilt, str):  # a name, such as that of a function of NumPy
            yield rebuilt, getattr(value, "__module__", None)
        else:
            yield "content", [[*part] if isinstance(part, Iterator) else part for part in rebuilt]


def _code_parts(code: Any) -> Iterator[tuple[str, Any]]:
    """A function or class: its name, the text or version it comes from, and what it refers to."""
    version, own = _source(code.__module__)
    yield code.__qualname__, (code.__module__, version)
    if isinstance(code, types.FunctionType):
        if own or "<" in code.__qualname__:  # the user's, a lambda, or made in a call
            yield "code", code.__code__
            yield "defaults", (code.__defaults__, code.__kwdefaults__)
            yield "closure", [cell.cell_contents for cell in code.__closure__ or () if cell != types.CellType()]
        if own:
            names = sorted(_names(code.__code__))
            yield "globals", {name: code.__globals__[name] for name in names if name in code.__globals__}
            yield "imported", [sys.modules[name] for name in names if name in sys.modules and _source(name)[1]]
    elif own:
        yield "bases", code.__bases__
        for name, part in vars(code).items():
            runs = isinstance(part, types.FunctionType) and not name.startswith("__annotate")  # lazy ones, Python 3.14
            if runs or not name.startswith(("__", "_abc_")):
                yield name, part


def _names(code: types.CodeType) -> set[str]:
    """The names that code refers to, functions inside it included."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _module_parts(name: str) -> Iterator[tuple[str, Any]]:
    """A module: its text or version, and those of the user's modules that it uses in turn."""
    version, own = _source(name)
    yield name, version
    used = {str(getattr(value, "__module__", "")) for value in vars(sys.modules[name]).values()} if own else set()
    for other in sorted(used - {name}):
        if other in sys.modules and _source(other)[1]:
            yield other, sys.modules[other]


def _source(module: str | None) -> tuple[str, bool]:
    """The text of a user's module or the version of a library, and whether it is the user's."""
    module = module or "__main__"
    root = module.partition(".")[0]
    if root == PACKAGE:
        return "", False  # `package_source` counts for all of it
    path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    installed = root in sys.stdlib_module_names or {"site-packages", "dist-packages"} & {*path.parts}
    if installed and root != "__main__":
        return str(getattr(sys.modules.get(root), "__version__", sys.version)), False
    return path.read_text(encoding="utf-8") if path.is_file() else "", True


@lru_cache(maxsize=1)
def package_source() -> str:
    """A digest of the source of this package and of the versions of the libraries it computes with."""
    content = [f"{library} {importlib.metadata.version(library)}" for library in LIBRARIES]
    for name in (PACKAGE, f"{PACKAGE}.models"):
        spec = importlib.util.find_spec(name)
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            paths = [path for path in sorted(folder.rglob("*.py")) if path.parent.name not in WITHOUT_INFLUENCE]
            content += [
                f"{name}/{path.relative_to(folder).as_posix()}\n{path.read_text(encoding='utf-8')}" for path in paths
            ]
    return joblib.hash(content)


class Record(NamedTuple):
    """A result: values that JSON can hold, and arrays by name."""

    about: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = {}


class Store:
    """Finished work in a folder; without a folder nothing is kept.

    Attributes:
        folder: The folder, created if necessary; one folder can serve any number of runs of any kind.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=self.folder).close()
            except OSError as error:
                raise LatentensError(
                    f"results cannot be saved in {self.folder} ({error.strerror}); choose another folder"
                ) from None

    def key(self, *content: Any) -> str:
        """The name of work whose result depends on this content (see `fingerprint`)."""
        return "" if self.folder is None else fingerprint(package_source(), *content)

    def get(self, key: str) -> Record | None:
        """A finished piece of work, or None; a damaged file is set aside with a warning."""
        if self.folder is None or not (path := self.folder / f"{key}.npz").is_file():
            return None
        try:
            return _read(path, key)
        except Exception as error:  # a damaged file can raise almost anything in its reader
            aside = path.with_name(f"{path.name}.damaged")
            try:
                path.replace(aside)
                where = f"it was renamed to {aside.name}"
            except OSError:
                where = "it could not be renamed"
            message = f"{path} cannot be used ({error}): {where}, and its result is computed again"
            warnings.warn(message, LatentensWarning, stacklevel=3)
            return None

    def put(self, key: str, record: Record) -> None:
        """Keep a finished piece of work; an interruption leaves the whole file or none."""
        if self.folder is None:
            return
        try:
            with written_whole(self.folder / f"{key}.npz") as part:
                _write(part, key, record)
        except OSError as error:
            warnings.warn(
                f"a result could not be saved in {self.folder} ({error.strerror}): the run continues, but would "
                "compute it again after an interruption",
                LatentensWarning,
                stacklevel=2,
            )

    def recall(self, key: str, work: Callable[[], Record]) -> Record:
        """A finished piece of work; if there is none, do it and keep it."""
        found = self.get(key)
        if found is None:
            found = work()
            self.put(key, found)
        return found


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A name to write a file under until it is complete: an interruption leaves the whole file or none."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write(path: Path, key: str, record: Record) -> None:
    arrays = {name: np.asarray(array) for name, array in record.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise LatentensError(f"{name} contains Python objects instead of numbers or text, and cannot be saved")
    content: dict[str, Any] = {f"array/{name}": array for name, array in arrays.items()}
    with path.open("wb") as file:
        np.savez(file, about=np.frombuffer(json.dumps(record.about).encode(), np.uint8), key=key, **content)


def _read(path: Path, key: str) -> Record:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if damaged := archive.zip.testzip():
            raise ValueError(f"{damaged} in it does not agree with its checksum")
        if str(archive["key"]) != key:
            raise ValueError("it holds the result of another computation")
        arrays = {name.removeprefix("array/"): archive[name] for name in archive.files if name.startswith("array/")}
        return Record(json.loads(archive["about"].tobytes()), arrays)
