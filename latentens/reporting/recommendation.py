"""The part of the page with the recommendation of a method, from simulated twins of the votes."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr

from latentens.comparison import EXACT, DatasetResult
from latentens.recommendation.recommend import GROUP, method_rows, plausible_models
from latentens.recommendation.text import briefly
from latentens.reporting.drawing import PALETTE, Picture, render, row_axes
from latentens.reporting.layout import Block, Note, Part, Row, Table, number, words

TABLE_WORDS = (
    "Small: 90 % intervals of the balanced accuracy, and the loss in points against the exact posterior. "
    "Each column assumes that its model is right."
)


def recommendation_part(data: DatasetResult, colour: Mapping[str, str], most_beside: int = 2) -> Part | None:
    """The recommendation, if there is one."""
    del colour  # colours stand for models here
    if GROUP not in data.groups:
        return None
    found = data.groups[GROUP]
    text = [str(sentence) for sentence in found["sentence"].values if sentence]
    if "model" not in found.dims:
        return Part(GROUP, "Which method to use", text)
    models = plausible_models(found)
    if not models:  # nothing is expected of any method
        return Part(GROUP, "Which method to use", text, body=[_model_table(found)])
    methods, is_narrow = _method_table(found), len(models) <= most_beside
    body: list[Block] = [Note(TABLE_WORDS), _model_table(found)]
    beside, body = (methods, body) if is_narrow else (None, [methods, *body])
    return Part(GROUP, "Which method to use", text, [_picture(found)], beside, body, {"twins": _frame(found)})


def with_short_methods(data: DatasetResult, short: Mapping[str, str]) -> DatasetResult:
    """A data set with short names of methods, in its recommendation too."""
    groups = {name: briefly(group, short) if name == GROUP else group for name, group in data.groups.items()}
    return replace(data.renamed(short), groups=groups)


def _method_table(found: xr.Dataset) -> Table:
    models = plausible_models(found)
    headings = ["Method"] + [f"if {model}: {what}" for model in models for what in ("balanced acc. %", "log score")]
    rows = []
    for method, cells in method_rows(found):
        row: Row = [f"{method} (recommended)" if method == found.attrs["recommended"] else method]
        for cell in cells:
            small = cell.interval if method == EXACT else f"{cell.interval}; −{cell.regret}"
            row += [number(cell.accuracy, small), number(cell.log_score)]
        rows.append(row)
    return Table(headings, rows, EXACT)


def _model_table(found: xr.Dataset) -> Table:
    """The held-out log-likelihood of each model, and why it is ruled out."""
    rows: list[Row] = []
    for model in found["model"].values:
        row = found.sel(model=model)
        difference, error = float(row["difference"]), float(row["error"])
        apart = f"{difference:,.0f} ± {error:,.0f}".replace("-", "−") if difference else "best"
        reason = str(row["ruled_out"].item())
        verdict = f"no: {reason}" if reason else f"yes, weight {float(row['weight']):.2f}"
        rows.append([str(model), number(apart), words(verdict), words(str(row["check"].item()) or "–")])
    return Table(["Model", "held-out votes, nats", "Plausible?", "Predictive check"], rows)


def _picture(found: xr.Dataset) -> Picture:
    models, methods = plausible_models(found), [str(method) for method in found["estimator"].values]
    figure, (axes,) = row_axes(methods, above=0.25)
    for row, model in enumerate(models):
        part = found.sel(model=model)
        low, value, high = (100 * part[f"balanced_accuracy{end}"].to_numpy() for end in ("_low", "", "_high"))
        places = np.arange(len(methods)) + 0.5 * (row + 0.5) / len(models) - 0.25
        ends = np.maximum([value - low, high - value], 0.0)
        colour = PALETTE[row % len(PALETTE)]
        axes.errorbar(value, places, xerr=ends, fmt="o", markersize=4, color=colour, label=f"if {model}")
    axes.set_xlabel("expected balanced accuracy (%)")
    figure.legend(loc="outside upper left", ncols=2)
    return Picture(
        "recommendation",
        "What to expect of each method",
        "Balanced accuracy on twins of the votes, with 90 % intervals, under each plausible model.",
        f"Expected balanced accuracy of {len(methods)} methods under {len(models)} models.",
        render(figure),
    )


def _frame(found: xr.Dataset) -> pd.DataFrame:
    """Every expected figure, one row for each model and method."""
    wide = found[[name for name, values in found.items() if values.dims == ("model", "estimator")]]
    return wide.to_dataframe().reset_index().dropna()
