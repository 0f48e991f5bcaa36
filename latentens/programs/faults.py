"""What goes wrong inside a user's program, in one sentence with the file and the line."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
from numpyro import handlers
from numpyro.primitives import Messenger

from latentens.errors import ContractError, LatentensError
from latentens.programs.model import GenerativeModel
from latentens.programs.tracing import run_alone
from latentens.runtime.randomness import some_key

WORDS: tuple[tuple[type[Exception], str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "a Python `if`, `while`, `and` or `or` depends on a random value; use jnp.where, jnp.logical_and, …",
    ),
    (jax.errors.TracerArrayConversionError, "NumPy is given a random value; use jax.numpy"),
    (jax.errors.ConcretizationTypeError, "Python asks for the number behind a random value; use jax.numpy"),
    (jax.errors.TracerIntegerConversionError, "a random value is used as a Python index; use a jax.numpy array"),
)
"""Errors of JAX that come from Python code where code of JAX is needed."""


@contextmanager
def told_with_their_line(model: GenerativeModel) -> Iterator[None]:
    """Turn whatever a model's program raises into a `ContractError` that says where."""
    try:
        yield
    except LatentensError:
        raise
    except Exception as error:
        raise ContractError(f"{_running(model, error)}: {model}: {in_words(error)}") from error


def in_words(error: BaseException) -> str:
    """The first line of an error, and what to do about it where that is known."""
    first = str(error).strip().partition("\n")[0]
    for kind, words in WORDS:
        if isinstance(error, kind):
            return words
    if "truth value of an array" in first:
        return WORDS[0][1]
    if "ncompatible shapes" in first:
        return f"{first}; a distribution of several voters at a time ends in .to_event(1)"
    return f"{type(error).__name__}: {first}"


def last_line(file: str, error: BaseException) -> int | None:
    """The last line of a file that was running when an error arose."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def site_place(model: GenerativeModel, site: str) -> str:
    """The line of a program on which a site is sampled, or where the program begins."""
    lines = _SiteLines(model)

    def run(key: jax.Array) -> None:
        with run_alone(), lines, handlers.seed(rng_seed=key):
            model.program(1)

    jax.eval_shape(run, some_key())
    return lines.places.get(site, _beginning(model))


def improper(model: GenerativeModel, site: str) -> ContractError:
    """The error for a site whose probabilities are none."""
    return ContractError(
        f"{site_place(model, site)}: {model}: site {site!r} has probabilities outside 0 … 1, or shares that do not add "
        "up to 1; mend their formula, or give logits"
    )


class _SiteLines(Messenger):
    """Notes on which line of its program each site is sampled."""

    def __init__(self, model: GenerativeModel) -> None:
        self.places: dict[str, str] = {}
        self._code = _code(model)
        super().__init__()

    def process_message(self, msg: dict[str, Any]) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and self._code is not None:
            if frame.f_code.co_filename == self._code.co_filename:
                self.places[msg.get("name", "")] = _named(self._code.co_filename, frame.f_lineno)
                return
            frame = frame.f_back


def _running(model: GenerativeModel, error: BaseException) -> str:
    """The line of a program that raised an error, or where the program begins."""
    code = _code(model)
    line = code and last_line(code.co_filename, error)
    return _named(code.co_filename, line) if code and line else _beginning(model)


def _beginning(model: GenerativeModel) -> str:
    code = _code(model)
    return _named(code.co_filename, code.co_firstlineno) if code else type(model).__name__


def _code(model: GenerativeModel) -> CodeType | None:
    """The code of the program as its author wrote it."""
    program = getattr(model, "function", model.program)
    return getattr(getattr(program, "__func__", program), "__code__", None)


def _named(file: str, line: int) -> str:
    return f"{Path(file).name}, line {line}"
