"""Reports of comparisons: one HTML page, with its figures and tables as files."""

from latentens.reporting.figures import rank_figure
from latentens.reporting.page import report

__all__ = ["rank_figure", "report"]
