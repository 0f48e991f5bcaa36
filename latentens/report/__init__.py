"""Reports of comparisons: one page that anyone can read, with its figures and tables as files."""

from latentens.report.rank_figure import rank_figure
from latentens.report.write import report

__all__ = ["rank_figure", "report"]
