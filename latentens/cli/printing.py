"""Tables and sentences that the commands print."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from rich.box import SIMPLE_HEAD
from rich.table import Table

from latentens.checks import ModelCheck
from latentens.cli.terminal import console, messages, status, tell
from latentens.comparison import add_independence, add_worth, data_trees, from_tree
from latentens.comparison.data_tree import scores_of
from latentens.datasets import Dataset
from latentens.recommendation.recommend import method_rows, plausible_models
from latentens.recommendation.text import briefly
from latentens.reporting.tables import WARNING, prediction_frame
from latentens.scores import scores as evaluation


def add_evidence(tree: Any, datasets: Iterable[Dataset], key: jax.Array, *, independence: bool, worth: bool) -> None:
    """Add checks of the voters to a comparison, for data sets whose model is unknown, and print what they found."""
    real = [dataset for dataset in datasets if dataset.model is None]
    nodes = data_trees(tree)
    if real and independence:
        with status("Checking whether voters err independently"):
            add_independence(tree, real, key=key)
        for dataset in real:
            if "independence" in nodes[dataset.name].children:
                messages.print(f"{dataset.name}: {nodes[dataset.name]['independence'].attrs['summary']}")
    if real and worth:
        with status("Estimating the effective number of voters"):
            add_worth(tree, real, key=key)
        for dataset in real:
            tell(f"{dataset.name}: {nodes[dataset.name]['worth'].attrs['summary']}")


def print_comparison(tree: Any) -> list[str]:
    """Print scores, predictions of votes, doubts about labels and failures; returns the failures."""
    for table in (*score_tables(tree), *gold_tables(tree), *prediction_tables(tree)):
        console.print(table)
    doubts, failures = dict[tuple[str, str], dict[str, None]](), list[str]()
    for data in from_tree(tree).datasets:
        for (_, method), fit in data.fits.items():
            failures += [f"{method} failed on {data.name}: {fit.error}"] if fit.error else []
            for words in fit.diagnostics.label_doubts:
                doubts.setdefault((data.name, words), {})[method] = None  # each method once, in order
    for words in (*(f"{name}, {', '.join(each)}: {doubt}" for (name, doubt), each in doubts.items()), *failures):
        messages.print(words)
    return failures


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]] = (), words: int = 1, **options: Any) -> Table:
    """A table whose first columns are words and whose others are numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, **options)
    for number, heading in enumerate(headings):
        is_word = number < words
        table.add_column(heading, overflow="fold", justify="left" if is_word else "right", no_wrap=not is_word)
    for row in rows:
        table.add_row(*row)
    return table


def score_tables(tree: Any) -> Iterator[Table]:
    """The main scores, means over repetitions, of data sets that are not scored on gold labels."""
    others = [name for name, node in data_trees(tree).items() if "held_out" not in node.children]
    if not others:
        return
    means = tree["scores"].to_dataset().drop_vars("error").sel(dataset=others).mean("repetition").to_dataframe()
    shown = [
        score for score in scores_of(tree) if score.heading and score.name in means and means[score.name].notna().any()
    ]
    table = _table(["data set", "method", *(score.heading for score in shown)], words=2)
    for dataset, rows in means.groupby(level="dataset", sort=False):
        label = str(dataset)
        for method, row in rows.droplevel("dataset").dropna(how="all").iterrows():
            figures = (score.text(row[score.name]) if np.isfinite(row[score.name]) else "" for score in shown)
            table.add_row(label, str(method), *figures)
            label = ""
        table.add_section()
    yield table


def gold_tables(tree: Any, short: Mapping[str, str] | None = None, marked: str = "") -> Iterator[Table]:
    """The main scores with their intervals, means over repetitions, of data sets that are scored on gold labels.

    Args:
        tree: The comparison.
        short: Short names of methods by their full ones.
        marked: The method, by its short name, that gets an arrow.
    """
    headings = {
        "accuracy": "accuracy\n%",
        "balanced_accuracy": "balanced\nacc. %",
        "log_score": "log\nscore",
        "confidence_gap": "confidence\n− accuracy",
    }
    for name, node in data_trees(tree).items():
        if "held_out" not in node.children:
            continue
        number = node["held_out"].sizes["item"]
        labels = f"{number:,} gold labels, each" if number > 1 else "one gold label,"
        title = f"{name}: scores on your {labels} predicted by a fit that has not seen it (95 % intervals)"
        scores, bounds = (
            tree[group].to_dataset().sel(dataset=name).drop_vars("error", errors="ignore").mean("repetition")
            for group in ("scores", "intervals")
        )
        table = _table(["method", *headings.values()], padding=(0, 1, 0, 0), title=title, title_justify="left")
        for method in scores["estimator"].values:
            row, ends = scores.sel(estimator=method), bounds.sel(estimator=method)
            called = (short or {}).get(str(method), str(method))
            figures = (_with_interval(score, row[score], ends[score]) for score in headings)
            table.add_row(f"{called} ←" if called == marked else called, *figures)
        yield table


def _with_interval(name: str, value: xr.DataArray, ends: xr.DataArray) -> str:
    """A score with its interval in brackets; empty if it is unknown."""
    if not np.isfinite(float(value)):
        return ""
    score = evaluation.find_score(name)
    is_signed, is_percent = score.better is None, score.unit == "%"
    low, high = (score.text(float(ends.sel(bound=bound)), 0 if is_percent else 2) for bound in ("low", "high"))
    text = score.text(float(value), (0 if is_signed else 1) if is_percent else 2)
    return f"{text} ({low} to {high})".replace("-", "−") if is_signed else f"{text} ({low}–{high})"


