"""What a fit says about the votes themselves: the log-likelihood of every item, seen and unseen."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jaxtyping import Float, Int, UInt32

from latentens.checks import check_fit
from latentens.checks.held_out import held_out_log_likelihood, leave_one_out
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.methods.base import Fit, GoldCodes, Method, Posterior, fit_known, model_params
from latentens.methods.datatree import axis_names
from latentens.programs.parameters import to_point
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.store import Record, fingerprint
from latentens.scores.scores import evaluate, intervals
from latentens.votes import Votes

MOST_VALUES = 2**24
"""Draws are thinned so that at most this many log-likelihoods are kept."""


class Pointwise(NamedTuple):
    """The log-likelihood of every item's votes, labels and hidden units summed out.

    Attributes:
        log_likelihood: By the fit, at each draw; a point estimate counts as one draw of one chain.
        log_density: Of votes that the fit has not seen, or an estimate of it; None where there is none.
        by: How that was found.
    """

    log_likelihood: Float[np.ndarray, "chain draw item"] | None = None
    log_density: Float[np.ndarray, " item"] | None = None
    by: str = ""


NOTHING_SAID = Pointwise()
"""Of a method without a model of votes."""


def judge_pointwise(fit: Fit, method: Method, votes: Votes, *, key: jax.Array, folds: int) -> Pointwise:
    """What a fit and, if folds are asked for, fits to parts of the votes say about each item.

    A sampled fit is judged by leaving items out (PSIS-LOO). A point estimate is judged by as many folds as are asked
    for; without folds by AIC, its log-likelihood less the number of its parameters, which for a regular model is the
    expected log-likelihood of new items.

    Args:
        fit: The fit.
        method: What made it.
        votes: The votes.
        key: Random key of the folds.
        folds: Number of folds; 0 for none.
    """
    try:
        values = fit.log_likelihood(votes)
    except LatentensError:
        return NOTHING_SAID
    if fit.draws is not None:
        thin = -(-values.size // MOST_VALUES)
        return Pointwise(values[:, ::thin], leave_one_out(fit, votes).log_density, "leaving one item out")
    if folds:
        held_out = held_out_log_likelihood(method, votes, key=key, folds=folds)
        return Pointwise(values[None, None], held_out, f"{folds} folds")
    number = _num_parameters(fit)
    return Pointwise(values[None, None], None if number is None else values - number / len(values), "AIC")


def recorded_check(fit: Fit, votes: Votes, *, key: jax.Array) -> str:
    """What `check_fit` says, as JSON: the verdict, and the histogram of vote counts; nothing without a model."""
    if fit.model is None:
        return ""
    check = check_fit(fit, votes, key=key)
    histogram = check.statistics[0]
    return json.dumps(
        {
            "summary": check.summary,
            "p_value": check.p_value,
            "rejected": check.rejected,
            "p_values": {part.name: part.p_value for part in check.statistics},
            "cells": histogram.cells,
            **{name: getattr(histogram, name).tolist() for name in ("observed", "expected", "deviation")},
        }
    )


@double_precision
def _num_parameters(fit: Fit) -> int | None:
    model = fit.model
    if model is None:
        return None
    return sum(int(np.size(leaf)) for leaf in to_point(model, model_params(model, fit)).values())


GOLD_FOLDS = 5
"""Parts into which gold labels are split unless the user says otherwise."""


class HeldOut(NamedTuple):
    """What fits say about gold labels that they have not seen, one row for each gold label in the order of the items.

    Attributes:
        fold: The fold of each gold label.
        probs: Its posterior by the fit to the labels of the other folds.
    """

    fold: Int[np.ndarray, " known"]
    probs: Posterior

    def put_into(self, probs: Posterior, gold: GoldCodes) -> Posterior:
        """A posterior of all items in which those with a gold label have the one by a fit that has not seen it."""
        scored = np.array(probs)
        scored[gold >= 0] = self.probs
        return scored


def held_out(method: Method, votes: Votes, gold: GoldCodes, folds: int, key: jax.Array) -> HeldOut:
    """Predict every gold label by a fit to the votes and to the gold labels of the other folds.

    The votes of all items are seen by every fit. Fits have the key of the fit to all gold labels, so that a method
    for which these make no difference gives the same posterior in every fold.

    Args:
        method: The method.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
        folds: Number of folds, or fewer where there are fewer gold labels.
        key: Random key of the fits and of the folds.
    """
    fold = gold_fold(gold, folds, key)
    known = gold >= 0
    found = np.empty((int(known.sum()), votes.num_classes))
    for number in range(int(fold.max()) + 1):
        hidden = fold == number
        probs = fit_known(method, votes, key, np.where(hidden, -1, gold)).label_probs
        found[hidden[known]] = probs[hidden]
    return HeldOut(fold[known], found)


def gold_fold(gold: GoldCodes, folds: int, key: jax.Array) -> Int[np.ndarray, " item"]:
    """The fold of each gold label, −1 for items without one.

    Folds are of equal size, and so are the parts of each class in them, up to one label; which label is in which is
    drawn at random.
    """
    if folds < 2:
        raise LatentensError(f"gold labels are split into at least two folds, not {folds}")
    known = np.flatnonzero(gold >= 0)
    shuffled = numpy_generator(key).permutation(known)
    by_class = shuffled[np.argsort(gold[shuffled], kind="stable")]
    fold = np.full(len(gold), -1)
    fold[by_class] = np.arange(len(known)) % min(folds, len(known))
    return fold


Numbers = Mapping[str, float]

PLAIN_PARTS = ("settings", "seconds", "peak_memory", "error", "diagnostics", "axes", "scores", "intervals", "check")
ARRAY_PARTS = ("params", "voters", "draws", "sample_stats")
SINGLE_ARRAYS = ("label_probs", "log_likelihood", "log_density", "gold_fold", "gold_probs")

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
        resamples: Bootstrap samples behind the intervals of the scores; with 0 there are no intervals.
        folds: Parts of the items that point estimates are asked to predict from the others, 0 for none; None if nothing
            is asked about the votes.
        checks: Whether to ask if the fitted model reproduces the votes.
        gold_folds: Parts of the gold labels that are predicted by fits that have seen the others, where no other label
            is known to score with.
    """

    dataset: Dataset
    exact: Posterior | None
    name: str
    method: Method
    repetition: int
    key_data: UInt32[np.ndarray, " word"]
    resamples: int
    folds: int | None = None
    checks: bool = False
    gold_folds: int = GOLD_FOLDS

    @property
    def address(self) -> tuple[str, int, str]:
        """Name of the data set, repetition, and name of the method."""
        return self.dataset.name, self.repetition, self.name


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a cell: a fit with its scores, or the error that it ended in.

    Attributes:
        settings: The method with every setting, as text.
        seconds: Time of the fit.
        peak_memory: Most bytes that the process held during the fit, beyond those that it held before.
        error: What went wrong, or nothing.
        label_probs: Estimated posterior of the labels.
        held_out: The posterior of gold labels by fits that have not seen them, where scores come from these.
        params: Estimated parameters.
        voters: What the fit knows of the voters, by the names of `VoterSkill`.
        diagnostics: How the fit went, as JSON.
        draws: Posterior draws, if any.
        sample_stats: The sampler's statistics, if any.
        axes: Names of the axes of parameters and of single draws.
        scores: Scores by name.
        intervals: Bootstrap intervals of the scores.
        pointwise: What the fit says about the votes of each item.
        check: Whether the fitted model reproduces the votes, as JSON; nothing where that was not asked.
    """

    settings: str
    seconds: float
    peak_memory: float
    error: str = ""
    label_probs: Posterior | None = None
    held_out: HeldOut | None = None
    params: Mapping[str, np.ndarray] = field(default_factory=dict)
    voters: Mapping[str, np.ndarray] = field(default_factory=dict)
    diagnostics: str = "{}"
    draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    sample_stats: Mapping[str, np.ndarray] = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scores: Numbers = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pointwise: Pointwise = NOTHING_SAID
    check: str = ""

    def scored_probs(self, dataset: Dataset) -> Posterior | None:
        """The posterior that is scored: that of the fit, but for gold labels by fits that have not seen them."""
        if self.label_probs is None or self.held_out is None or dataset.gold is None:
            return self.label_probs
        return self.held_out.put_into(self.label_probs, dataset.gold)

    def to_record(self) -> Record:
        """What a store keeps of it."""
        about = {name: getattr(self, name) for name in PLAIN_PARTS}
        about["predicted_by"] = self.pointwise.by
        arrays = {f"{part}/{name}": array for part in ARRAY_PARTS for name, array in getattr(self, part).items()}
        single = {"label_probs": self.label_probs, **self.pointwise._asdict()}
        single |= {} if self.held_out is None else {"gold_fold": self.held_out.fold, "gold_probs": self.held_out.probs}
        arrays |= {name: single[name] for name in SINGLE_ARRAYS if single.get(name) is not None}
        return Record(about, arrays)

    @classmethod
    def from_record(cls, record: Record) -> "Outcome":
        """The inverse of `to_record`."""
        parts: dict[str, Any] = {part: {} for part in ARRAY_PARTS}
        for address, array in record.arrays.items():
            part, _, name = address.partition("/")
            if part in parts:
                parts[part][name] = array
        about = dict(record.about)
        for part in ("axes", "intervals"):  # JSON has lists for tuples
            about[part] = {name: tuple(values) for name, values in about[part].items()}
        probs, log_likelihood, log_density, *gold = (record.arrays.get(name) for name in SINGLE_ARRAYS)
        pointwise = Pointwise(log_likelihood, log_density, about.pop("predicted_by"))
        unseen = None if gold[0] is None or gold[1] is None else HeldOut(gold[0], gold[1])
        return cls(**parts, label_probs=probs, held_out=unseen, pointwise=pointwise, **about)


def run(cell: Cell, *, alone: bool = True) -> Outcome:
    """Fit and score; an error of the method is recorded, not raised.

    Args:
        cell: The cell.
        alone: Whether nothing else runs in this process; if not, the memory of the fit is not known.
    """
    key = jax.random.wrap_key_data(jnp.asarray(cell.key_data))
    start, seconds = time.perf_counter(), np.nan
    with _watched_memory() if alone else nullcontext(lambda: np.nan) as peak_memory:
        try:
            fit = fit_known(cell.method, cell.dataset.votes, key, cell.dataset.gold)
            seconds, memory = time.perf_counter() - start, peak_memory()
            unseen, scored_probs = None, fit.label_probs
            if cell.dataset.gold is not None and cell.dataset.is_scored_by_gold:
                unseen = held_out(cell.method, cell.dataset.votes, cell.dataset.gold, cell.gold_folds, key)
                scored_probs = unseen.put_into(fit.label_probs, cell.dataset.gold)
            scored = score(cell.dataset, scored_probs, cell.exact, cell.resamples, key=key)
            judged = NOTHING_SAID
            if cell.folds is not None:
                judged = judge_pointwise(fit, cell.method, cell.dataset.votes, key=key, folds=cell.folds)
            check = recorded_check(fit, cell.dataset.votes, key=key) if cell.checks else ""
            found = {**_parts(fit, cell), **scored, "held_out": unseen, "pointwise": judged, "check": check}
            return Outcome(repr(cell.method), seconds, memory, **found)
        except Exception as caught:  # whatever a user's method does, the other cells go on
            error = str(caught) if isinstance(caught, LatentensError) else repr(caught)
    return Outcome(repr(cell.method), time.perf_counter() - start, peak_memory(), error)


def _parts(fit: Fit, cell: Cell) -> dict[str, Any]:
    """What is recorded of a fit, by the names of `Outcome`."""
    arrays = {"params": fit.params, "draws": fit.draws or {}, "sample_stats": fit.diagnostics.get("sample_stats", {})}
    arrays["voters"] = fit.summary.skill._asdict()
    found: dict[str, Any] = {
        part: {name: np.asarray(value) for name, value in values.items()} for part, values in arrays.items()
    }
    for part, values in found.items():
        for name, value in values.items():
            if value.dtype.hasobject:
                raise LatentensError(f"{name!r} in the {part} of the fit is not an array of numbers or text")
    shapes = {name: value.shape[2:] for name, value in found["draws"].items()}
    shapes |= {name: value.shape for name, value in found["params"].items()}
    found["axes"] = axis_names(shapes, cell.dataset.votes, getattr(cell.method, "model", None))
    told_apart = ("sample_stats", "seconds")
    diagnostics = {name: value for name, value in fit.diagnostics.items() if name not in told_apart}
    return {**found, "label_probs": fit.label_probs, "diagnostics": json.dumps(diagnostics, default=_plain)}


def score(
    dataset: Dataset, probs: Posterior, exact: Posterior | None, resamples: int, *, key: jax.Array
) -> dict[str, Any]:
    """The scores of a posterior and their intervals, by the names of `Outcome`."""
    labels = dataset.scored_labels
    found = intervals(labels, probs, exact, key=key, resamples=resamples) if resamples else {}
    return {"scores": evaluate(labels, probs, exact), "intervals": found}


def describe(method: Any) -> str:
    """A short name: the class, and whatever differs from its defaults."""
    if not is_dataclass(method) or isinstance(method, type):
        return repr(method)
    changed = []
    for setting in fields(method):
        value = getattr(method, setting.name)
        default = setting.default_factory() if callable(setting.default_factory) else setting.default
        if setting.repr and _differ(value, default):
            changed.append(describe(value) if is_dataclass(value) else f"{setting.name}={value!r}")
    return type(method).__name__ + (f"({', '.join(changed)})" if changed else "")


def _differ(value: Any, default: Any) -> bool:
    """Whether two settings differ, arrays among them; what cannot be told apart by content differs."""
    try:
        return fingerprint(value) != fingerprint(default)
    except LatentensError:
        return value is not default


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
