"""Parts of a report on the votes themselves: signal, checks, predictions, what voters are worth, items to look at."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentens.checks import PredictiveRanking
from latentens.comparison.dependence import WORTH
from latentens.reporting.drawing import Picture, panels, render, wrapped
from latentens.reporting.html import Html, details, number_cell, table, words_cell
from latentens.reporting.parts import Part
from latentens.reporting.tables import consensus
from latentens.reporting.view import View


def signal_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """Whether voters agree more than by chance, as the comparison has it on record."""
    del colour
    words = view.node["observed_data"].attrs.get("signal")  # older comparisons have none
    return Part("signal", "Do the voters agree more than by chance?", (words,)) if words else None


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


NOT_ASKED = (
    "This was not computed, since it takes longer than most methods. The option --checks of latentens compare puts it "
    "on this page; latentens check --worth prints it."
)


def worth_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """How many independent voters these are worth; without labels, where nobody asked, how to ask."""
    del colour
    if WORTH in view.node.children:
        found = view.node[WORTH].attrs
        words = [str(found["summary"]), *_by_correlation(found)]
    elif view.num_known == 0 and not view.is_simulated:
        words = [NOT_ASKED]
    else:
        return None
    return Part("worth", "How many independent voters are these worth?", words)


def _by_correlation(found: Mapping[Any, Any]) -> list[str]:
    if "by_correlation" not in found:
        return []
    return [
        "So many independent voters of the same quality would have as much information about the label. By the mean "
        f"correlation of two voters' errors alone, the design effect, it would be {found['by_correlation']:.1f}."
    ]


MOST_ITEMS = 25
"""Rows of each table; the file `labels.csv` has all items."""

MOST_NAMED = 6
"""Up to this many votes are listed with the voters' names; more are counted."""


def items_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The items that a person should look at, for votes whose origin is unknown."""
    del colour
    if view.is_simulated or not view.estimates:
        return None
    label, agreeing = consensus(view)
    confidence = np.mean([probs.max(axis=1) for probs in view.estimates.values()], axis=0)
    order = np.argsort(confidence, kind="stable")
    disputed = [int(item) for item in order if agreeing[item] < len(view.estimates)]
    words = [
        "The items about which the methods are least sure, by the mean probability of their labels. A person who can "
        "label a few items should begin here; for measuring accuracy, take items at random instead."
    ]
    body = [_uncertain_table(view, order[:MOST_ITEMS].tolist(), label, confidence)]
    if len(view.estimates) > 1:
        body += _disputed(view, disputed)
    return Part("items", "Items to look at", words, body=body)


def _uncertain_table(view: View, items: list[int], label: np.ndarray, confidence: np.ndarray) -> Html:
    rows = [
        [
            _name(view, item),
            words_cell(votes_text(view, item)),
            view.class_names[label[item]],
            _percent(confidence[item]),
        ]
        for item in items
    ]
    return table(["Least certain items", "votes", "label by most methods", "mean confidence"], rows)


def _disputed(view: View, items: list[int]) -> list[Html]:
    """The items on which methods disagree, with every method's label."""
    share = len(items) / view.num_items
    summary = f"{len(items):,} items ({100 * share:.1f}\u00a0%) on which methods disagree"
    rows = [
        [
            _name(view, item),
            words_cell(votes_text(view, item)),
            *(_given(view, probs[item]) for probs in view.estimates.values()),
        ]
        for item in items[:MOST_ITEMS]
    ]
    return [details(summary, table(["Disputed items", "votes", *view.estimates], rows))] if rows else []


def _given(view: View, probs: np.ndarray) -> str:
    best = int(probs.argmax())
    return f"{view.class_names[best]} ({100 * probs[best]:.0f}\u00a0%)"


def votes_text(view: View, item: int) -> str:
    """The votes on an item: with the voters' names if they are few, else counted."""
    votes = view.votes.between(item, item + 1)
    _, voters, classes = votes.triplets
    if 0 < len(voters) <= MOST_NAMED:
        named = zip(voters, classes, strict=True)
        return ", ".join(f"{view.voter_names[voter]}: {view.class_names[vote]}" for voter, vote in named)
    counts = np.bincount(classes, minlength=len(view.class_names))
    said = [f"{count}\u00a0×\u00a0{view.class_names[vote]}" for vote, count in enumerate(counts) if count]
    return ", ".join(said) or "no votes"


def _name(view: View, item: int) -> str:
    return str(view.votes.item_names[item])


def _percent(share: float) -> Html:
    return number_cell(f"{100 * share:.0f}\u00a0%", order=share)
