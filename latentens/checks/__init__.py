"""Checks that need no label: signal, dependence between voters, predictive checks, simulation-based calibration."""

from latentens.checks.effective_voters import EffectiveVoters, effective_voters, voters_worth
from latentens.checks.fit_check import FitCheck, check_fit
from latentens.checks.independence import ModelCheck, check_independence, check_model
from latentens.checks.predictive import (
    PredictiveRanking,
    held_out_log_likelihood,
    leave_one_out,
    rank_predictions,
)
from latentens.checks.sbc import SimulationRanks, simulation_based_calibration
from latentens.checks.signal import SignalCheck, check_signal

__all__ = [
    "EffectiveVoters",
    "FitCheck",
    "ModelCheck",
    "PredictiveRanking",
    "SignalCheck",
    "SimulationRanks",
    "check_fit",
    "check_independence",
    "check_model",
    "check_signal",
    "effective_voters",
    "held_out_log_likelihood",
    "leave_one_out",
    "rank_predictions",
    "simulation_based_calibration",
    "voters_worth",
]
