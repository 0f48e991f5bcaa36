"""The tables of a report as people read them."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from latentens.comparison import EXACT
from latentens.evaluation.intervals import PairedDifference
from latentens.evaluation.scores import BETTER
from latentens.reporting.findings import Leader
from latentens.reporting.html import Html, element, join, table
from latentens.reporting.score_tables import COSTS, MEANINGS, SHARES, Mean, Means, Pairs, column, number_text, ranked
from latentens.reporting.wording import probability_text

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Labels": ("balanced_accuracy", "accuracy", "area_under_curve"),
    "Probabilities": (
        "log_score",
        "brier_score",
        "brier_calibration",
        "brier_refinement",
        "calibration_error",
        "calibration_error_debiased",
        "confident_share",
        "confident_wrong",
    ),
    "Distance from the exact posterior": (
        "mean_kl",
        "total_variation",
        "root_mean_square_difference",
        "accuracy_regret",
    ),
    "Cost": tuple(COSTS),
}
"""Scores by what they judge."""

MEGABYTE = 2.0**20
MISSING = "–"
BEST = {"class_": "best"}


def score_tables(means: Means) -> list[Html]:
    """The scores of one data set, a table for each group of which there is any."""
    tables = []
    for group, scores in GROUPS.items():
        columns = {score: found for score in scores if (found := column(means, score))}
        methods = dict.fromkeys(method for found in columns.values() for method in found)
        rows = [[method, *_score_cells(method, columns)] for method in methods]
        if rows:
            tables.append(table([group, *map(heading, columns)], rows, EXACT))
    return tables


def _score_cells(method: str, columns: Mapping[str, Mapping[str, Mean]]) -> list[str]:
    return [
        _score_cell(score, found[method], method == _best(score, found)) if method in found else MISSING
        for score, found in columns.items()
    ]


def _best(score: str, means: Mapping[str, Mean]) -> str | None:
    """The best method by a score; the exact posterior does not compete."""
    competing = {method: mean for method, mean in means.items() if method != EXACT}
    return ranked(score, competing)[0] if BETTER.get(score) and len(competing) > 1 else None


def _score_cell(score: str, mean: Mean, best: bool) -> Html:
    text = score_text(score, mean.value)
    if np.isfinite(mean.deviation):
        text += f" ± {score_text(score, mean.deviation)}"
    interval = [f"{score_text(score, mean.low)} – {score_text(score, mean.high)}"] if np.isfinite(mean.low) else []
    return element("td", text, *(element("small", words) for words in interval), **BEST if best else {})


def score_text(score: str, value: float) -> str:
    """A score as it is shown in tables."""
    if score in SHARES:
        return f"{100 * value:.2f}"
    if score == "peak_memory":
        return f"{value / MEGABYTE:.0f}"
    return f"{value:.2f}" if score == "seconds" else f"{value:.3f}"


def heading(score: str) -> Html:
    """The heading of a score's column; its meaning shows where a pointer rests on it."""
    unit = ", %" if score in SHARES else ", MB" if score == "peak_memory" else ""
    better = {"larger": "\u00a0↑", "smaller": "\u00a0↓"}.get(BETTER.get(score) or "", "")
    return element("span", title(score) + unit + better, title=MEANINGS[score])


def title(score: str) -> str:
    """A score's name as it is written."""
    return score.replace("_", " ").replace("brier", "Brier").replace("kl", "KL")


def meanings() -> Html:
    """What each score says."""
    rows = [[title(score), words_cell(text)] for score, text in MEANINGS.items()]
    return table(["Score", "What it says"], rows)


def words_cell(text: str) -> Html:
    """A cell of running text."""
    return element("td", text, class_="words")


def leader_table(pairs: Pairs, leader: Leader) -> Html:
    """The method with the best labels against each other one."""
    rows = [_pair_row(other, pairs["accuracy", leader.method, other]) for other in leader.others]
    return table([f"{leader.method} against", "difference, points", "McNemar's test"], rows)


def all_pairs_table(pairs: Pairs) -> Html:
    """Every method against every other one."""
    methods = list(dict.fromkeys(method for _, method, _ in pairs))
    both = combinations(methods, 2)
    rows = [_pair_row(f"{one} − {other}", pairs["accuracy", one, other]) for one, other in both]
    return table(["Difference in accuracy", "points", "McNemar's test"], rows)


def _pair_row(name: str, pair: PairedDifference) -> list[str]:
    """A difference in accuracy, in points."""
    interval = element("small", f"{100 * pair.low:+.2f} – {100 * pair.high:+.2f}")
    return [name, element("td", f"{100 * pair.difference:+.2f}", interval), probability_text(pair.p_value)]


def glance_table(means: Mapping[str, Means], score: str) -> Html | None:
    """One score of every method on every data set."""
    columns = {name: column(found, score) for name, found in means.items()}
    methods = list(dict.fromkeys(method for found in columns.values() for method in found))
    if not methods:
        return None
    rows = []
    for method in methods:
        row: list[str] = [method]
        for found in columns.values():
            shown = score_text(score, found[method].value) if method in found else MISSING
            row.append(element("td", shown, **BEST if _best(score, found) == method else {}))
        rows.append(row)
    return table([heading(score), *columns], rows, EXACT)


def frame_table(frame: pd.DataFrame, headings: Sequence[str] | None = None) -> Html:
    """A data frame as it is; the first column heads the rows."""
    rows = [
        [str(first), *(words_cell(number_text(value)) for value in rest)]
        for first, *rest in frame.itertuples(index=False)
    ]
    return table(list(headings or frame.columns), rows)


def settings_table(settings: pd.DataFrame) -> Html:
    """Every hyperparameter, a row for each method."""
    rows = []
    for method, part in settings.groupby("method", sort=False):
        values = [
            join([f"{name} = ", element("code", value), element("br")])
            for name, value in zip(part["setting"], part["value"], strict=True)
        ]
        rows.append([str(method), element("td", *values, class_="words")])
    return table(["Method", "Settings"], rows)
