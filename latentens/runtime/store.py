"""Finished work on disk, told apart by the content of data, settings and code."""

import dis
import hashlib
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
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np

from latentens.errors import LatentensError, LatentensWarning

Part = tuple[str, Any]

PACKAGE = "latentens"
WITHOUT_INFLUENCE = ("reporting", "cli")
"""Folders of this package that no result depends on."""

LIBRARIES = ("jax", "jaxlib", "numpy", "numpyro", "optax", "scikit-learn", "scipy")
"""Libraries whose version a result may depend on."""

CODE_FIELDS = (
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_exceptiontable",
)
NO_BEHAVIOUR = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__module__",
        "__doc__",
        "__abstractmethods__",
        "_abc_impl",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__orig_bases__",
        "__parameters__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__static_attributes__",
        "__firstlineno__",
    }
)
"""Attributes of a class that say nothing about what it does."""

GENERATED = "<string>"
"""The file name of functions that `dataclass` writes; a class's fields say what they do."""


@lru_cache(maxsize=1)
def package_source() -> str:
    """A digest of the source of this package and of the versions of the libraries it computes with."""
    digest = blake2b(digest_size=16)
    for name in (PACKAGE, f"{PACKAGE}.models"):
        spec = importlib.util.find_spec(name)
        folders = spec.submodule_search_locations if spec is not None and spec.submodule_search_locations else []
        for folder in map(Path, folders):
            for path in sorted(folder.rglob("*.py")):
                relative = path.relative_to(folder)
                if relative.parts[0] not in WITHOUT_INFLUENCE:
                    digest.update(f"{name}/{relative.as_posix()}".encode() + b"\0" + path.read_bytes() + b"\0")
    for library in LIBRARIES:
        digest.update(f"{library} {importlib.metadata.version(library)}\0".encode())
    return digest.hexdigest()


