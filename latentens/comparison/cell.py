"""One cell of a sweep: a method fitted to a data set, scored, and kept on disk."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jaxtyping import Int, UInt32

from latentens.checks import check_fit, held_out_log_likelihood, leave_one_out
from latentens.comparison.result import CheckResult, HeldOut, Outcome, Pointwise
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError, in_one_line
from latentens.methods.base import Diagnostics, Fit, GoldCodes, Method, Posterior, fit_known
from latentens.methods.persistence import axis_names, plain, skill_of
from latentens.programs.parameters import num_parameters
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.store import Record, fingerprint
from latentens.scores.scores import SCORES, Score, evaluate, intervals
from latentens.votes import Votes

GOLD_FOLDS = 5
"""Default number of cross-validation folds of gold labels."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A fit to be made and scored; it can be sent to another process.

    Attributes:
        dataset: The data set.
        exact: The exact posterior of its labels, where known.
        name: Name of the method in this comparison.
        method: The method.
        repetition: Number of the repetition.
        key_data: Data of the random key.
        resamples: Number of bootstrap samples behind the intervals of the scores; 0 for no intervals.
        folds: Number of cross-validation folds for the votes of point estimates, 0 to use AIC instead; None to skip
            log-likelihoods altogether.
        checks: Whether to check if the fitted model reproduces the votes.
        gold_folds: Number of folds of gold labels, if no other labels are known.
    """

    dataset: Dataset
    exact: Posterior | None
    name: str
    method: Method
    repetition: int
    key_data: UInt32[np.ndarray, " word"]
    resamples: int = 0
    folds: int | None = None
    checks: bool = False
    gold_folds: int = GOLD_FOLDS

    @property
    def address(self) -> tuple[str, int, str]:
        """Name of the data set, repetition, and name of the method."""
        return self.dataset.name, self.repetition, self.name


def run(cell: Cell, *, alone: bool = True) -> Outcome:
    """Fit and score; an error of the method is recorded, not raised.

    Args:
        cell: The cell.
        alone: Whether nothing else runs in this process; otherwise the memory of the fit is unknown.
    """
    key = jax.random.wrap_key_data(jnp.asarray(cell.key_data))
    data, kind, settings = cell.dataset, describe(cell.method, settings=False), settings_of(cell.method)
    start, seconds = time.perf_counter(), np.nan
    with _watched_memory() if alone else nullcontext(lambda: np.nan) as peak_memory:
        try:
            fit = fit_known(cell.method, data.votes, key, data.gold)
            seconds, memory = time.perf_counter() - start, peak_memory()
            found = _parts(fit, cell)
            scored_probs = fit.label_probs
            if data.gold is not None and data.is_scored_by_gold:
                found["held_out"] = held_out(cell.method, data.votes, data.gold, cell.gold_folds, key)
                scored_probs = found["held_out"].put_into(fit.label_probs, data.gold)
            found |= score(data, scored_probs, cell.exact, cell.resamples, key=key)
            if cell.folds is not None:
                found["pointwise"] = judge_pointwise(fit, cell.method, data.votes, key=key, folds=cell.folds)
            if cell.checks:
                found["check"] = predictive_check(fit, data.votes, key=key)
            return Outcome(seconds, memory, "", kind, settings, **found)
        except Exception as caught:  # whatever a user's method does, the other cells go on
            error = in_one_line(caught)
    return Outcome(time.perf_counter() - start, peak_memory(), error, kind, settings)


def _parts(fit: Fit, cell: Cell) -> dict[str, Any]:
    """Records of a fit, by the names of `Outcome`."""
    stats = fit.diagnostics.extra.get("sample_stats", {})
    found: dict[str, Any] = {}
    for group, values in zip(ARRAYS, (fit.params, fit.draws or {}, stats), strict=True):
        found[group] = {name: np.asarray(value) for name, value in values.items()}
        for name, value in found[group].items():
            if value.dtype.hasobject:
                raise LatentensError(f"{name!r} in the {group} of the fit is not an array of numbers or text")
    shapes = {name: value.shape[2:] for name, value in found["draws"].items()}
    shapes |= {name: value.shape for name, value in found["params"].items()}
    found["axes"] = axis_names(shapes, cell.dataset.votes, getattr(cell.method, "model", None))
    elsewhere = ("sample_stats", "seconds")
    diagnostics = {name: value for name, value in fit.diagnostics.items() if name not in elsewhere}
    found["diagnostics"] = Diagnostics().updated(**json.loads(json.dumps(diagnostics, default=plain)))
    return {**found, "label_probs": fit.label_probs, "skill": fit.summary.skill}


def score(
    dataset: Dataset,
    probs: Posterior,
    exact: Posterior | None,
    resamples: int,
    *,
    key: jax.Array,
    scores: tuple[Score, ...] = SCORES,
) -> dict[str, Any]:
    """The scores of a posterior and their intervals, by the names of `Outcome`."""
    labels = dataset.scored_labels
    found = intervals(labels, probs, exact, key=key, resamples=resamples, scores=scores) if resamples else {}
    return {"scores": evaluate(labels, probs, exact, scores=scores), "intervals": found}


def judge_pointwise(
    fit: Fit, method: Method, votes: Votes, *, key: jax.Array, folds: int, max_values: int = 2**24
) -> Pointwise:
    """The log-likelihood of each item's votes, and an estimate of it for votes that the fit has not seen.

    For a sampled fit the estimate is PSIS-LOO. For a point estimate it is cross-validation, or without folds AIC: the
    log-likelihood minus the number of parameters, for a regular model the expected log-likelihood of new items.

    Args:
        fit: The fit.
        method: The method.
        votes: The votes.
        key: Random key of the folds.
        folds: Number of folds; 0 for AIC.
        max_values: Draws are thinned so that at most this many log-likelihoods are kept.
    """
    try:
        values = fit.log_likelihood(votes)
    except LatentensError:  # a method without a model of votes
        return Pointwise()
    if fit.draws is not None:
        thin = -(-values.size // max_values)
        return Pointwise(values[:, ::thin], leave_one_out(fit, votes).log_density, "leaving one item out")
    if folds:
        unseen = held_out_log_likelihood(method, votes, key=key, folds=folds)
        return Pointwise(values[None, None], unseen, f"{folds} folds")
    by_aic = None if fit.model is None else values - num_parameters(fit.model) / len(values)
    return Pointwise(values[None, None], by_aic, "AIC")


def predictive_check(fit: Fit, votes: Votes, *, key: jax.Array) -> CheckResult | None:
    """The result of `check_fit`; None for a fit without a model."""
    if fit.model is None:
        return None
    check = check_fit(fit, votes, key=key)
    histogram = check.statistics[0]
    return CheckResult(
        check.summary,
        check.p_value,
        check.rejected,
        {part.name: part.p_value for part in check.statistics},
        histogram.labels,
        *(tuple(values.tolist()) for values in (histogram.observed, histogram.expected, histogram.deviation)),
    )


def held_out(method: Method, votes: Votes, gold: GoldCodes, folds: int, key: jax.Array) -> HeldOut:
    """Predict every gold label by a fit to all votes and to the gold labels of the other folds.

    These fits have the key of the fit to all gold labels, so that a method that ignores gold labels gives the same
    posterior in every fold.

    Args:
        method: The method.
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown.
        folds: Number of folds; fewer if there are fewer gold labels.
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
    """The fold of each gold label, −1 for items without one: random, of equal size, and stratified by class."""
    if folds < 2:
        raise LatentensError(f"gold labels need at least two folds, not {folds}")
    known = np.flatnonzero(gold >= 0)
    shuffled = numpy_generator(key).permutation(known)
    by_class = shuffled[np.argsort(gold[shuffled], kind="stable")]
    fold = np.full(len(gold), -1)
    fold[by_class] = np.arange(len(known)) % min(folds, len(known))
    return fold


