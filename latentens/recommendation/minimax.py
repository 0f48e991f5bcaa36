"""The choice of a method: gold labels first, then the worst of the worlds, and where neither can tell the safest."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latentens.recommendation.catalogue import SAFEST
from latentens.recommendation.expected_scores import Difference, ScoreName, TwinScores
from latentens.recommendation.gold_verdict import GoldVerdict

INDIFFERENCE: Mapping[ScoreName, float] = {"balanced_accuracy": 0.001, "log_score": 0.005}
"""Losses that differ less than this are equal, however surely they differ: a tenth of a point, and 0.005 nats."""


class Column(NamedTuple):
    """What each method loses against the best one in one world.

    Attributes:
        name: Of the world.
        best: The best method.
        losses: By method.
    """

    name: str
    best: str
    losses: Mapping[str, Difference]


class Choice(NamedTuple):
    """The method that was chosen.

    Attributes:
        method: Its name.
        worst: The column in which it loses most; None if there is no world to tell.
        loss: How much it loses there, in balanced accuracy.
        equals: Methods whose labels are as good.
    """

    method: str
    worst: Column | None
    loss: float
    equals: tuple[str, ...]


def column(scores: TwinScores, score: ScoreName, methods: Sequence[str]) -> Column:
    """The losses in one world."""
    best = scores.best(score, methods)
    return Column(scores.world, best, {method: scores.gain(score, best, method) for method in methods})


def choose(
    labels: Sequence[Column], probabilities: Sequence[Column], methods: Sequence[str], gold: GoldVerdict | None = None
) -> Choice:
    """Choose a method.

    Gold labels come first: only methods whose labels are within a standard error of the best on them are considered.
    Of these the one with the smallest worst loss of labels in any world is taken; among equals that of probabilities;
    among these the first. Without worlds it is the safest one of those whose log score, too, is within a standard error
    of the best on the gold labels, and without both the safest one.

    Args:
        labels: Losses of balanced accuracy, by world.
        probabilities: Losses of log score, by world.
        methods: The methods to choose from, the cheaper ones first.
        gold: What gold labels say, where there are any.
    """
    if gold is not None:
        methods = [name for name in methods if name in gold.close]
    if labels:
        equals = _equals(labels, methods, "balanced_accuracy")
        chosen = _equals(probabilities, equals, "log_score")[0]
        worst = _worst(labels, chosen)
        return Choice(chosen, worst, worst.losses[chosen].mean, tuple(equals))
    if gold is not None:
        level = [name for name in methods if name in gold.level]
        chosen = next((name for name in SAFEST if name in level), min(level, key=lambda name: gold.log_score[name]))
    else:
        chosen = next((name for name in SAFEST if name in methods), methods[0])
    return Choice(chosen, None, 0.0, tuple(methods))


def _equals(columns: Sequence[Column], methods: Sequence[str], score: ScoreName) -> list[str]:
    """The methods whose worst loss is as good as the smallest, in the order given."""
    worst = {method: _worst(columns, method).losses[method].mean for method in methods}
    limit = min(worst.values()) + INDIFFERENCE[score]
    return [method for method, loss in worst.items() if loss <= limit]


def _worst(columns: Sequence[Column], method: str) -> Column:
    return max(columns, key=lambda column: column.losses[method].mean)
