"""What a comparison says about its methods, in numbers: who leads, who ties, who is too sure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from latentens.checks import label_dependence
from latentens.checks.dependence import MAX_VOTERS
from latentens.reporting.tables import Means, Pairs, ranked
from latentens.reporting.view import View
from latentens.runtime.text import rounds_to_nothing
from latentens.scores.scores import find_score

SIGNIFICANCE = 0.05
LEAST_GAP = 0.02
"""Stated confidence and accuracy may differ by this much before a method is called too sure or too modest."""

CLEAR = 3.0
"""Standard errors by which the gap must exceed zero."""

IMPOSSIBLE = 1e-12
"""A true label with a smaller probability was as good as ruled out."""

LEAST_KNOWN = 50
LEAST_OF_CLASS = 10
"""With fewer known labels than these, in all or of a class, nothing is said about whom to trust."""


@dataclass(frozen=True)
class Leader:
    """The best method by one score.

    Attributes:
        method: Its name.
        tied: Methods that cannot be told apart from it, or whose difference rounds to nothing as it is printed.
        behind: The others, best first: those that are clearly behind.
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
    """What can be said of one data set.

    Attributes:
        labels: Leader by balanced accuracy; None where no label is known.
        probabilities: Leader by log score; None where no label is known.
        gaps: Mean stated confidence minus accuracy, of the methods where it is clear, largest first.
        impossible: Number of items whose true label a method as good as ruled out, by method, where there are any.
        dependence: How voters depend on each other given the true label; None where that cannot be told.
        scarce: Whether the known labels are too few to say whom to trust.
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


def find(view: View, means: Means, pairs: Pairs) -> Findings:
    """Look at one data set.

    Args:
        view: The data set.
        means: Scores by method and score.
        pairs: Differences by score, method and other method.
    """
    known = view.num_known > 0 and bool(view.estimates)
    return Findings(
        _leader(view, means, pairs, "balanced_accuracy") if known else None,
        _leader(view, means, pairs, "log_score") if known else None,
        _gaps(view, means) if known else {},
        _impossible(view) if known else {},
        _dependence(view) if known else None,
        _is_scarce(view),
    )


def _leader(view: View, means: Means, pairs: Pairs, score: str) -> Leader:
    """The best of the estimates by a score, and those that the same score can tell from it, in the right direction."""
    best, *others = ranked(score, {method: means[method, score] for method in view.estimates})
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


def _is_scarce(view: View) -> bool:
    """Whether the known labels are too few to say whom to trust: in all, or of a class."""
    counts = np.bincount(view.labels[view.labels >= 0].astype(int), minlength=len(view.class_names))
    return bool(counts.sum() < LEAST_KNOWN or counts.min() < LEAST_OF_CLASS)


def _gaps(view: View, means: Means) -> dict[str, float]:
    """Where confidence and accuracy clearly differ: in standard errors, and by an interval made for few labels."""
    known = view.labels >= 0
    found = {}
    for method, probs in view.scored_estimates.items():
        excess = (probs.max(axis=1) - (probs.argmax(axis=1) == view.labels))[known]
        gap, error = float(excess.mean()), float(excess.std() / np.sqrt(len(excess)))
        interval = means.get((method, "confidence_gap"))
        is_open = interval is not None and interval.low <= 0 <= interval.high
        if abs(gap) > max(LEAST_GAP, CLEAR * error) and not is_open:
            found[method] = gap
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _impossible(view: View) -> dict[str, int]:
    known = view.labels >= 0
    truth = view.labels[known][:, None].astype(int)
    counts = {
        method: int(np.sum(np.take_along_axis(probs[known], truth, axis=1) < IMPOSSIBLE))
        for method, probs in view.scored_estimates.items()
    }
    return {method: count for method, count in counts.items() if count}


def _dependence(view: View) -> Dependence | None:
    """All pairs of voters with enough votes in common; None where too little is known or voters are too many."""
    if view.votes.is_sparse or view.num_known < 2 or view.num_voters > MAX_VOTERS:
        return None
    found = label_dependence(view.votes.matrix, view.labels, len(view.class_names))
    pairs = found.dependent(SIGNIFICANCE)
    strongest = pairs[0] if pairs else None
    correlation = float(found.correlation[strongest]) if strongest else 0.0
    return Dependence(len(pairs), int(np.triu(found.checked).sum()), strongest, correlation)
