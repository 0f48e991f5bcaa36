"""What gold labels say about methods, each label predicted by a fit that has not seen it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

import jax
import numpy as np
from scipy.special import ndtri, stdtrit

from latentens.recommendation.expected_scores import Estimated
from latentens.scores.items import Labels, Posterior
from latentens.scores.scores import evaluate, intervals
from latentens.scores.statistics import PairedDifference, compare_balanced_accuracy, compare_log_scores, holm

SIGNIFICANCE = 0.05
RESAMPLES = 1000
LEVEL = 0.95
"""Coverage of the intervals of scores on gold labels."""


@dataclass(frozen=True, eq=False)
class GoldVerdict:
    """The methods on gold labels that their fits have not seen.

    Attributes:
        number: Number of gold labels.
        accuracy: Balanced accuracy by method, with 95 % intervals.
        log_score: Log score by method.
        gap: Mean confidence minus accuracy by method, with 95 % intervals.
        best: Of the methods that may be recommended, the one with the largest balanced accuracy; of several, the one
            with the smallest log score.
        close: Those of them whose balanced accuracy is at most one standard error of the difference below the best.
        level: Those of the close ones whose log score is at most one standard error above the smallest of theirs.
        worse: Those of them with clearly worse labels than the best: a paired test, adjusted for all pairs of methods.
    """

    number: int
    accuracy: Mapping[str, Estimated]
    log_score: Mapping[str, float]
    gap: Mapping[str, Estimated]
    best: str
    close: tuple[str, ...]
    level: tuple[str, ...]
    worse: tuple[str, ...]


def judge_by_gold(
    labels: Labels, posteriors: Mapping[str, Posterior], key: jax.Array, excluded: Collection[str] = ()
) -> GoldVerdict:
    """Score the methods on the items whose label is known.

    Args:
        labels: The gold labels, −1 for other items.
        posteriors: What each method says, about gold labels by a fit that has not seen them.
        key: Random key of the intervals.
        excluded: Methods that may not be recommended; they are scored, but not compared with the others.
    """
    known = labels >= 0
    truth, probs = labels[known], {name: found[known] for name, found in posteriors.items()}
    scores = {name: evaluate(truth, found) for name, found in probs.items()}
    ends = {name: intervals(truth, found, key=key, resamples=RESAMPLES, level=LEVEL) for name, found in probs.items()}
    accuracy, gap = (
        {name: Estimated(scores[name][score], *ends[name][score]) for name in probs}
        for score in ("balanced_accuracy", "confidence_gap")
    )
    log_score = {name: scores[name]["log_score"] for name in probs}
    probs = {name: found for name, found in probs.items() if name not in excluded}
    best = max(probs, key=lambda name: (accuracy[name].value, -log_score[name]))
    pairs = list(combinations(probs, 2))
    found = {pair: compare_balanced_accuracy(truth, *(probs[name] for name in pair)) for pair in pairs}
    adjusted = dict(zip(pairs, holm([difference.p_value for difference in found.values()]), strict=True))
    behind = {name: compare_balanced_accuracy(truth, probs[best], probs[name], level=LEVEL) for name in probs}
    close = tuple(name for name in probs if behind[name].difference <= _standard_error(behind[name]))
    surest = min(close, key=lambda name: log_score[name])
    lags = {name: compare_log_scores(truth, probs[name], probs[surest], level=LEVEL) for name in close}
    level = tuple(
        name for name in close if name == surest or lags[name].difference <= _log_error(lags[name], len(truth))
    )
    worse = tuple(
        name
        for name in probs
        if name not in close and adjusted[(best, name) if (best, name) in found else (name, best)] < SIGNIFICANCE
    )
    return GoldVerdict(int(known.sum()), accuracy, log_score, gap, best, close, level, worse)


def _standard_error(difference: PairedDifference) -> float:
    """Of a difference, from its interval: it is positive even where two methods are right on the same items."""
    return float((difference.high - difference.low) / (2 * ndtri((1 + LEVEL) / 2)))


def _log_error(difference: PairedDifference, number: int) -> float:
    """The same for log scores; nan, so that nothing is level, with a single label."""
    margin = (difference.high - difference.low) / 2
    return float(margin / stdtrit(number - 1, (1 + LEVEL) / 2)) if number > 1 else np.nan
