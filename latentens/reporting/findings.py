"""What a comparison says about its methods, in numbers: who leads, who ties, who is too sure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from latentens.reporting.score_tables import Means, Pairs, ranked
from latentens.reporting.view import View

SIGNIFICANCE = 0.05
LEAST_GAP = 0.02
"""Stated confidence and accuracy may differ by so much before a method is called too sure or too unsure."""

CLEAR = 3.0
"""Standard errors by which the gap must exceed zero."""

IMPOSSIBLE = 1e-12
"""A true label with a smaller probability was called impossible."""


@dataclass(frozen=True)
class Leader:
    """The best method by one score.

    Attributes:
        method: Its name.
        tied: Methods that cannot be told apart from it.
        behind: Methods that can, best first.
    """

    method: str
    tied: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """All other methods."""
        return (*self.tied, *self.behind)


@dataclass(frozen=True)
class Findings:
    """What can be said of one data set.

    Attributes:
        labels: Leader by balanced accuracy, tested on accuracies; None where no label is known.
        probabilities: Leader by log score; None where no label is known.
        gaps: Mean stated confidence minus accuracy, of the methods where it is clear, largest first.
        impossible: Number of items whose true label a method called impossible, by method, where there are any.
        dependence: Mean absolute correlation of two voters among items of the same true label.
        chance_dependence: What it would be if voters were independent given the label.
    """

    labels: Leader | None
    probabilities: Leader | None
    gaps: Mapping[str, float]
    impossible: Mapping[str, int]
    dependence: float
    chance_dependence: float

    @property
    def dependent(self) -> bool:
        """Whether voters clearly depend on each other given the label."""
        return self.dependence > max(2 * self.chance_dependence, 0.05)


def find(view: View, means: Means, pairs: Pairs) -> Findings:
    """Look at one data set.

    Args:
        view: The data set.
        means: Scores by method and score.
        pairs: Differences by score, method and other method.
    """
    known = view.num_known > 0 and bool(view.estimates)
    return Findings(
        _leader(view, means, pairs, "balanced_accuracy", tested="accuracy") if known else None,
        _leader(view, means, pairs, "log_score", tested="log_score") if known else None,
        _gaps(view) if known else {},
        _impossible(view) if known else {},
        *_dependence(view),
    )


def _leader(view: View, means: Means, pairs: Pairs, score: str, tested: str) -> Leader:
    """The best of the estimates; p-values are multiplied by the number of methods that it is tested against."""
    best, *others = ranked(score, {method: means[method, score] for method in view.estimates})
    behind = [other for other in others if len(others) * pairs[tested, best, other].p_value < SIGNIFICANCE]
    return Leader(best, tuple(other for other in others if other not in behind), tuple(behind))


def _gaps(view: View) -> dict[str, float]:
    known = view.labels >= 0
    found = {}
    for method, probs in view.estimates.items():
        excess = (probs.max(axis=1) - (probs.argmax(axis=1) == view.labels))[known]
        gap, error = float(excess.mean()), float(excess.std() / np.sqrt(len(excess)))
        if abs(gap) > max(LEAST_GAP, CLEAR * error):
            found[method] = gap
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _impossible(view: View) -> dict[str, int]:
    known = view.labels >= 0
    truth = view.labels[known][:, None].astype(int)
    counts = {
        method: int(np.sum(np.take_along_axis(probs[known], truth, axis=1) < IMPOSSIBLE))
        for method, probs in view.estimates.items()
    }
    return {method: count for method, count in counts.items() if count}


def _dependence(view: View) -> tuple[float, float]:
    """Mean absolute correlation of voters within classes, and its mean if there were none; nan where unknown.

    Only voters that voted on every item and voted differently within every class count.
    """
    if view.votes is None or view.num_known < 2:
        return np.nan, np.nan
    whole = view.votes[:, (view.votes >= 0).all(axis=0)].astype(np.float64)
    residuals = []
    for label in np.unique(view.labels[view.labels >= 0]):
        members = whole[view.labels == label]
        residuals.append(members - members.mean(axis=0))
    joined = np.concatenate(residuals)
    joined = joined[:, joined.std(axis=0) > 0]
    if joined.shape[1] < 2:
        return np.nan, np.nan
    correlations = np.corrcoef(joined, rowvar=False)[np.triu_indices(joined.shape[1], 1)]
    return float(np.abs(correlations).mean()), float(np.sqrt(2 / np.pi / len(joined)))
