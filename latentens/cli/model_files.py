"""Models and methods from a user's own Python file."""

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from latentens.errors import LatentensError
from latentens.programs.faults import in_words, last_line


def from_file(path: str, name: str) -> Any:
    """What a file calls `name`."""
    if not Path(path).is_file() or Path(path).suffix != ".py":
        raise LatentensError(f"{path} is not a Python file")
    module = _load(path, Path(path).stat().st_mtime_ns)
    if not hasattr(module, name):
        raise LatentensError(f"{path} has no model or program {name!r}")
    return getattr(module, name)


@lru_cache(maxsize=256)
def _load(path: str, _: int) -> ModuleType:
    """Run a file; its whole path names the module, so that a file `json.py` does not replace the module `json`."""
    spec = importlib.util.spec_from_file_location(str(Path(path).resolve()), path)
    assert spec is not None, "the path ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else last_line(str(spec.origin), error)
        words = error.msg if isinstance(error, SyntaxError) else in_words(error)
        raise LatentensError(f"{path}{f', line {line}' if line else ''}: {words}") from error
    return module
