"""What the twins of one world say about methods: expected scores with intervals, and differences with their noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from latentens.runtime.numerics import entropy, safe_log
from latentens.scores.items import Labels, Posterior

ScoreName = Literal["balanced_accuracy", "log_score"]
SCORES: tuple[ScoreName, ...] = ("balanced_accuracy", "log_score")
LEVEL = 0.9
"""Coverage of the intervals."""

PerTwin = Float[np.ndarray, " twin"]


class Estimated(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """A mean over twins and its standard error."""

    mean: float
    error: float


class Twin(NamedTuple):
    """One twin and what was made of it.

    Attributes:
        labels: The labels of its items, but for those that methods were told.
        exact: The exact posterior of its labels.
        posteriors: What each method says.
        refitted: The exact posterior of a twin of the twin, drawn from the world fitted to it: how far fits stray from
            what they are fitted to. None where that fit failed.
    """

    labels: Labels
    exact: Posterior
    posteriors: Mapping[str, Posterior]
    refitted: Posterior | None


@dataclass(frozen=True, eq=False)
class TwinScores:
    """The twins of one world.

    Attributes:
        world: Its name.
        twins: The twins.
    """

    world: str
    twins: Sequence[Twin]

    @property
    def methods(self) -> list[str]:
        """The methods that gave a result on every twin."""
        first, *others = (twin.posteriors for twin in self.twins)
        return [name for name in first if all(name in other for other in others)]

    def scores(self, score: ScoreName, method: str | None) -> PerTwin:
        """A method's score on each twin, over all labels its votes leave possible; None is the exact posterior."""
        return np.array([contributions(score, twin.exact, _posterior(twin, method)).sum() for twin in self.twins])

    def expected(self, score: ScoreName, method: str | None) -> Estimated:
        """The score to be expected on the user's votes if this is their world.

        Twins are drawn from fitted parameters, not from the true ones. What that changes is seen one step further:
        parameters fitted to a twin stray from those that it was drawn from as the latter do from the true ones. The
        mean of that change in what the exact posterior reaches is taken off, its variance is added.
        """
        values, shifts = self.scores(score, method), self._shifts(score)
        number = len(values)
        noise = np.mean([_label_noise(score, twin, _posterior(twin, method)) for twin in self.twins])
        spread = max(float(np.var(values, ddof=1)) if number > 1 else 0.0, float(noise))
        if len(shifts) > 1:
            spread += float(np.var(shifts, ddof=1))
        elif len(shifts):
            spread += float(shifts[0] ** 2)
        centre = float(values.mean() - shifts.mean()) if len(shifts) else float(values.mean())
        margin = float(stdtrit(max(number - 1, 3), (1 + LEVEL) / 2)) * np.sqrt(spread * (1 + 1 / number))
        low, high = centre - margin, centre + margin
        if score == "balanced_accuracy":
            return Estimated(*(float(np.clip(value, 0, 1)) for value in (centre, low, high)))
        return Estimated(max(centre, 0.0), max(low, 0.0), high)

    def _shifts(self, score: ScoreName) -> PerTwin:
        pairs = [(twin.refitted, twin.exact) for twin in self.twins if twin.refitted is not None]
        return np.array([_promised(score, refitted) - _promised(score, exact) for refitted, exact in pairs])

    def gain(self, score: ScoreName, first: str | None, second: str | None) -> Difference:
        """How much better the first method is than the second; None stands for the exact posterior.

        Labels are not drawn: each counts with its exact probability, which leaves only the noise of the votes.
        """
        gains, noise = [], []
        for twin in self.twins:
            one, other = (contributions(score, twin.exact, _posterior(twin, name)) for name in (first, second))
            gain = (one - other) * (1 if score == "balanced_accuracy" else -1)
            gains.append(gain.sum())
            noise.append(sum_variance(gain, np.zeros(len(gain), np.int64)))
        number = len(gains)
        variance = max(float(np.mean(noise)), float(np.var(gains, ddof=1)) if number > 1 else 0.0)
        return Difference(float(np.mean(gains)), float(np.sqrt(variance / number)))

    def best(self, score: ScoreName, methods: Sequence[str]) -> str:
        """The method with the best mean score."""
        sign = 1 if score == "balanced_accuracy" else -1
        return max(methods, key=lambda method: sign * self.scores(score, method).mean())


def _posterior(twin: Twin, method: str | None) -> Posterior:
    return twin.exact if method is None else twin.posteriors[method]


def contributions(score: ScoreName, truth: Posterior, probs: Posterior) -> Float[np.ndarray, " item"]:
    """What each item adds to a score.

    Args:
        score: Which score.
        truth: The probability of each label; zeros throughout where a label is not known.
        probs: The posterior that is scored.
    """
    if score == "log_score":
        return -(truth * safe_log(probs)).sum(axis=1) / truth.sum()
    sizes, chosen = truth.sum(axis=0), probs.argmax(axis=1)
    weights = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0) / (sizes > 0).sum()
    return truth[np.arange(len(truth)), chosen] * weights[chosen]


def certain(labels: Labels, num_classes: int) -> Posterior:
    """Known labels as probabilities; zeros throughout where a label is not known."""
    return np.equal.outer(labels, np.arange(num_classes)).astype(np.float64)


def _label_noise(score: ScoreName, twin: Twin, probs: Posterior) -> float:
    """The variance of a score over sets of items like this twin's."""
    labels = twin.labels
    strata = labels if score == "balanced_accuracy" else np.zeros_like(labels)
    return sum_variance(contributions(score, certain(labels, probs.shape[1]), probs), strata)


def sum_variance(values: Float[np.ndarray, " item"], strata: Labels) -> float:
    """The variance of a sum over items whose numbers in the strata are given."""
    total = 0.0
    for stratum in np.unique(strata):
        chosen = values[strata == stratum]
        total += len(chosen) * float(np.var(chosen, ddof=1)) if len(chosen) > 1 else float(chosen[0] ** 2)
    return total


def _promised(score: ScoreName, exact: Posterior) -> float:
    """The score that an exact posterior expects of itself."""
    if score == "log_score":
        return float(entropy(exact).mean())
    chosen = exact.argmax(axis=1)
    shares = [exact[chosen == label, label].sum() / exact[:, label].sum() for label in range(exact.shape[1])]
    return float(np.mean(shares))
