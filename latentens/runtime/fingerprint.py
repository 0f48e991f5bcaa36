"""Fingerprints of content: equal for equal content, and different whenever anything in it differs.

Arrays count by their type, shape and values, settings by their fields, other objects by what they would be rebuilt
from. Functions and classes of the user's count by their code (`latentens.runtime.code_content`). Nothing counts by its
`repr`, which elides arrays and says nothing about closures. What cannot be told apart by its content, such as a lock, a
generator or an open file, is refused.
"""

import hashlib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentens.errors import LatentensError
from latentens.runtime.code_content import (
    class_content,
    code_content,
    function_content,
    library_content,
    module_content,
)

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
