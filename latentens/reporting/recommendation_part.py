"""The part of a report that says which method to use where no label is known, from twins of the votes."""

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from latentens.comparison import EXACT
from latentens.recommendation.recommend import GROUP, method_rows, plausible_models
from latentens.reporting.drawing import PALETTE, Picture, render, row_axes
from latentens.reporting.html import Html, element, footnotes, number_cell, table, words_cell
from latentens.reporting.parts import Part
from latentens.reporting.view import View, short_names, with_short_names

TABLE_WORDS = (
    "Small: 90 % intervals of the balanced accuracy, and the loss in points against the exact posterior. "
    "Each column assumes that its model is right."
)

MOST_BESIDE = 2
"""With more models than this the table of methods needs the whole width."""


def recommendation_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The recommendation that is on record, if any."""
    del colour  # colours stand for models here
    if GROUP not in view.node.children:
        return None
    found = view.node[GROUP].to_dataset()
    words = [words for words in json.loads(found.attrs["sentences"]) if words]
    if "model" not in found.dims:
        return Part(GROUP, "Which method to use", words)
    found, short = briefly(found)
    words = [with_short_names(text, short) for text in words]
    models = plausible_models(found)
    if not models:  # nothing is expected of any method
        return Part(GROUP, "Which method to use", words, body=[*footnotes(short), _model_table(found)])
    methods, is_narrow = _method_table(found), len(models) <= MOST_BESIDE
    body = [element("p", TABLE_WORDS, class_="soft"), *footnotes(short), _model_table(found)]
    if not is_narrow:
        body = [methods, *body]
    beside = methods if is_narrow else None
    return Part(GROUP, "Which method to use", words, [_picture(found)], beside, body, {"twins": _frame(found)})


def briefly(found: xr.Dataset) -> tuple[xr.Dataset, dict[str, str]]:
    """A recommendation under short names of methods, and these by the full ones that differ from them."""
    short = short_names(map(str, found["estimator"].values))
    renamed = found.assign_coords(estimator=list(short.values()))
    renamed.attrs["recommended"] = short.get(found.attrs["recommended"], found.attrs["recommended"])
    return renamed, {name: brief for name, brief in short.items() if brief != name}


def _method_table(found: xr.Dataset) -> Html:
    models = plausible_models(found)
    headings = ["Method"] + [f"if {model}: {what}" for model in models for what in ("balanced acc. %", "log score")]
    rows = []
    for method, cells in method_rows(found):
        row: list[str] = [f"{method} (recommended)" if method == found.attrs["recommended"] else method]
        for cell in cells:
            small = cell.interval if method == EXACT else f"{cell.interval}; −{cell.regret}"
            row += [number_cell(cell.accuracy, element("small", small)), number_cell(cell.log_score)]
        rows.append(row)
    return table(headings, rows, EXACT)


def _model_table(found: xr.Dataset) -> Html:
    """The held-out log-likelihood of each model, and why it is ruled out."""
    rows = []
    for model in found["model"].values:
        row = found.sel(model=model)
        difference, error = float(row["difference"]), float(row["error"])
        apart = f"{difference:,.0f} ± {error:,.0f}".replace("-", "−") if difference else "best"
        reason = str(row["ruled_out"].item())
        verdict = f"no: {reason}" if reason else f"yes, weight {float(row['weight']):.2f}"
        rows.append([str(model), number_cell(apart), words_cell(verdict), words_cell(str(row["check"].item()) or "–")])
    return table(["Model", "held-out votes, nats", "Plausible?", "Predictive check"], rows)


def _picture(found: xr.Dataset) -> Picture:
    models, methods = plausible_models(found), [str(method) for method in found["estimator"].values]
    figure, (axes,) = row_axes(methods, above=0.25)
    for number, model in enumerate(models):
        part = found.sel(model=model)
        low, value, high = (100 * part[f"balanced_accuracy{end}"].to_numpy() for end in ("_low", "", "_high"))
        places = np.arange(len(methods)) + 0.5 * (number + 0.5) / len(models) - 0.25
        ends = np.maximum([value - low, high - value], 0.0)
        colour = PALETTE[number % len(PALETTE)]
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
