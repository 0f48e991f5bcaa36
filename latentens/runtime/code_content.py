"""What functions, classes and modules consist of, so that changed code is told from unchanged code.

Code of the user's counts by its bytecode, its constants, what its closure holds, its defaults, and the globals that it
uses, and so on through whatever it calls; a module that it uses counts by its source file. Code of libraries counts by
its name and the library's version. Code of this package counts by its name: `package_source` tells its versions apart.
"""

import dis
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

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
