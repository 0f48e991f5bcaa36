"""The part of the page on what can be reported: estimates from gold labels helped by votes."""

import warnings

import jax
import pandas as pd

from latentens.comparison import DatasetResult
from latentens.errors import LatentensError, LatentensWarning
from latentens.estimation import effective_judges, estimate, explain
from latentens.reporting.layout import MISSING, Block, Cell, Note, Part, Row, Table, number

INTRODUCTION = (
    "Numbers with intervals that do not trust any model: the gold labels, taken as a random sample of the items, "
    "correct what the votes say about all items. Report the column “estimate”. The column “votes alone” is what "
    "Dawid–Skene says without gold labels, and may be far off."
)
SAMPLE = (
    "The intervals hold only if the gold labels are a random sample of the items. If items were chosen with known "
    "probabilities, or belong to clusters, use latentens estimate with --weights or --cluster."
)


def estimates_part(data: DatasetResult, key: jax.Array, most_judges: int = 100) -> Part | None:
    """What can be reported, if gold labels are known.

    Args:
        data: The data set.
        key: Random key of the intervals.
        most_judges: For larger panels the effective number of judges is left out, since it takes long.
    """
    if not data.is_scored_by_gold:
        return None
    gold = data.dataset.gold
    assert gold is not None, "labels that are held out are gold labels"
    known = {
        data.votes.item_names[item]: data.votes.class_names[code]
        for item, code in enumerate(gold.tolist())
        if code >= 0
    }
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
    body: list[Block] = [_table(table[~is_voter]), _table(table[is_voter], "Each voter"), Note(SAMPLE)]
    return Part("estimates", "What you can report", [*words, *doubts], body=body, tables={"estimates": table})


def _table(table: pd.DataFrame, summary: str = "") -> Table:
    headings = ["quantity", "of", "votes alone", "gold labels alone", "estimate", "gold labels", "worth"]
    rows: list[Row] = []
    for row in table.to_dict("records"):
        cells = [
            _interval(row[value], row[low], row[high])
            for value, low, high in (("gold_only", "gold_low", "gold_high"), ("estimate", "low", "high"))
        ]
        worth = number(f"{row['worth_labels']:.0f}")
        rows.append(
            [row["quantity"], row["of"], _interval(row["label_free"]), *cells, number(f"{row['labels']:,}"), worth]
        )
    return Table(headings, rows, summary=summary)


def _interval(value: float, low: float | None = None, high: float | None = None) -> Cell:
    if value != value:
        return number(MISSING)
    return number(f"{value:.3f}", "" if low is None else f"{low:.3f} – {high:.3f}")
