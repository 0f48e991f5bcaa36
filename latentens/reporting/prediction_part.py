"""Which model predicts the votes best? What the page says where labels are not known."""

from collections.abc import Mapping

import pandas as pd

from latentens.evaluation.predictive import PredictiveRanking
from latentens.reporting.html import table
from latentens.reporting.parts import Part
from latentens.reporting.view import View

WARNING = (
    "A model that predicts votes best describes best how votes come about. Its labels need not be the best: what "
    "explains most of the votes may be something other than the label."
)


def rank_models(view: View) -> tuple[PredictiveRanking, dict[str, str]] | None:
    """The methods that give votes a probability, and how each was judged; None where they are fewer than two."""
    if "predictions" not in view.node.children:
        return None
    found = view.node["predictions"].to_dataset()
    if found.sizes["estimator"] < 2:
        return None
    brief = _short_names(view)
    names = [brief.get(name, name) for name in map(str, found["estimator"].to_numpy())]
    densities = dict(zip(names, found["log_density"].to_numpy(), strict=True))
    return PredictiveRanking(densities), dict(zip(names, map(str, found["by"].to_numpy()), strict=True))


def _short_names(view: View) -> dict[str, str]:
    """What the page calls each estimator of the tree."""
    nodes = view.node.children["fits"].children.values()
    methods = dict.fromkeys(fit.method for fit in view.fits)
    return {str(node.attrs["estimator"]): method for node, method in zip(nodes, methods, strict=True)}


def prediction_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The table of models in the order of how well they predict votes."""
    del colour
    ranked = rank_models(view)
    if ranked is None:
        return None
    ranking, by = ranked
    frame = ranking.table.assign(by=lambda rows: [by[name] for name in rows.index])
    rows = [
        [name, f"{row.elpd:,.1f}".replace("-", "−"), _with_error(row.difference, row.difference_error), row.by]
        for name, row in frame.iterrows()
    ]
    headings = ["method", "log predictive density", "behind the best, ± standard error", "judged by"]
    words = (ranking.summary.partition(" This says")[0], WARNING)
    return Part(
        "predictions",
        "Which model predicts the votes best?",
        words,
        body=(table(headings, [[str(cell) for cell in row] for row in rows]),),
        tables={"predictions": frame.reset_index()},
    )


def _with_error(difference: float, error: float) -> str:
    return "–" if difference == 0 else f"{difference:,.1f} ± {error:,.1f}".replace("-", "−")


def ranking_frame(view: View) -> pd.DataFrame | None:
    """The same as a data frame, for the command line."""
    ranked = rank_models(view)
    return None if ranked is None else ranked[0].table.assign(by=[ranked[1][name] for name in ranked[0].table.index])
