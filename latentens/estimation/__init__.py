"""Estimates from gold labels and votes, the next labels or votes to collect, and the value of each judge."""

from latentens.estimation.estimate import estimate, explain
from latentens.estimation.judges import EffectiveJudges, PanelGrades, effective_judges, grade_panel, judge_worth
from latentens.estimation.next_labels import labels_needed, next_labels, next_votes
from latentens.estimation.ranking import ranking

__all__ = [
    "EffectiveJudges",
    "PanelGrades",
    "effective_judges",
    "estimate",
    "explain",
    "grade_panel",
    "judge_worth",
    "labels_needed",
    "next_labels",
    "next_votes",
    "ranking",
]