def describe(method: Any, *, settings: bool = True) -> str:
    """A name for a method: its class and the settings that differ from their defaults.

    Args:
        method: A method, or a model.
        settings: Whether to show settings other than methods and models.
    """
    if not is_dataclass(method) or isinstance(method, type):
        return repr(method) if settings else type(method).__name__
    changed = []
    for setting in fields(method):
        value = getattr(method, setting.name)
        default = setting.default_factory() if callable(setting.default_factory) else setting.default
        try:
            differs = fingerprint(value) != fingerprint(default)
        except LatentensError:  # it cannot be compared by content
            differs = value is not default
        if setting.repr and differs:
            if is_dataclass(value):
                changed.append(describe(value, settings=settings))
            elif settings:
                changed.append(f"{setting.name}={value!r}")
    return type(method).__name__ + (f"({', '.join(changed)})" if changed else "")


def settings_of(method: Any, prefix: str = "") -> dict[str, str]:
    """Every setting as text, with the class first; settings of nested methods and models have names with dots."""
    if not is_dataclass(method) or isinstance(method, type):
        return {prefix or "class": repr(method)}
    found = {prefix or "class": type(method).__name__}
    for setting in fields(method):
        if setting.repr:
            name = f"{prefix}.{setting.name}" if prefix else setting.name
            found |= settings_of(getattr(method, setting.name), name)
    return found


