"""Scores of posteriors against labels, their intervals, paired tests and calibration."""

from latentens.scores.reliability import Reliability, reliability
from latentens.scores.scores import SCORES, Score, evaluate, intervals
from latentens.scores.statistics import compare_accuracy, compare_balanced_accuracy, compare_log_scores

__all__ = [
    "SCORES",
    "Reliability",
    "Score",
    "compare_accuracy",
    "compare_balanced_accuracy",
    "compare_log_scores",
    "evaluate",
    "intervals",
    "reliability",
]
