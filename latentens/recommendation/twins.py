"""Twins: data simulated from fitted models in the pattern of the votes, and the scores of methods on them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from latentens.comparison.cell import Cell
from latentens.comparison.data_tree import Address
from latentens.comparison.result import Outcome
from latentens.comparison.sweep import MethodFactory, cells_of
from latentens.datasets.dataset import Dataset, simulate_like
from latentens.errors import LatentensError
from latentens.methods.base import Method, Posterior
from latentens.programs.likelihood import bayes_posterior
from latentens.recommendation.plausibility import FittedModel, model_of
from latentens.runtime.numerics import entropy, safe_log
from latentens.scores import Labels

ScoreName = Literal["balanced_accuracy", "log_score"]
SCORES: tuple[ScoreName, ...] = ("balanced_accuracy", "log_score")
REFIT = "refit"
"""Name of the fit of a model to its own twin, among the methods."""


class Interval(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


class Twin(NamedTuple):
    """One twin and the posteriors of its labels, without the items whose labels methods were given.

    Attributes:
        labels: The true labels.
        exact: The exact posterior.
        posteriors: The posterior of each method.
        refitted: The exact posterior of a twin of the twin, from the model refitted to the twin; None if that failed.
    """

    labels: Labels
    exact: Posterior
    posteriors: Mapping[str, Posterior]
    refitted: Posterior | None

    def posterior(self, method: str | None) -> Posterior:
        """The posterior of a method; None stands for the exact one."""
        return self.exact if method is None else self.posteriors[method]


@dataclass(frozen=True, eq=False)
class TwinScores:
    """Scores of methods on the twins of one model.

    Attributes:
        model: Name of the model.
        twins: The twins.
    """

    model: str
    twins: Sequence[Twin]

    @property
    def methods(self) -> list[str]:
        """The methods that gave a result on every twin."""
        first, *others = (twin.posteriors for twin in self.twins)
        return [name for name in first if all(name in other for other in others)]

    def scores(self, score: ScoreName, method: str | None) -> Float[np.ndarray, " twin"]:
        """A method's expected score on each twin, given its votes; None stands for the exact posterior."""
        return np.array([contributions(score, twin.exact, twin.posterior(method)).sum() for twin in self.twins])

    def expected(self, score: ScoreName, method: str | None, level: float = 0.9) -> Interval:
        """The score to expect on the user's votes if the model is right, with an interval.

        Twins are drawn from fitted parameters instead of the true ones. The error of that is estimated one step
        further: parameters fitted to a twin differ from those it was drawn from as the latter differ from the true
        ones. The mean change in the score of the exact posterior is subtracted, and its variance is added.
        """
        values = self.scores(score, method)
        pairs = [(twin.refitted, twin.exact) for twin in self.twins if twin.refitted is not None]
        shifts = np.array([self_assessed(score, refitted) - self_assessed(score, exact) for refitted, exact in pairs])
        noise = np.mean([_label_variance(score, twin, twin.posterior(method)) for twin in self.twins])
        number = len(values)
        variance = max(float(np.var(values, ddof=1)) if number > 1 else 0.0, float(noise))
        centre = float(values.mean())
        if len(shifts):
            variance += float(np.var(shifts, ddof=1)) if len(shifts) > 1 else float(shifts[0] ** 2)
            centre -= float(shifts.mean())
        margin = float(stdtrit(max(number - 1, 3), (1 + level) / 2)) * np.sqrt(variance * (1 + 1 / number))
        most = 1.0 if score == "balanced_accuracy" else np.inf
        return Interval(*(float(np.clip(value, 0, most)) for value in (centre, centre - margin, centre + margin)))

    def gain(self, score: ScoreName, first: str | None, second: str | None) -> float:
        """How much better the first method scores than the second, mean over twins; None is the exact posterior."""
        sign = 1 if score == "balanced_accuracy" else -1
        return sign * float(np.mean(self.scores(score, first) - self.scores(score, second)))

    def losses(self, score: ScoreName, methods: Sequence[str]) -> dict[str, float]:
        """What each method loses against the best of them."""
        gains = {method: self.gain(score, method, None) for method in methods}
        return {method: max(gains.values()) - gain for method, gain in gains.items()}