def prediction_tables(tree: Any) -> Iterator[Table | str]:
    """The models of each data set ranked by how well they predict its votes, and finally what that means."""
    frames = {data.name: found for data in from_tree(tree).datasets if (found := prediction_frame(data)) is not None}
    for name, (frame, _) in frames.items():
        headings = ("model", "log predictive\ndensity", "behind\nthe best", "standard\nerror")
        table = _table(headings, title=f"Which model predicts the votes of {name} best?")
        table.add_column("judged by")
        for model, row in frame.iterrows():
            figures = (f"{value:,.1f}" for value in (row["elpd"], abs(row["difference"]), row["difference_error"]))
            table.add_row(str(model), *figures, str(row["by"]))
        yield table
    if frames:
        yield WARNING


def print_recommendation(tree: Any) -> None:
    """Print the answer, tables of the methods on gold labels and under each plausible model, and the reasons."""
    found = tree["votes/recommendation"].to_dataset()
    short = from_tree(tree).short_names
    found = briefly(found, short)
    answer, *reasons = map(str, found["sentence"].values)
    tell(f"\n{answer}")
    for table in gold_tables(tree, short, found.attrs["recommended"]):
        console.print(table)
    if "model" in found.dims and (plausible := plausible_models(found)):
        title = "expected balanced accuracy in % (90 % interval), log score"
        table = _table(["method", *(f"if {model}" for model in plausible)], title=title)
        for method, cells in method_rows(found):
            marked = f"{method} ←" if method == found.attrs["recommended"] else method
            table.add_row(marked, *(f"{cell.accuracy} ({cell.interval}), {cell.log_score}" for cell in cells))
        console.print(table)
    for words in reasons:
        tell(f"• {words}")


def pair_frame(check: ModelCheck) -> pd.DataFrame:
    """Every pair of voters that was checked, the strongest residual correlation first."""
    first, second = np.nonzero(np.triu(check.checked, k=1))
    names = np.asarray(check.voter_names)
    frame = pd.DataFrame(
        {
            "voter": names[first],
            "other": names[second],
            "residual_correlation": check.residual[first, second],
            "standard_error": check.standard_error[first, second],
            "p_value": check.pair_p_values[first, second],
            "adjusted_p_value": check.adjusted_p_values[first, second],
        }
    )
    return frame.sort_values("residual_correlation", key=lambda values: -values.abs(), kind="stable")


def agreement_table(found: pd.DataFrame) -> Table:
    """Agreement statistics with their intervals."""
    rows = (
        (str(row.statistic), str(row.of), f"{row.value:.3f}", f"{row.low:.3f} to {row.high:.3f}")
        for row in found.itertuples()
    )
    return _table(("agreement", "of", "value", "95 % interval"), rows, words=2)


def estimates_table(found: pd.DataFrame, level: float) -> Table:
    """The result of `estimate`; columns that it does not have are left out."""

    def figure(column: str, digits: int = 3) -> pd.Series:
        return found[column].map(lambda value: f"{value:.{digits}f}")

    shown = {name: found[name].map(str) for name in ("quantity", "of", "segment") if name in found}
    words, shown["label-free"] = len(shown), figure("label_free")
    for name, *ends in (("gold_only", "gold_low", "gold_high"), ("estimate", "low", "high")):
        value, low, high = map(figure, (name, *ends))
        shown[name.replace("_", " ")] = (value + " (" + low + "–" + high + ")").where(found[name].notna(), "–")
    shown |= {"labels": found["labels"].map(str), "worth": figure("worth_labels", 0)}
    if "p_value" in found:
        shown["p"] = figure("p_value").where(found["p_value"].notna(), "")
    if "labels_needed" in found:
        shown["needed"] = figure("labels_needed", 0)
    return _table(shown, zip(*shown.values(), strict=True), words, title=f"estimates with {level:.0%} intervals")


def worth_table(found: pd.DataFrame, shown: int = 20) -> Table:
    """What each voter adds to the panel by gold labels, those who add most first.

    Args:
        found: The result of `judge_worth`.
        shown: Number of voters in the table; more are cut in the middle.
    """
    found = found.sort_values("log_score_added", ascending=False, kind="stable")
    title = "What each voter adds to the others, by gold labels"
    if len(found) > shown:
        title = f"The voters who add most and least of {len(found):,}, by gold labels"
        found = pd.concat([found.head(shown - shown // 2), found.tail(shown // 2)])
    note = "no fit has seen gold labels; so far: accuracy of the voters up to this rank, by estimated skill"
    headings = ("voter", "accuracy added,\npoints", "p", "log score\nadded", "rank", "accuracy\nso far, %")
    table = _table(headings, title=title, caption=note)
    for row in found.to_dict("records"):
        added = f"{100 * row['accuracy_added']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"
        log_score = f"{row['log_score_added']:+.3f} ({row['log_score_low']:+.3f} to {row['log_score_high']:+.3f})"
        so_far = f"{100 * row['accuracy_so_far']:.1f}"
        table.add_row(str(row["judge"]), added, f"{row['p_value']:.3f}", log_score, str(row["rank"]), so_far)
    return table


def pair_table(check: ModelCheck, shown: int = 10) -> Table:
    """The pairs of voters that are most dependent."""
    number, frame = len(check.dependent_pairs), pair_frame(check)
    title = "Dependent pairs" if number <= shown else f"The strongest of {number:,} dependent pairs"
    note = "relative to a fit of independent voters, which may have taken what a pair shares for the label"
    headings = ("voter", "other", "residual\ncorrelation", "p, adjusted\nfor all pairs")
    rows = (
        (str(pair.voter), str(pair.other), f"{pair.residual_correlation:+.3f}", f"{pair.adjusted_p_value:.3f}")
        for pair in frame[frame["adjusted_p_value"] <= check.level].head(shown).itertuples()
    )
    return _table(headings, rows, words=2, title=title, caption=note if check.candidate_pairs else None)