def function_content(function: types.FunctionType) -> Iterator[Part]:
    """The parts of a function; of one that a library makes in a call of its own, all but its globals."""
    owner = _owner(function.__module__)
    if owner != "user":
        yield from _named(function)
        if "<" not in function.__qualname__:  # neither local nor a lambda
            return
    yield "code", function.__code__
    yield "defaults", (function.__defaults__, function.__kwdefaults__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, "empty"
    yield "attributes", vars(function)
    if owner == "user":
        yield from _used(function.__code__, function.__globals__)


def library_content(found: Any) -> Iterator[Part] | None:
    """The name of something callable that a library has made, such as a function in compiled code."""
    home, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    named = isinstance(home, str) and isinstance(name, str) and "<" not in name
    return _named(found) if named and _owner(home) != "user" else None


def code_content(code: types.CodeType) -> Iterator[Part]:
    """What a piece of bytecode does; where it stands in which file does not count."""
    for name in CODE_FIELDS:
        yield name, getattr(code, name)


def class_content(found: type) -> Iterator[Part]:
    """The parts of a class."""
    if _owner(found.__module__) != "user":
        yield from _named(found)
        return
    yield "name", found.__qualname__
    yield "bases", found.__bases__
    if is_dataclass(found):
        yield "fields", [(field.name, field.default, field.default_factory) for field in fields(found)]
    for name, value in vars(found).items():
        generated = isinstance(value, types.FunctionType) and value.__code__.co_filename == GENERATED
        if name not in NO_BEHAVIOUR and not (generated and is_dataclass(found)):
            yield name, value


def module_content(name: str) -> Iterator[Part]:
    """A module: the source of the user's own, and of those that it uses in turn; the version of a library's."""
    yield "module", name
    if _owner(name) != "user":
        yield "version", _version(name)
        return
    path = _file(name)
    yield "source", Path(path).read_bytes() if path and Path(path).is_file() else None
    module = sys.modules.get(name)
    used = {_home(value) for value in vars(module).values()} if module else set()
    for other in sorted(used - {name, None}, key=str):
        if other in sys.modules and _owner(other) == "user":
            yield str(other), sys.modules[str(other)]


def _used(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[Part]:
    """The globals that a function's code uses, and the modules that it imports."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in namespace:
            yield step.argval, namespace[step.argval]
        elif step.opname == "IMPORT_NAME":
            yield step.argval, dict(module_content(step.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _used(constant, namespace)


def _home(value: Any) -> str | None:
    """The module that something in a module comes from."""
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else None


def _named(found: Any) -> Iterator[Part]:
    yield "module", found.__module__
    yield "name", found.__qualname__
    yield "version", _version(found.__module__)


@lru_cache(maxsize=4096)
def _owner(module: str | None) -> Literal["user", "library", "package"]:
    """Whose code a module is."""
    if module is None or module == "__main__":
        return "user"
    root = module.partition(".")[0]
    if root == PACKAGE:
        return "package"
    if root in sys.stdlib_module_names:
        return "library"
    path = _file(module) or _file(root)
    installed = path is not None and {"site-packages", "dist-packages"} & set(Path(path).parts)
    return "library" if installed else "user"


def _file(module: str) -> str | None:
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None


@lru_cache(maxsize=4096)
def _version(module: str) -> str:
    root = module.partition(".")[0]
    if root == PACKAGE:
        return ""
    if root in sys.stdlib_module_names:
        return ".".join(map(str, sys.version_info[:3]))
    try:
        return str(getattr(sys.modules.get(root), "__version__", None) or importlib.metadata.version(root))
    except importlib.metadata.PackageNotFoundError:
        return ""


PLAIN = (type(None), bool, int, float, complex, str, type(Ellipsis), type(NotImplemented))
DIGEST_BYTES = 16


def fingerprint(*content: Any) -> str:
    """A hexadecimal name for content.

    Args:
        content: Anything made of arrays, numbers, text, containers, dataclasses, functions, classes and objects that
            could be copied to another process.
    """
    return _Reader().digest(content).hex()


class _Reader:
    """Goes through content once; what it has met is kept, so that its identity is not taken over by another object."""

    def __init__(self) -> None:
        self.met: dict[int, tuple[Any, bytes]] = {}
        self.open: dict[int, int] = {}
        self.trail: list[str] = []

    def digest(self, value: Any) -> bytes:
        """The digest of a value; one that holds itself counts there by how far up it is."""
        if type(value) in PLAIN:
            return _joined(type(value).__name__, str(value).encode("utf-8", "surrogatepass"))
        if id(value) in self.met:
            return self.met[id(value)][1]
        if id(value) in self.open:
            return _joined("cycle", str(len(self.open) - self.open[id(value)]).encode())
        self.open[id(value)] = len(self.open)
        try:
            found = self._composite(value)
        finally:
            del self.open[id(value)]
        self.met[id(value)] = value, found
        return found

    def _composite(self, value: Any) -> bytes:
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self._array(value)
        if type(value) in (bytes, bytearray):
            return _joined("bytes", value)
        if type(value) in (tuple, list):
            return _joined(type(value).__name__, *map(self.digest, value))
        if type(value) in (set, frozenset):
            return _joined(type(value).__name__, *sorted(map(self.digest, value)))
        if type(value) in (dict, types.MappingProxyType):
            return _joined("dict", *(self._named(name, part) for name, part in value.items()))
        if (content := _code(value)) is not None:
            return _joined(type(value).__name__, *(self._named(name, part) for name, part in content))
        if is_dataclass(value):
            settings = ((setting.name, getattr(value, setting.name)) for setting in fields(value))
            return _joined("dataclass", self.digest(type(value)), *(self._named(*pair) for pair in settings))
        return self._rebuilt(value)

    def _array(self, value: Any) -> bytes:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return _joined("key", str(jax.random.key_impl(value)).encode(), self._array(jax.random.key_data(value)))
        array = np.asarray(value)
        shape = str(array.shape).encode()
        if array.dtype.hasobject or array.dtype.kind == "T":
            return _joined("objects", shape, *(self.digest(part) for part in array.ravel().tolist()))
        flat = np.ascontiguousarray(array).reshape(-1)
        content = flat.view(np.uint8) if array.dtype.itemsize else b""
        return _joined("array", str(array.dtype.descr).encode(), shape, content)

    def _rebuilt(self, value: Any) -> bytes:
        """An object of any other kind, by what `copy` and `pickle` would rebuild it from."""
        try:
            parts = value.__reduce_ex__(4)
        except Exception as error:  # each kind of object has its own way of refusing
            place = f" (in {' → '.join(self.trail)})" if self.trail else ""
            raise LatentensError(
                f"a {type(value).__name__}{place} cannot be told from another by its content ({error}); "
                "leave it out, or keep nothing"
            ) from None
        if isinstance(parts, str):
            return _joined("global", self.digest(type(value)), parts.encode())
        return _joined("object", *(self.digest(list(part) if isinstance(part, Iterator) else part) for part in parts))

    def _named(self, name: Any, value: Any) -> bytes:
        with self._at(name):
            return self.digest(name) + self.digest(value)

    @contextmanager
    def _at(self, name: Any) -> Iterator[None]:
        self.trail.append(str(name) if type(name) in PLAIN else type(name).__name__)
        yield
        self.trail.pop()


def _code(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The content of code in named parts; None for what is no code."""
    if isinstance(value, types.FunctionType):
        return function_content(value)
    if isinstance(value, types.CodeType):
        return code_content(value)
    if isinstance(value, types.ModuleType):
        return module_content(value.__name__)
    if isinstance(value, type):
        return class_content(value)
    if isinstance(value, types.MethodType | types.BuiltinMethodType) and value.__self__ is not None:
        return iter([("function", value.__name__), ("of", getattr(value, "__func__", None)), ("self", value.__self__)])
    if isinstance(value, classmethod | staticmethod):
        return iter([("function", value.__func__)])
    if isinstance(value, property):
        return iter([("get", value.fget), ("set", value.fset), ("delete", value.fdel)])
    if isinstance(value, cached_property):
        return iter([("function", value.func)])
    if callable(value) and callable(getattr(value, "__wrapped__", None)):  # compiled by JAX, cached, …
        return iter([("type", type(value).__name__), ("function", value.__wrapped__)])
    return library_content(value) if callable(value) else None


def _joined(kind: str, *parts: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in (kind.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


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
