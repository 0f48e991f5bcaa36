"""Conclusions of a comparison in numbers: which method is best, which are tied, which are overconfident."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from latentens.checks import label_dependence
from latentens.checks.dependence import MAX_VOTERS
from latentens.comparison import DatasetResult
from latentens.reporting.tables import Means, Pairs, ranked
from latentens.runtime.text import rounds_to_nothing
from latentens.scores.scores import find_score

SIGNIFICANCE = 0.05
LEAST_KNOWN = 50
"""Minimum number of known labels to judge methods and voters by."""


@dataclass(frozen=True)
class Leader:
    """The best method by one score.

    Attributes:
        method: Its name.
        tied: Methods that do not differ significantly from it, or whose difference is printed as zero.
        behind: The others, best first: those that are significantly worse.
    """

    method: str
    tied: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """All other methods."""
        return (*self.tied, *self.behind)


@dataclass(frozen=True)
class Dependence:
    """Pairs of voters that agree more than chance explains among items of the same true label.

    Attributes:
        num_dependent: Number of such pairs.
        num_checked: Number of pairs with enough votes in common to tell.
        strongest: The two voters, by number, with the strongest correlation.
        correlation: That correlation.
    """

    num_dependent: int
    num_checked: int
    strongest: tuple[int, int] | None
    correlation: float


@dataclass(frozen=True)
class Findings:
    """Conclusions on one data set.

    Attributes:
        labels: Leader by balanced accuracy; None where no label is known.
        probabilities: Leader by log score; None where no label is known.
        gaps: Mean stated confidence minus accuracy, of the methods where it is clear, largest first.
        impossible: Number of items whose true label a method practically ruled out, by method, where there are any.
        dependence: How voters depend on each other given the true label; None where that is unknown.
        scarce: Whether the known labels are too few to say which method to trust.
    """

    labels: Leader | None
    probabilities: Leader | None
    gaps: Mapping[str, float]
    impossible: Mapping[str, int]
    dependence: Dependence | None
    scarce: bool

    @property
    def dependent(self) -> bool:
        """Whether some voters clearly depend on each other given the label."""
        return self.dependence is not None and self.dependence.num_dependent > 0


def find(data: DatasetResult, means: Means, pairs: Pairs) -> Findings:
    """Draw conclusions on one data set.

    Args:
        data: The data set.
        means: Scores by method and score.
        pairs: Differences by score, method and other method.
    """
    known = data.num_known > 0 and bool(data.estimates)
    return Findings(
        _leader(data, means, pairs, "balanced_accuracy") if known else None,
        _leader(data, means, pairs, "log_score") if known else None,
        _gaps(data, means) if known else {},
        _impossible(data) if known else {},
        _dependence(data) if known else None,
        _is_scarce(data),
    )


def _leader(data: DatasetResult, means: Means, pairs: Pairs, score: str) -> Leader:
    """The best method by a score, and those that are significantly worse by the same score."""
    best, *others = ranked(find_score(score), {method: means[method, score] for method in data.estimates})
    sign = 1 if find_score(score).better == "larger" else -1
    differences = {other: pairs[score, best, other] for other in others}
    behind = [
        other
        for other, found in differences.items()
        if found.p_value < SIGNIFICANCE
        and sign * found.difference > 0
        and not rounds_to_nothing(gap_text(score, found.difference))
    ]
    return Leader(best, tuple(other for other in others if other not in behind), tuple(behind))


def gap_text(score: str, difference: float) -> str:
    """The size of a difference in a score, as sentences print it."""
    size = abs(difference)
    return f"{100 * size:.1f} points" if find_score(score).unit == "%" else f"{size:.2f} nats"


def _is_scarce(data: DatasetResult, least_of_class: int = 10) -> bool:
    """Whether there are too few known labels, in total or of a class."""
    counts = np.bincount(data.labels[data.labels >= 0].astype(int), minlength=len(data.class_names))
    return bool(counts.sum() < LEAST_KNOWN or counts.min() < least_of_class)


def _gaps(data: DatasetResult, means: Means, clear: float = 3.0, least: float = 0.02) -> dict[str, float]:
    """Where confidence and accuracy clearly differ: in standard errors, and by an interval made for few labels."""
    known = data.labels >= 0
    found = {}
    for method, probs in data.scored_estimates.items():
        excess = (probs.max(axis=1) - (probs.argmax(axis=1) == data.labels))[known]
        gap, error = float(excess.mean()), float(excess.std() / np.sqrt(len(excess)))
        interval = means.get((method, "confidence_gap"))
        is_open = interval is not None and interval.low <= 0 <= interval.high
        if abs(gap) > max(least, clear * error) and not is_open:
            found[method] = gap
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _impossible(data: DatasetResult, impossible: float = 1e-12) -> dict[str, int]:
    known = data.labels >= 0
    truth = data.labels[known][:, None].astype(int)
    counts = {
        method: int(np.sum(np.take_along_axis(probs[known], truth, axis=1) < impossible))
        for method, probs in data.scored_estimates.items()
    }
    return {method: count for method, count in counts.items() if count}


def _dependence(data: DatasetResult) -> Dependence | None:
    """All pairs of voters with enough votes in common; None where too little is known or voters are too many."""
    if data.votes.is_sparse or data.num_known < 2 or data.votes.num_voters > MAX_VOTERS:
        return None
    found = label_dependence(data.votes.matrix, data.labels, len(data.class_names))
    pairs = found.dependent(SIGNIFICANCE)
    strongest = pairs[0] if pairs else None
    correlation = float(found.correlation[strongest]) if strongest else 0.0
    return Dependence(len(pairs), int(np.triu(found.checked).sum()), strongest, correlation)
