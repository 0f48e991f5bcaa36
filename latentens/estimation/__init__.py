"""Numbers to report: estimates from gold labels helped by votes, what to ask next, and what each judge is worth."""

from latentens.estimation.estimate import estimate, explain
from latentens.estimation.judges import EffectiveJudges, effective_judges, judge_worth
from latentens.estimation.next_labels import labels_needed, next_labels, next_votes

__all__ = [
    "EffectiveJudges",
    "effective_judges",
    "estimate",
    "explain",
    "judge_worth",
    "labels_needed",
    "next_labels",
    "next_votes",
]
