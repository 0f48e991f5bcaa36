"""Do the fitted models reproduce the votes? The verdicts, and the histogram of vote counts beside the models' own."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentens.reporting.drawing import Picture, panels, render, wrapped
from latentens.reporting.html import table
from latentens.reporting.parts import Part
from latentens.reporting.view import View

MOST_PANELS = 6
"""Histograms are drawn of so many methods."""


def check_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """What was found, for comparisons that were asked to check."""
    checks = _checks(view)
    if not checks:
        return None
    statistics = list(next(iter(checks.values()))["p_values"])
    rows = [
        [name, "no" if found["rejected"] else "yes", *(f"{p:.3f}" for p in found["p_values"].values())]
        for name, found in checks.items()
    ]
    frame = pd.DataFrame.from_dict(
        {name: {"p_value": found["p_value"], **found["p_values"]} for name, found in checks.items()}, orient="index"
    ).rename_axis("method")
    words = (
        *(f"{name}: {found['summary']}" for name, found in checks.items()),
        "A model that reproduces the votes is not proved right, and its labels need not be.",
    )
    return Part(
        "checks",
        "Do the fitted models reproduce the votes?",
        words,
        pictures=(_histograms(checks, colour),),
        body=(table(["p-value of", "reproduced", *statistics], rows),),
        tables={"checks": frame.reset_index()},
    )


def _checks(view: View) -> dict[str, dict[str, Any]]:
    """The record of each method's first fit."""
    names = dict.fromkeys(fit.method for fit in view.fits)
    found = {}
    for name, node in zip(names, view.node.children["fits"].children.values(), strict=True):
        records = [child.attrs.get("check", "") for child in node.children.values()]
        if written := next((record for record in records if record), ""):
            found[name] = json.loads(written)
    return found


def _histograms(checks: Mapping[str, dict[str, Any]], colour: Mapping[str, str]) -> Picture:
    """Items by the number of their votes, counted and as each model expects them."""
    shown = dict(list(checks.items())[:MOST_PANELS])
    figure, grid = panels(len(shown), 1.9)
    for axes, (name, found) in zip(grid, shown.items(), strict=True):
        place = np.arange(len(found["observed"]))
        axes.bar(place, found["observed"], color="#c9ced6")
        spread = 2 * np.array(found["deviation"])
        axes.errorbar(place, found["expected"], spread, fmt="o", markersize=3, color=colour.get(name, "black"))
        axes.set_title(wrapped(name))
        axes.set_xticks(place, [cell.removeprefix("items with ").partition(" vote")[0] for cell in found["cells"]])
        axes.set_xlabel("votes of an item")
        axes.grid(False, axis="x")
    grid[0].set_ylabel("items")
    return Picture(
        "vote-counts",
        "How many votes items get",
        "Bars: items by the number of votes that they got. Dots: what the fitted model expects, with two standard "
        "deviations that allow for the fit.",
        "Histograms of vote counts beside those of fitted models.",
        render(figure),
    )
