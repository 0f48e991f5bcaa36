from .figures import rank_figure as rank_figure
from .page import report as report
