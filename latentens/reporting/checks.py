"""Parts of the page on the votes and models: signal, items to look at, effective voters, predictions, checks."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from latentens.comparison import DatasetResult
from latentens.comparison.result import CheckResult
from latentens.reporting.drawing import Picture, panels, render, wrapped
from latentens.reporting.layout import Block, Part, Row, Table, number, words
from latentens.reporting.tables import WARNING, consensus, prediction_frame

MOST_ITEMS = 25
"""Rows of each table of items; the file `labels.csv` has all items."""

NOT_COMPUTED = (
    "This was not computed, since it takes longer than most methods. To add it to this page, run latentens compare "
    "with --checks; latentens check --worth prints it."
)


def signal_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """Whether voters agree more than by chance."""
    del colour
    return Part("signal", "Do the voters agree more than by chance?", (data.signal,))


def check_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """Whether the fitted models reproduce the votes, if that was checked."""
    checks = {name: fit.check for name, fit in data.first_fits.items() if fit.check is not None}
    if not checks:
        return None
    rows: list[Row] = [
        [name, "no" if found.rejected else "yes", *(number(f"{p_value:.3f}") for p_value in found.p_values.values())]
        for name, found in checks.items()
    ]
    frame = pd.DataFrame.from_dict(
        {name: {"p_value": found.p_value, **found.p_values} for name, found in checks.items()}, orient="index"
    )
    return Part(
        "checks",
        "Do the fitted models reproduce the votes?",
        [
            *(f"{name}: {found.summary}" for name, found in checks.items()),
            "Reproducing the votes does not prove a model right, nor its labels.",
        ],
        [_histograms(checks, colour)],
        body=[Table(["p-value of", "reproduced", *next(iter(checks.values())).p_values], rows)],
        tables={"checks": frame.rename_axis("method").reset_index()},
    )


def _histograms(checks: Mapping[str, CheckResult], colour: Mapping[str, str], most: int = 6) -> Picture:
    """Items by the number of their votes, observed and as each model expects them."""
    shown = dict(list(checks.items())[:most])
    figure, grid = panels(len(shown), 1.9)
    for axes, (name, found) in zip(grid, shown.items(), strict=True):
        place = np.arange(len(found.observed))
        axes.bar(place, found.observed, color="#c9ced6")
        spread = 2 * np.array(found.deviation)
        axes.errorbar(place, found.expected, spread, fmt="o", markersize=3, color=colour.get(name, "black"))
        axes.set_title(wrapped(name))
        axes.set_xticks(place, found.bins)
        axes.set_xlabel("votes of an item")
        axes.grid(False, axis="x")
    grid[0].set_ylabel("items")
    return Picture(
        "vote-counts",
        "Number of votes per item",
        "Bars: observed number of items. Dots: the number that the fitted model expects, with two standard deviations "
        "that allow for the fit.",
        "Histograms of vote counts beside those of fitted models.",
        render(figure),
    )


def prediction_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """The models in the order of how well they predict votes."""
    del colour
    found = prediction_frame(data)
    if found is None:
        return None
    frame, ranking = found
    rows: list[Row] = []
    for name, row in frame.iterrows():
        behind = f"{row.difference:,.1f} ± {row.difference_error:,.1f}" if row.difference else "–"
        shown = [number(text.replace("-", "−")) for text in (f"{row.elpd:,.1f}", behind)]
        rows.append([str(name), *shown, str(row.by)])
    headings = ["method", "log predictive density", "behind the best, ± standard error", "judged by"]
    return Part(
        "predictions",
        "Which model predicts the votes best?",
        (ranking.verdict, WARNING),
        body=[Table(headings, rows)],
        tables={"predictions": frame.reset_index()},
    )


def effective_voters_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """The effective number of voters; for unlabelled votes without it, how to compute it."""
    del colour
    if data.worth:
        text = [str(data.worth["summary"])]
        if "by_correlation" in data.worth:
            text.append(
                "That many independent voters of the same quality would carry as much information about the label. The "
                "design effect, from the mean correlation of two voters' errors alone, gives "
                f"{data.worth['by_correlation']:.1f}."
            )
    elif data.num_known == 0 and not data.is_simulated:
        text = [NOT_COMPUTED]
    else:
        return None
    return Part("worth", "How many independent voters are these worth?", text)


def items_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """The items that a person should look at, for votes of unknown origin."""
    del colour
    if data.is_simulated or not data.estimates:
        return None
    label, agreeing = consensus(data)
    confidence = np.mean([probs.max(axis=1) for probs in data.estimates.values()], axis=0)
    order = np.argsort(confidence, kind="stable").tolist()

    def about(item: int) -> list[str]:
        return [str(data.votes.item_names[item]), votes_text(data, item)]

    uncertain: list[Row] = []
    for item in order[:MOST_ITEMS]:
        name, cast = about(item)
        share = number(f"{100 * confidence[item]:.0f}\u00a0%", order=confidence[item])
        uncertain.append([name, words(cast), data.class_names[label[item]], share])
    headings = ["Least certain items", "votes", "label by most methods", "mean confidence"]
    body: list[Block] = [Table(headings, uncertain)]
    disputed = [item for item in order if agreeing[item] < len(data.estimates)]
    if disputed:
        rows: list[Row] = []
        for item in disputed[:MOST_ITEMS]:
            name, cast = about(item)
            best = [(int(probs[item].argmax()), probs[item].max()) for probs in data.estimates.values()]
            given = [f"{data.class_names[label]} ({100 * prob:.0f}\u00a0%)" for label, prob in best]
            rows.append([name, words(cast), *given])
        part = f"{100 * len(disputed) / data.votes.num_items:.1f}\u00a0%"
        summary = f"{len(disputed):,} items ({part}) on which methods disagree"
        body.append(Table(["Disputed items", "votes", *data.estimates], rows, summary=summary))
    text = (
        "The items about which the methods are least certain, by the mean probability of their labels. Label these "
        "first to improve the labels; to measure accuracy, take items at random."
    )
    return Part("items", "Items to look at", [text], body=body)


def votes_text(data: DatasetResult, item: int, most_named: int = 6) -> str:
    """The votes on an item: with the voters' names if they are few, otherwise counted."""
    names, (_, voters, classes) = data.votes.category_names, data.votes.between(item, item + 1).triplets
    if 0 < len(voters) <= most_named:
        named = zip(voters, classes, strict=True)
        return ", ".join(f"{data.voter_names[voter]}: {names[vote]}" for voter, vote in named)
    counts = np.bincount(classes, minlength=len(names))
    cast = [f"{count}\u00a0×\u00a0{names[vote]}" for vote, count in enumerate(counts) if count]
    return ", ".join(cast) or "no votes"
