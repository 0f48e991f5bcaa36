"""Tables and sentences that the commands print."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from latentens.checks import ModelCheck
from latentens.cli.terminal import console, messages, status, tell
from latentens.comparison import Comparison, add_independence, add_worth, data_trees, from_tree
from latentens.datasets import Dataset
from latentens.recommendation.recommend import GROUP, method_rows, plausible_models
from latentens.reporting.tables import WARNING, Mean, averages, prediction_frame, with_short_methods
from latentens.scores.scores import find_score


def add_evidence(tree: Any, datasets: Iterable[Dataset], key: jax.Array, *, independence: bool, worth: bool) -> None:
    """Add checks of the voters to a comparison, for data sets whose model is unknown, and print the results."""
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
    """Print scores, predictions of votes, warnings of fits and failures; returns the failures."""
    comparison = from_tree(tree)
    for table in (*score_tables(comparison), *gold_tables(comparison), *prediction_tables(comparison)):
        console.print(table)
    doubts, failures = dict[tuple[str, str], dict[str, None]](), list[str]()
    for data in comparison.datasets:
        warned = set[str]()
        for (_, method), fit in data.fits.items():
            failures += [f"{method} failed on {data.name}: {fit.error}"] if fit.error else []
            problems = [] if method in warned else fit.diagnostics.warnings  # those of one repetition are enough
            warned |= {method} if problems else set()
            for words in (*problems, *fit.diagnostics.label_doubts):
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


def score_tables(comparison: Comparison) -> Iterator[Table]:
    """The main scores, means over repetitions, of data sets that are not scored on gold labels."""
    means = {data.name: averages(data) for data in comparison.datasets if not data.is_scored_by_gold}
    known = {score for found in means.values() for _, score in found}
    shown = [score for score in comparison.scores if score.heading and score.name in known]
    table = _table(["data set", "method", *(score.heading for score in shown)], words=2)
    for name, found in means.items():
        for number, method in enumerate(dict.fromkeys(method for method, _ in found)):
            values = (found.get((method, score.name)) for score in shown)
            figures = (score.text(mean.value) if mean else "" for score, mean in zip(shown, values, strict=True))
            table.add_row("" if number else name, method, *figures)
        table.add_section()
    if means:
        yield table


def gold_tables(comparison: Comparison, marked: str = "") -> Iterator[Table]:
    """The main scores with their intervals, means over repetitions, of data sets that are scored on gold labels.

    Args:
        comparison: The comparison.
        marked: The method that gets an arrow.
    """
    headings = {
        "accuracy": "accuracy\n%",
        "balanced_accuracy": "balanced\nacc. %",
        "log_score": "log\nscore",
        "confidence_gap": "confidence\n− accuracy",
    }
    for data in comparison.datasets:
        if not data.is_scored_by_gold:
            continue
        means = averages(data)
        title = f"{data.name}: scores on {data.labels_text} (95 % intervals)"
        table = _table(["method", *headings.values()], padding=(0, 1, 0, 0), title=title, title_justify="left")
        for method in data.estimators:
            figures = (_with_interval(score, means.get((method, score))) for score in headings)
            table.add_row(f"{method} ←" if method == marked else method, *figures)
        yield table


def _with_interval(name: str, mean: Mean | None) -> str:
    """A score with its interval in brackets; empty if it is unknown."""
    if mean is None:
        return ""
    score = find_score(name)
    is_signed, is_percent = score.better is None, score.unit == "%"
    low, high = (score.text(end, 0 if is_percent else 2) for end in (mean.low, mean.high))
    text = score.text(mean.value, (0 if is_signed else 1) if is_percent else 2)
    return f"{text} ({low} to {high})".replace("-", "−") if is_signed else f"{text} ({low}–{high})"


def prediction_tables(comparison: Comparison) -> Iterator[Table | str]:
    """The models of each data set ranked by how well they predict its votes, and a sentence on how to read this."""
    frames = {data.name: found for data in comparison.datasets if (found := prediction_frame(data)) is not None}
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
    comparison = with_short_methods(from_tree(tree))
    found = comparison.datasets[0].groups[GROUP]
    answer, *reasons = map(str, found["sentence"].values)
    tell(f"\n{answer}")
    for table in gold_tables(comparison, found.attrs["recommended"]):
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


def estimates_tables(found: pd.DataFrame, level: float, *, with_gold_only: bool) -> Iterator[Table]:
    """The result of `estimate`, a table for each quantity; columns that it does not have are left out.

    Args:
        found: The result.
        level: Coverage of the intervals.
        with_gold_only: Whether to show the estimates by gold labels alone, for which narrow terminals have no room.
    """

    def figure(column: str, digits: int = 3) -> pd.Series:
        return found[column].map(lambda value: f"{value:.{digits}f}")

    shown = {name: found[name].map(str) for name in ("of", "segment") if name in found}
    words, shown["label-\nfree"] = len(shown), figure("label_free")
    for name, *ends in (("gold_only", "gold_low", "gold_high"), ("estimate", "low", "high")):
        value, low, high = map(figure, (name, *ends))
        shown[name.replace("_", " ")] = (value + " (" + low + "–" + high + ")").where(found[name].notna(), "–")
    if not with_gold_only:
        del shown["gold only"]
    shown |= {"labels": found["labels"].map(str), "worth": figure("worth_labels", 0)}
    if "p_value" in found:
        shown["p"] = figure("p_value").where(found["p_value"].notna(), "")
    if "labels_needed" in found:
        shown["needed"] = figure("labels_needed", 0)
    cells = pd.DataFrame(shown)
    for quantity, rows in cells.groupby(found["quantity"], sort=False):
        title = f"{quantity}, with {level:.0%} intervals"
        yield _table(shown, rows.to_numpy(), words, padding=(0, 1, 0, 0), title=title, title_justify="left")


def worth_table(found: pd.DataFrame, shown: int = 20) -> Table:
    """The contribution of each voter to the panel by gold labels, the largest first.

    Args:
        found: The result of `judge_worth`.
        shown: Number of voters in the table; more are cut in the middle.
    """
    found = found.sort_values("log_score_added", ascending=False, kind="stable")
    title = "Contribution of each voter, by gold labels"
    if len(found) > shown:
        title = f"The largest and smallest contributions of {len(found):,} voters, by gold labels"
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
    note = "relative to a fit of independent voters, which may have mistaken the shared errors of a pair for the label"
    headings = ("voter", "other", "residual\ncorrelation", "p, adjusted\nfor all pairs")
    rows = (
        (str(pair.voter), str(pair.other), f"{pair.residual_correlation:+.3f}", f"{pair.adjusted_p_value:.3f}")
        for pair in frame[frame["adjusted_p_value"] <= check.level].head(shown).itertuples()
    )
    return _table(headings, rows, words=2, title=title, caption=note if check.candidate_pairs else None)
