"""Numbers to report: estimates from gold labels helped by votes, what to label next, and what each judge is worth."""

from latentens.estimation.estimate import estimate, explain

__all__ = ["estimate", "explain"]
