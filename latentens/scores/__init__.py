"""Scores of posteriors against labels, their intervals, paired tests and calibration."""

from latentens.scores.paired import (
    Labels,
    PairedDifference,
    Posterior,
    compare_accuracy,
    compare_balanced_accuracy,
    compare_log_scores,
    holm,
    log_losses,
)
from latentens.scores.reliability import Reliability, reliability
from latentens.scores.scores import CONFIDENT, SCORES, Items, Sample, Score, averaged, evaluate, intervals

__all__ = [
    "CONFIDENT",
    "SCORES",
    "Items",
    "Labels",
    "PairedDifference",
    "Posterior",
    "Reliability",
    "Sample",
    "Score",
    "averaged",
    "compare_accuracy",
    "compare_balanced_accuracy",
    "compare_log_scores",
    "evaluate",
    "holm",
    "intervals",
    "log_losses",
    "reliability",
]
