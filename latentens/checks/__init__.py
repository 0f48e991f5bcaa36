"""Checks that need no label: signal, agreement, dependence, predictive checks, simulation-based calibration."""

from latentens.checks.absence import AbsenceCheck, check_absence
from latentens.checks.agreement import agreement
from latentens.checks.dependence import (
    LabelDependence,
    ModelCheck,
    candidate_pairs,
    check_independence,
    check_model,
    label_dependence,
)
from latentens.checks.effective_voters import EffectiveNumber, EffectiveVoters, effective_number, effective_voters
from latentens.checks.held_out import PredictiveRanking, held_out_log_likelihood, leave_one_out, rank_predictions
from latentens.checks.predictive_check import PredictiveCheck, check_fit
from latentens.checks.sbc import SimulationRanks, posterior_sbc, simulation_based_calibration
from latentens.checks.signal import SignalCheck, check_signal, signal_summary

__all__ = [
    "AbsenceCheck",
    "EffectiveNumber",
    "EffectiveVoters",
    "LabelDependence",
    "ModelCheck",
    "PredictiveCheck",
    "PredictiveRanking",
    "SignalCheck",
    "SimulationRanks",
    "agreement",
    "candidate_pairs",
    "check_absence",
    "check_fit",
    "check_independence",
    "check_model",
    "check_signal",
    "effective_number",
    "effective_voters",
    "held_out_log_likelihood",
    "label_dependence",
    "leave_one_out",
    "posterior_sbc",
    "rank_predictions",
    "signal_summary",
    "simulation_based_calibration",
]
