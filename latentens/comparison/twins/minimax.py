"""The choice of a method: the smallest loss in the worst of the worlds, and among equals the cheaper one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from latentens.comparison.twins.expected_scores import (
    Difference,
    ScoreName,
    TwinScores,
    certain,
    contributions,
    sum_variance,
)
from latentens.evaluation.items import Labels, Posterior

INDIFFERENCE: Mapping[ScoreName, float] = {"balanced_accuracy": 0.001, "log_score": 0.005}
"""Losses that differ less than this are equal, however surely they differ: a tenth of a point, and 0.005 nats."""

PROVEN = 1.645
"""Gold labels count for what they prove: their loss less so many standard errors."""

GOLD = "gold labels"


class Column(NamedTuple):
    """What each method loses against the best one, in one world or on the gold labels.

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
        worst: The column in which it loses most.
        loss: How much it loses there, in balanced accuracy.
        equals: Methods whose labels are as good.
    """

    method: str
    worst: Column
    loss: Difference
    equals: tuple[str, ...]


def column(scores: TwinScores, score: ScoreName, methods: Sequence[str]) -> Column:
    """The losses in one world."""
    best = scores.best(score, methods)
    return Column(scores.world, best, {method: scores.gain(score, best, method) for method in methods})


def gold_column(labels: Labels, posteriors: Mapping[str, Posterior], score: ScoreName) -> Column:
    """The losses that gold labels prove."""
    sign = 1 if score == "balanced_accuracy" else -1
    known = labels >= 0
    strata = labels if score == "balanced_accuracy" else np.zeros_like(labels)
    values = {
        name: sign * contributions(score, certain(labels, probs.shape[1]), probs)[known]
        for name, probs in posteriors.items()
    }
    best = max(values, key=lambda name: values[name].sum())
    losses = {}
    for name, own in values.items():
        gain = values[best] - own
        error = np.sqrt(sum_variance(gain, strata[known]))
        losses[name] = Difference(max(float(gain.sum() - PROVEN * error), 0.0), 0.0)
    return Column(GOLD, best, losses)


def choose(labels: Sequence[Column], probabilities: Sequence[Column], methods: Sequence[str]) -> Choice:
    """The method with the smallest worst loss of labels; among equals that of probabilities; among these the first.

    Labels that gold labels prove worse than those of another method are out of the question, whatever worlds say.

    Args:
        labels: Losses of balanced accuracy, by world.
        probabilities: Losses of log score, by world.
        methods: The methods, the cheaper ones first.
    """
    equals = _equals(labels, _unrefuted(labels, methods), "balanced_accuracy")
    chosen = _equals(probabilities, equals, "log_score")[0]
    worst = _worst(labels, chosen)
    return Choice(chosen, worst, worst.losses[chosen], tuple(equals))


def _equals(columns: Sequence[Column], methods: Sequence[str], score: ScoreName) -> list[str]:
    """The methods whose worst loss is as good as the smallest, in the order given."""
    worst = {method: _worst(columns, method).losses[method].mean for method in methods}
    limit = min(worst.values()) + INDIFFERENCE[score]
    return [method for method, loss in worst.items() if loss <= limit]


def _unrefuted(columns: Sequence[Column], methods: Sequence[str]) -> list[str]:
    """The methods that gold labels do not prove worse than another."""
    gold = [column.losses for column in columns if column.name == GOLD]
    return [name for name in methods if all(losses[name].mean <= INDIFFERENCE["balanced_accuracy"] for losses in gold)]


def _worst(columns: Sequence[Column], method: str) -> Column:
    return max(columns, key=lambda column: column.losses[method].mean)