def contributions(score: ScoreName, truth: Posterior, probs: Posterior) -> Float[np.ndarray, " item"]:
    """The contribution of each item to a score.

    Args:
        score: The score.
        truth: The probability of each label; a row of zeros where the label is unknown.
        probs: The posterior that is scored.
    """
    if score == "log_score":
        return -(truth * safe_log(probs)).sum(axis=1) / truth.sum()
    sizes, chosen = truth.sum(axis=0), probs.argmax(axis=1)
    weights = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0) / (sizes > 0).sum()
    return truth[np.arange(len(truth)), chosen] * weights[chosen]


def self_assessed(score: ScoreName, exact: Posterior) -> float:
    """The score that an exact posterior expects of itself."""
    if score == "log_score":
        return float(entropy(exact).mean())
    chosen = exact.argmax(axis=1)
    shares = [exact[chosen == label, label].sum() / exact[:, label].sum() for label in range(exact.shape[1])]
    return float(np.mean(shares))


def _label_variance(score: ScoreName, twin: Twin, probs: Posterior) -> float:
    """The variance of a score over sets of items like this twin's, with as many of each class for the accuracy."""
    truth = np.equal.outer(twin.labels, np.arange(probs.shape[1])).astype(np.float64)
    values = contributions(score, truth, probs)
    strata = twin.labels if score == "balanced_accuracy" else np.zeros_like(twin.labels)
    parts = [values[strata == stratum] for stratum in np.unique(strata)]
    return sum(len(part) * float(np.var(part, ddof=1)) if len(part) > 1 else float(part[0] ** 2) for part in parts)


def draw_twins(fitted: FittedModel, like: Dataset, key: jax.Array, number: int) -> list[Dataset]:
    """Simulate data with the same items, voters, pattern of who voted on what, and items with gold labels."""
    key = jax.random.fold_in(key, zlib.crc32(fitted.name.encode()))
    found = []
    for twin in range(number):
        drawn = simulate_like(fitted.model, like.votes, key=jax.random.fold_in(key, twin), params=fitted.params)
        gold = None if like.gold is None else np.where(like.gold >= 0, drawn.labels, -1)
        found.append(replace(drawn, name=f"{fitted.name}, twin {twin}", gold=gold))
    return found


def without_gold(dataset: Dataset) -> Dataset:
    """The data set without gold labels, under another name if it had any."""
    return dataset if dataset.gold is None else replace(dataset, name=f"{dataset.name}, no gold labels", gold=None)


def twin_cells(
    fitted: FittedModel, twins: Sequence[Dataset], methods: Mapping[str, Method | MethodFactory], key: jax.Array
) -> list[Cell]:
    """Every method on every twin, and the model refitted to each without gold labels."""
    cells = [cell for twin in twins for cell in cells_of(twin, methods, key)]
    return cells + [cell for twin in twins for cell in cells_of(without_gold(twin), {REFIT: fitted.refit}, key)]


def score_twins(
    fitted: FittedModel,
    twins: Sequence[Dataset],
    methods: Sequence[str],
    outcomes: Mapping[Address, Outcome],
    key: jax.Array,
) -> TwinScores:
    """Collect the outcomes of `twin_cells`."""
    scored = []
    for number, twin in enumerate(twins):
        exact = twin.bayes_posterior()
        assert exact is not None, "twins come with their model"
        used = np.ones(len(exact), bool) if twin.gold is None else twin.gold < 0
        found = {name: outcomes[twin.name, 0, name].label_probs for name in methods}
        posteriors = {name: probs[used] for name, probs in found.items() if probs is not None}
        try:
            model, params = model_of(fitted.refit, outcomes[without_gold(twin).name, 0, REFIT])
            drawn = simulate_like(model, twin.votes, key=jax.random.fold_in(key, number), params=params)
            refitted = bayes_posterior(model, params, drawn.votes)[used]
        except LatentensError:
            refitted = None
        scored.append(Twin(twin.labels[used], exact[used], posteriors, refitted))
    return TwinScores(fitted.name, scored)