PLAIN = ("seconds", "peak_memory", "error", "kind", "settings", "diagnostics", "axes", "scores", "intervals")
ARRAYS = ("params", "draws", "sample_stats")
TUPLES = ("held_out", "skill", "pointwise")


def to_record(outcome: Outcome) -> Record:
    """An outcome as a store keeps it."""
    about: dict[str, Any] = {name: getattr(outcome, name) for name in PLAIN}
    about["check"] = None if outcome.check is None else outcome.check._asdict()
    about["diagnostics"] = dict(outcome.diagnostics)
    groups = {name: getattr(outcome, name) for name in ARRAYS}
    groups |= {name: {} if (part := getattr(outcome, name)) is None else part._asdict() for name in TUPLES}
    named = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
    named["label_probs"] = outcome.label_probs
    return Record(about, {name: np.asarray(value) for name, value in named.items() if value is not None})


def from_record(record: Record) -> Outcome:
    """The inverse of `to_record`."""
    parts: dict[str, Any] = {name: {} for name in (*ARRAYS, *TUPLES)}
    parts["label_probs"] = record.arrays.get("label_probs")
    for address, array in record.arrays.items():
        group, slash, name = address.partition("/")
        if slash:
            parts[group][name] = array
    about: dict[str, Any] = dict(record.about)
    for name in ("axes", "intervals"):  # JSON has lists for tuples
        about[name] = {key: tuple(values) for key, values in about[name].items()}
    about["check"], about["diagnostics"] = check_of(about["check"]), Diagnostics().updated(**about["diagnostics"])
    unseen, skill, pointwise = (parts.pop(name) for name in TUPLES)
    about["held_out"] = HeldOut(**unseen) if unseen else None
    about["skill"] = skill_of(skill) if skill else None
    about["pointwise"] = Pointwise(**{**pointwise, "by": str(pointwise["by"])})
    return Outcome(**about, **parts)


def check_of(parts: Mapping[str, Any] | None) -> CheckResult | None:
    """A predictive check from JSON."""
    if parts is None:
        return None
    found: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in parts.items()}
    return CheckResult(**found)


@contextmanager
def _watched_memory(interval: float = 0.005) -> Iterator[Callable[[], float]]:
    """Watch the memory of this process from a thread; the result returns its maximum rise."""
    process = psutil.Process()
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(interval):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: float(most - before)
    finally:
        done.set()
        watcher.join()
