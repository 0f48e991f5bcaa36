"""Reports of comparisons: one page that anyone can read, with its figures and tables as files."""

from latentens.reporting.figures import rank_figure
from latentens.reporting.page import report

__all__ = ["rank_figure", "report"]
