"""The typed result of a comparison: the sweep builds it, `data_tree` writes and reads it, the report shows it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from latentens.datasets.dataset import Dataset
from latentens.inference.skill import VoterSkill
from latentens.methods.base import Arrays, Diagnostics, GoldCodes, Posterior
from latentens.scores import Labels, PairedDifference
from latentens.scores.scores import Score
from latentens.votes import Votes

EXACT = "exact Bayes"
"""The name of the exact posterior among the estimators."""


class Pointwise(NamedTuple):
    """The log-likelihood of every item's votes, with labels and hidden units summed out.

    Attributes:
        log_likelihood: By the fit, at each draw; a point estimate counts as one draw of one chain.
        log_density: Of held-out votes, or an estimate of it; None if there is none.
        by: How `log_density` was found.
    """

    log_likelihood: Float[np.ndarray, "chain draw item"] | None = None
    log_density: Float[np.ndarray, " item"] | None = None
    by: str = ""


class HeldOut(NamedTuple):
    """Predictions of gold labels by fits that have not seen them, one row per gold label in the order of the items.

    Attributes:
        fold: The fold of each gold label.
        probs: Its posterior by the fit to the labels of the other folds.
    """

    fold: Int[np.ndarray, " known"]
    probs: Posterior

    def put_into(self, probs: Posterior, gold: GoldCodes) -> Posterior:
        """A posterior of all items, with the held-out predictions for the items with a gold label."""
        scored = np.array(probs)
        scored[gold >= 0] = self.probs
        return scored


class CheckResult(NamedTuple):
    """Whether a fitted model reproduces the votes (`latentens.check_fit`).

    Attributes:
        summary: The verdict in a sentence.
        p_value: Of the worst statistic, adjusted for their number.
        rejected: Whether the votes contradict the model.
        p_values: By statistic.
        bins: Labels of the bins of the histogram of vote counts.
        observed: Items in each bin.
        expected: Items that the model expects.
        deviation: Standard deviation of the difference.
    """

    summary: str
    p_value: float
    rejected: bool
    p_values: Mapping[str, float]
    bins: tuple[str, ...]
    observed: tuple[float, ...]
    expected: tuple[float, ...]
    deviation: tuple[float, ...]


class Independence(NamedTuple):
    """Whether voters err independently (`latentens.check_independence`).

    Attributes:
        residual: Correlation of two voters' votes minus that of independent voters.
        p_values: Of each pair, adjusted for the number of pairs; 1 where a pair was not checked.
        group: Number of the group of dependent voters that each voter belongs to, −1 for none.
        p_value: Of all pairs together.
        level: The level at which pairs stand out.
        summary: The verdict in a sentence.
    """

    residual: Float[np.ndarray, "voter voter"]
    p_values: Float[np.ndarray, "voter voter"]
    group: Int[np.ndarray, " voter"]
    p_value: float
    level: float
    summary: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """One fit with its scores, or the error that it ended with.

    Attributes:
        kind: The classes of the method and of the methods and models in it, without settings.
        settings: Every setting as text; names of nested ones have dots.
        seconds: Time of the fit.
        peak_memory: Maximum number of bytes that the process held during the fit beyond those that it held before.
        error: The error, or empty.
        label_probs: Estimated posterior of the labels.
        held_out: Predictions of gold labels by fits that have not seen them, if scores come from these.
        params: Estimated parameters.
        skill: Estimated skill of the voters; None if the fit failed.
        diagnostics: How the fit went, with values that JSON can hold.
        draws: Posterior draws, if any.
        sample_stats: The sampler's statistics, if any.
        axes: Names of the axes of parameters and of single draws.
        scores: Scores by name.
        intervals: Intervals of the scores.
        pointwise: Log-likelihoods of the items' votes.
        check: Whether the fitted model reproduces the votes, if that was checked.
    """

    seconds: float = np.nan
    peak_memory: float = np.nan
    error: str = ""
    kind: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    label_probs: Posterior | None = None
    held_out: HeldOut | None = None
    params: Arrays = field(default_factory=dict)
    skill: VoterSkill | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    draws: Arrays = field(default_factory=dict)
    sample_stats: Arrays = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pointwise: Pointwise = field(default_factory=Pointwise)
    check: CheckResult | None = None

    def scored_probs(self, dataset: Dataset) -> Posterior | None:
        """The posterior that is scored: that of the fit, with held-out predictions of gold labels."""
        if self.label_probs is None or self.held_out is None or dataset.gold is None:
            return self.label_probs
        return self.held_out.put_into(self.label_probs, dataset.gold)


Fits = Mapping[tuple[int, str], Outcome]
"""Fits by repetition and estimator."""

Pairs = Mapping[tuple[int, str, str, str], PairedDifference]
"""Differences between two estimators by repetition, score, estimator and other estimator."""


@dataclass(frozen=True, eq=False)
class DatasetResult:
    """One data set with every result on it.

    Attributes:
        dataset: The data set; its model is None if it was read from a file.
        model: The model that the votes come from, as text; empty if unknown.
        axes: Names of the axes of the true parameters.
        fits: Every fit, by repetition and estimator.
        exact: The exact posterior with its scores, where known.
        pairs: Paired differences between estimators, the exact posterior among them.
        signal: Whether voters agree more than by chance, in a sentence.
        independence: Whether voters err independently, if that was checked.
        worth: Effective number of voters with its interval, and a `summary`, if that was computed.
        groups: Other groups of the data set in the tree, such as `recommendation`.
    """

    dataset: Dataset
    model: str
    axes: Mapping[str, tuple[str, ...]]
    fits: Fits
    exact: Outcome | None = None
    pairs: Pairs = field(default_factory=dict)
    signal: str = ""
    independence: Independence | None = None
    worth: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, xr.Dataset] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.dataset.name

    @property
    def votes(self) -> Votes:
        """The votes."""
        return self.dataset.votes

    @property
    def labels(self) -> Labels:
        """The labels that methods are scored on, −1 for other items."""
        return self.dataset.scored_labels

    @property
    def estimators(self) -> list[str]:
        """Names of the methods."""
        return list(dict.fromkeys(name for _, name in self.fits))

    @property
    def repetitions(self) -> list[int]:
        """Numbers of the repetitions."""
        return sorted({repetition for repetition, _ in self.fits})

    @property
    def voter_names(self) -> tuple[str, ...]:
        """Names of the voters, as text."""
        return tuple(map(str, self.votes.voter_names))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, as text."""
        return tuple(map(str, self.votes.class_names))

    @property
    def num_known(self) -> int:
        """Number of labels that methods are scored on."""
        return int(np.sum(self.labels >= 0))

    @property
    def labels_text(self) -> str:
        """The labels that methods are scored on, as a phrase."""
        if not self.is_scored_by_gold:
            return f"{self.num_known:,} labelled items"
        labels = "gold label" if self.num_known == 1 else "gold labels, each"
        return f"your {self.num_known:,} {labels} predicted by a fit that has not seen it"

    @property
    def is_simulated(self) -> bool:
        """Whether the model behind the votes is known."""
        return bool(self.model)

    @property
    def true_params(self) -> Arrays:
        """The true parameters, where known."""
        return {name: np.asarray(value) for name, value in (self.dataset.params or {}).items()}

    @property
    def is_scored_by_gold(self) -> bool:
        """Whether scores come from held-out gold labels."""
        return any(fit.held_out is not None for fit in self.fits.values())

    @property
    def first_fits(self) -> dict[str, Outcome]:
        """The first repetition of each method that did not fail."""
        found: dict[str, Outcome] = {}
        for (_, name), fit in sorted(self.fits.items(), key=lambda item: item[0][0]):
            if not fit.error and fit.label_probs is not None:
                found.setdefault(name, fit)
        return {name: found[name] for name in self.estimators if name in found}

    @property
    def estimates(self) -> dict[str, Posterior]:
        """The posterior by each method, of the first repetition that did not fail."""
        return {name: fit.label_probs for name, fit in self.first_fits.items() if fit.label_probs is not None}

    @property
    def posteriors(self) -> dict[str, Posterior]:
        """The exact posterior, where known, and the estimates."""
        return self._with_exact(self.estimates)

    @property
    def scored_estimates(self) -> dict[str, Posterior]:
        """The estimates, with held-out predictions of gold labels."""
        scored = {name: fit.scored_probs(self.dataset) for name, fit in self.first_fits.items()}
        return {name: probs for name, probs in scored.items() if probs is not None}

    @property
    def scored(self) -> dict[str, Posterior]:
        """The posteriors that are scored."""
        return self._with_exact(self.scored_estimates)

    def _with_exact(self, estimates: dict[str, Posterior]) -> dict[str, Posterior]:
        exact = None if self.exact is None else self.exact.label_probs
        return estimates if exact is None else {EXACT: exact, **estimates}

    def outcomes(self) -> Iterator[tuple[int, str, Outcome]]:
        """Repetition, estimator and outcome, with the exact posterior first in every repetition."""
        for repetition in self.repetitions:
            if self.exact is not None:
                yield repetition, EXACT, self.exact
        for (repetition, name), fit in self.fits.items():
            yield repetition, name, fit

    def renamed(self, names: Mapping[str, str]) -> "DatasetResult":
        """The same with other names of methods."""
        fits = {(repetition, names.get(name, name)): fit for (repetition, name), fit in self.fits.items()}
        pairs = {
            (repetition, score, names.get(one, one), names.get(other, other)): found
            for (repetition, score, one, other), found in self.pairs.items()
        }
        return replace(self, fits=fits, pairs=pairs)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on data sets.

    Attributes:
        datasets: The result on each data set.
        scores: The scores in the order of tables; read from a file, they can be shown but not computed.
        key_data: Data of the random key.
        about: Command and versions of libraries.
    """

    datasets: tuple[DatasetResult, ...]
    scores: tuple[Score, ...]
    key_data: np.ndarray
    about: Mapping[str, Any]

    @property
    def short_names(self) -> dict[str, str]:
        """Short names of the methods, by name."""
        kinds = {name: fit.kind for data in self.datasets for (_, name), fit in data.fits.items()}
        return short_names(kinds)


def short_names(kinds: Mapping[str, str], longest: int = 30) -> dict[str, str]:
    """Distinct short names of methods.

    `Nuts(DawidSkene(prior=2.0), num_samples=50)` becomes `Nuts(DawidSkene)`. Methods that differ in settings only are
    numbered. A name that does not begin with the method's class was chosen by the user and is only cut to length.

    Args:
        kinds: For each name the classes of the method without settings, such as `Nuts(DawidSkene)`.
        longest: Maximum length in characters.
    """
    brief = {}
    for name, kind in kinds.items():
        own = kind.partition("(")[0]
        short = kind if kind and name.startswith(f"{own}(") else name
        if len(short) > longest:
            short = own if short == kind and len(own) <= longest else f"{short[: longest - 1]}…"
        brief[name] = short
    found: dict[str, str] = {}
    for name, short in brief.items():
        alike = [other for other in brief if brief[other] == short]
        found[name] = short if len(alike) == 1 else f"{short} {alike.index(name) + 1}"
    return found if len(set(found.values())) == len(found) else {name: name for name in found}
