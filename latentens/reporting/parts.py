"""Parts of the page: recommendation, signal, estimates, items to look at, effective voters, predictions, checks."""

import warnings
from collections.abc import Mapping

import jax
import numpy as np
import pandas as pd
import xarray as xr

from latentens.comparison import EXACT, DatasetResult
from latentens.comparison.result import CheckResult
from latentens.errors import LatentensError, LatentensWarning
from latentens.estimation import effective_judges, estimate, explain
from latentens.recommendation.recommend import GROUP, method_rows, plausible_models
from latentens.reporting.drawing import PALETTE, Picture, panels, picture, row_axes, wrapped
from latentens.reporting.layout import Block, Part, Row, Table, measured, number, words
from latentens.reporting.tables import WARNING, consensus, prediction_frame
from latentens.runtime.text import percent
from latentens.votes.matching import named_labels

TABLE_WORDS = (
    "Small: 90 % intervals of the balanced accuracy, and the loss in points against the exact posterior. "
    "Each column assumes that its model is right."
)


def recommendation_part(data: DatasetResult, most_beside: int = 2) -> Part | None:
    """The recommendation, if there is one."""
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
    body: list[Block] = [TABLE_WORDS, _model_table(found)]
    beside, body = (methods, body) if is_narrow else (None, [methods, *body])
    return Part(GROUP, "Which method to use", text, [_picture(found)], beside, body, {"twins": _frame(found)})


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
    return picture(
        figure,
        "recommendation",
        "What to expect of each method",
        "Balanced accuracy on twins of the votes, with 90 % intervals, under each plausible model.",
        f"Expected balanced accuracy of {len(methods)} methods under {len(models)} models.",
    )


def _frame(found: xr.Dataset) -> pd.DataFrame:
    """Every expected figure, one row for each model and method."""
    wide = found[[name for name, values in found.items() if values.dims == ("model", "estimator")]]
    return wide.to_dataframe().reset_index().dropna()


MOST_ITEMS = 25
"""Rows of each table of items; the file `labels.csv` has all items."""

NOT_COMPUTED = (
    "This was not computed, since it takes longer than most methods. To add it to this page, run latentens compare "
    "with --checks; latentens check --worth prints it."
)


def signal_part(data: DatasetResult) -> Part:
    """Whether voters agree more than by chance."""
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
    return picture(
        figure,
        "vote-counts",
        "Number of votes per item",
        "Bars: observed number of items. Dots: the number that the fitted model expects, with two standard deviations "
        "that allow for the fit.",
        "Histograms of vote counts beside those of fitted models.",
    )


def prediction_part(data: DatasetResult) -> Part | None:
    """The models in the order of how well they predict votes."""
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


def effective_voters_part(data: DatasetResult) -> Part | None:
    """The effective number of voters; for unlabelled votes without it, how to compute it."""
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


def items_part(data: DatasetResult) -> Part | None:
    """The items that a person should look at, for votes of unknown origin."""
    if data.is_simulated or not data.estimates:
        return None
    label, agreeing = consensus(data)
    confidence = np.mean([probs.max(axis=1) for probs in data.estimates.values()], axis=0)
    order = np.argsort(confidence, kind="stable").tolist()

    def about(item: int) -> Row:
        return [str(data.votes.item_names[item]), words(votes_text(data, item))]

    headings = ["Least certain items", "votes", "label by most methods", "mean confidence"]
    uncertain: list[Row] = [
        [*about(item), data.class_names[label[item]], number(percent(confidence[item]))] for item in order[:MOST_ITEMS]
    ]
    body: list[Block] = [Table(headings, uncertain)]
    disputed = [item for item in order if agreeing[item] < len(data.estimates)]
    if disputed:
        rows: list[Row] = []
        for item in disputed[:MOST_ITEMS]:
            stated = [probs[item] for probs in data.estimates.values()]
            given = [f"{data.class_names[probs.argmax()]} ({percent(probs.max())})" for probs in stated]
            rows.append([*about(item), *given])
        share = percent(len(disputed) / data.votes.num_items, 1)
        summary = f"{len(disputed):,} items ({share}) on which methods disagree"
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


INTRODUCTION = (
    "Estimates whose intervals do not depend on a model: the gold labels, taken as a random sample of the items, "
    "correct the estimates from the votes on all items. Report the column “estimate”. The column “votes alone” is the "
    "estimate of Dawid–Skene without gold labels, which may be far off."
)
SAMPLE = (
    "The intervals hold only if the gold labels are a random sample of the items. If items were chosen with known "
    "probabilities, or belong to clusters, use latentens estimate with --weights or --cluster."
)


def estimates_part(data: DatasetResult, key: jax.Array, most_judges: int = 100) -> Part | None:
    """Estimates to report, if gold labels are known.

    Args:
        data: The data set.
        key: Random key of the intervals.
        most_judges: For larger panels the effective number of judges is left out, since it takes long.
    """
    if not data.is_scored_by_gold:
        return None
    gold = data.dataset.gold
    assert gold is not None, "labels that are held out are gold labels"
    known = named_labels(data.votes, gold)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LatentensWarning)
        try:
            table = estimate(data.votes, known, key=key)
        except LatentensError as error:
            return Part("estimates", "What you can report", (f"Nothing can be estimated: {error}.",))
    words = [INTRODUCTION, *explain(table)]
    if 2 <= data.votes.num_voters <= most_judges:
        words.append(effective_judges(data.votes, known, key=key).summary)
    doubts = [f"Warning: {found.message}." for found in caught if issubclass(found.category, LatentensWarning)]
    is_voter = table["quantity"].isin(["accuracy", "sensitivity", "specificity"])
    body: list[Block] = [_table(table[~is_voter]), _table(table[is_voter], "Each voter"), SAMPLE]
    return Part("estimates", "What you can report", [*words, *doubts], body=body, tables={"estimates": table})


def _table(table: pd.DataFrame, summary: str = "") -> Table:
    headings = ["quantity", "of", "votes alone", "gold labels alone", "estimate", "gold labels", "worth"]
    rows: list[Row] = []
    for row in table.to_dict("records"):
        gold = measured(row["gold_only"], row["gold_low"], row["gold_high"])
        rectified = measured(row["estimate"], row["low"], row["high"])
        labels, worth = number(f"{row['labels']:,}"), number(f"{row['worth_labels']:.0f}")
        rows.append([row["quantity"], row["of"], measured(row["label_free"]), gold, rectified, labels, worth])
    return Table(headings, rows, summary=summary)
