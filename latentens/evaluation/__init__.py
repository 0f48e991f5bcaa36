"""Evaluation: scores with intervals, calibration, and checks that need no label."""

from latentens.evaluation.effective_voters import EffectiveVoters, effective_voters, voters_worth
from latentens.evaluation.fit_check import FitCheck, check_fit
from latentens.evaluation.independence import ModelCheck, check_independence, check_model
from latentens.evaluation.predictive import (
    PredictiveRanking,
    held_out_log_likelihood,
    leave_one_out,
    rank_predictions,
)
from latentens.evaluation.reliability import Reliability, reliability
from latentens.evaluation.sbc import SimulationRanks, simulation_based_calibration
from latentens.evaluation.scores import SCORES, Score, evaluate, intervals
from latentens.evaluation.signal import SignalCheck, check_signal
from latentens.evaluation.statistics import compare_accuracy, compare_balanced_accuracy, compare_log_scores

__all__ = [
    "SCORES",
    "EffectiveVoters",
    "FitCheck",
    "ModelCheck",
    "PredictiveRanking",
    "Reliability",
    "Score",
    "SignalCheck",
    "SimulationRanks",
    "check_fit",
    "check_independence",
    "check_model",
    "check_signal",
    "compare_accuracy",
    "compare_balanced_accuracy",
    "compare_log_scores",
    "effective_voters",
    "evaluate",
    "held_out_log_likelihood",
    "intervals",
    "leave_one_out",
    "rank_predictions",
    "reliability",
    "simulation_based_calibration",
    "voters_worth",
]
