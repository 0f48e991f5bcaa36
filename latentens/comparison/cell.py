"""One cell of a comparison: one method on one data set with one key."""

import hashlib
import inspect
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jaxtyping import UInt32

from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.evaluation.intervals import intervals
from latentens.evaluation.scores import evaluate
from latentens.methods.base import Method, Posterior

Numbers = Mapping[str, float]

MEMORY_INTERVAL = 0.005
"""Seconds between two looks at the memory that a fit takes."""


@dataclass(frozen=True, eq=False)
class Cell:
    """What is to be done; it can be sent to another process.

    Attributes:
        dataset: The data set.
        exact: The exact posterior of its labels, where known.
        name: What the method is called in this comparison.
        method: The method.
        repetition: Number of the repetition.
        key_data: Data of the random key.
        resamples: Bootstrap samples behind the intervals of the scores.
    """

    dataset: Dataset
    exact: Posterior | None
    name: str
    method: Method
    repetition: int
    key_data: UInt32[np.ndarray, " word"]
    resamples: int

    @property
    def address(self) -> tuple[str, int, str]:
        """Name of the data set, repetition, and name of the method."""
        return self.dataset.name, self.repetition, self.name

    def fingerprint(self) -> str:
        """Equal for equal work: data, truth, settings, code of the user's own classes, key and version."""
        votes = self.dataset.votes
        storage = votes.storage if isinstance(votes.storage, np.ndarray) else tuple(votes.storage)
        parts: tuple[Any, ...] = (storage, votes.shape, votes.num_classes, self.dataset.labels, self.exact)
        parts += (self.method, self.name, self.repetition, self.key_data, self.resamples, version("latentens"))
        digest = hashlib.sha256()
        for part in _identity(parts):
            digest.update(part)
        return digest.hexdigest()[:24]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a cell: a fit with its scores, or the error that it ended in.

    Attributes:
        settings: The method with every setting, as text.
        seconds: Time of the fit.
        peak_memory: Most bytes that the process held during the fit, beyond those that it held before.
        error: What went wrong, or nothing.
        label_probs: Estimated posterior of the labels.
        params: Estimated parameters.
        diagnostics: How the fit went, as JSON.
        draws: Posterior draws, if any.
        sample_stats: The sampler's statistics, if any.
        scores: Scores by name.
        intervals: Bootstrap intervals of the scores.
    """

    settings: str
    seconds: float
    peak_memory: float
    error: str = ""
    label_probs: Posterior | None = None
    params: Mapping[str, np.ndarray] = field(default_factory=dict)
    diagnostics: str = "{}"
    draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)
    scores: Numbers = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def run(cell: Cell) -> Outcome:
    """Fit and score; an error of the method is recorded, not raised."""
    key = jax.random.wrap_key_data(jnp.asarray(cell.key_data))
    start = time.perf_counter()
    with _watched_memory() as peak_memory:
        try:
            fit, error = cell.method.fit(cell.dataset.votes, key=key), ""
        except Exception as caught:  # whatever a user's method does, the other cells go on
            fit, error = None, str(caught) if isinstance(caught, LatentensError) else repr(caught)
    seconds = time.perf_counter() - start
    if fit is None:
        return Outcome(repr(cell.method), seconds, peak_memory(), error)
    told_apart = ("sample_stats", "seconds")
    diagnostics = {name: value for name, value in fit.diagnostics.items() if name not in told_apart}
    return Outcome(
        repr(cell.method),
        seconds,
        peak_memory(),
        label_probs=fit.label_probs,
        params={name: np.asarray(value) for name, value in fit.params.items()},
        diagnostics=json.dumps(diagnostics, default=_plain),
        draws=fit.draws or {},
        sample_stats=fit.diagnostics.get("sample_stats", {}),
        **score(cell.dataset, fit.label_probs, cell.exact, cell.resamples, key=key),
    )


def score(
    dataset: Dataset, probs: Posterior, exact: Posterior | None, resamples: int, *, key: jax.Array
) -> dict[str, Any]:
    """The scores of a posterior and their intervals, by the names of `Outcome`."""
    found = evaluate(dataset.labels, probs, exact)
    return {
        "scores": found,
        "intervals": intervals(dataset.labels, probs, exact, key=key, resamples=resamples),
    }


def describe(method: Any) -> str:
    """A short name: the class, and whatever differs from its defaults."""
    if not is_dataclass(method) or isinstance(method, type):
        return repr(method)
    changed = []
    for setting in fields(method):
        value = getattr(method, setting.name)
        default = setting.default_factory() if callable(setting.default_factory) else setting.default
        if setting.repr and value != default:
            changed.append(describe(value) if is_dataclass(value) else f"{setting.name}={value!r}")
    return type(method).__name__ + (f"({', '.join(changed)})" if changed else "")


def _identity(value: Any) -> Iterator[bytes | memoryview]:
    """Bytes that tell a value from others, the source of functions and of classes from outside the package included."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).data
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _identity(part)
        yield f"({len(value)})".encode()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        if not type(value).__module__.startswith("latentens."):
            yield _source(type(value))
        for setting in fields(value):
            yield setting.name.encode()
            yield from _identity(getattr(value, setting.name))
    else:
        yield _source(value) if inspect.isfunction(value) else repr(value).encode()


def _source(code: Callable[..., Any]) -> bytes:
    try:
        return inspect.getsource(code).encode()
    except (OSError, TypeError):  # typed at a prompt
        return code.__qualname__.encode()


def _plain(value: Any) -> Any:
    """Diagnostics as JSON can hold them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | jax.Array) else repr(value)


@contextmanager
def _watched_memory() -> Iterator[Callable[[], float]]:
    """Watch the memory of this process from a thread; the result tells by how much it rose at most."""
    process = psutil.Process()
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(MEMORY_INTERVAL):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: float(most - before)
    finally:
        done.set()
        watcher.join()
