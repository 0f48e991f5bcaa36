"""Evaluation: scores with intervals, calibration, and checks that need no label."""

from latentens.evaluation.independence import ModelCheck, check_independence, check_model
from latentens.evaluation.intervals import compare_accuracy, compare_log_scores, intervals
from latentens.evaluation.reliability import Reliability, reliability
from latentens.evaluation.sbc import SimulationRanks, simulation_based_calibration
from latentens.evaluation.scores import evaluate

__all__ = [
    "ModelCheck",
    "Reliability",
    "SimulationRanks",
    "check_independence",
    "check_model",
    "compare_accuracy",
    "compare_log_scores",
    "evaluate",
    "intervals",
    "reliability",
    "simulation_based_calibration",
]
