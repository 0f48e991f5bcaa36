"""Which method to trust on given votes, judged on simulated twins of them and on gold labels."""

from latentens.recommendation.recommend import recommend

__all__ = ["recommend"]
