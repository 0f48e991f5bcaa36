"""The report: one HTML page that needs no other file, with its figures and tables as files beside it."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import jax
import jax.numpy as jnp
import pandas as pd
import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from latentens.comparison import Comparison, DatasetResult, from_tree
from latentens.errors import LatentensError
from latentens.reporting import figures
from latentens.reporting.checks import check_part, effective_voters_part, items_part, prediction_part, signal_part
from latentens.reporting.conclusions import Findings, find
from latentens.reporting.drawing import Picture, Spot, colours, style
from latentens.reporting.estimates import estimates_part
from latentens.reporting.layout import (
    MakePart,
    Part,
    Table,
    all_pairs_table,
    frame_table,
    glance_tables,
    leader_table,
    meanings_table,
    score_tables,
    settings_table,
)
from latentens.reporting.pairs import dependence_part
from latentens.reporting.recommendation import recommendation_part, with_short_methods
from latentens.reporting.tables import Means, Pairs, average_pairs, averages, csv_tables, pairs_frame, scores_frame
from latentens.reporting.text import Summary, summarise, summarise_all
from latentens.reporting.voters import voters_part
from latentens.runtime.progress import track_late
from latentens.runtime.text import printable
from latentens.scores.scores import Score

PAGE = "report.html"
MARKS = "Green marks the best method (excluding the exact posterior). Arrows show the better direction."
TESTS = (
    "p-values are adjusted for all pairs of methods (Holm). Methods are tied if the p-value of their difference is at "
    "least 0.05 or the difference rounds to zero. Balanced accuracies are compared by McNemar's test within the true "
    "classes, log scores item by item."
)
FIRST: tuple[MakePart, ...] = (recommendation_part, signal_part)
"""Parts before the figures."""

LATER: tuple[MakePart, ...] = (
    *(items_part, voters_part, dependence_part, effective_voters_part, prediction_part, check_part),
)
"""Parts after the figures, before the scores."""

BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\()(?=[A-Z])|(?<=[_/=,.:])(?=[A-Za-z])")
"""Where names such as `Tempered(DawidSkeneEM)` may be broken."""


@dataclass(frozen=True, eq=False)
class Chapter:
    """The content of the page on one data set.

    Attributes:
        anchor: Its address on the page.
        data: The data set, with short names of methods.
        means: Scores by method and score.
        findings: Conclusions in numbers.
        summary: Conclusions in words.
        about_data: The data in a sentence.
        first: Parts before the figures.
        pictures: The figures.
        later: Parts after the figures.
        scores: Tables of scores.
        about_scores: How to read them.
        differences: By title of a score the table of the best method against the others and that of all pairs.
        draws: ArviZ's summaries of posterior draws.
        draw_frames: The same as data frames by method.
        footnotes: Short names of methods by full ones, where these differ.
    """

    anchor: str
    data: DatasetResult
    means: Means
    findings: Findings
    summary: Summary
    about_data: str
    first: list[Part]
    pictures: list[Picture]
    later: list[Part]
    scores: list[Table]
    about_scores: str
    differences: list[tuple[str, Table, Table]]
    draws: list[Table]
    draw_frames: Mapping[str, pd.DataFrame]
    footnotes: Mapping[str, str]


def report(comparison: xr.DataTree | Comparison, out: str | Path) -> Path:
    """Write a report of a comparison: `report.html`, which needs no other file, and PNG and CSV files beside it.

    Args:
        comparison: The result of `latentens.compare` or `latentens.load_comparison`, or the typed result.
        out: A folder, created if necessary.

    Returns:
        The path of the page.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LatentensError(f"the folder {folder} cannot be created ({error.strerror}); choose another") from None
    result = comparison if isinstance(comparison, Comparison) else from_tree(comparison)
    text, pictures, tables = compose(result)
    (folder / PAGE).write_text(text, encoding="utf-8")
    for name, picture in zip(safe_names(pictures), pictures.values(), strict=True):
        (folder / f"{name}.png").write_bytes(picture.png)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder / PAGE


def compose(comparison: Comparison) -> tuple[str, dict[str, Picture], dict[str, pd.DataFrame]]:
    """The text of the page, the figures and the tables by name."""
    short = comparison.short_names
    brief = replace(comparison, datasets=tuple(with_short_methods(data, short) for data in comparison.datasets))
    means, pairs = averages(scores_frame(brief)), average_pairs(pairs_frame(brief))
    key = jax.random.wrap_key_data(jnp.asarray(comparison.key_data, dtype=jnp.uint32))
    colour = colours(list(dict.fromkeys(name for data in brief.datasets for name in data.estimators)))
    chapters = []
    for number, data in track_late(list(enumerate(brief.datasets, 1)), lambda step: f"Report on {step[1].name}"):
        full = {name: shown for name, shown in short.items() if shown in data.estimators and shown != name}
        found = means.get(data.name, {}), pairs.get(data.name, {})
        chapters.append(_chapter(f"data-{number}", data, *found, comparison.scores, colour, key, full))
    tables = _joined_tables(chapters) | csv_tables(comparison)
    pictures = {
        f"{chapter.data.name} {picture.name}": picture
        for chapter in chapters
        for pictures in (chapter.pictures, *(part.pictures for part in (*chapter.first, *chapter.later)))
        for picture in pictures
    }
    return _render(chapters, comparison, tables), pictures, tables


def _chapter(
    anchor: str,
    data: DatasetResult,
    means: Means,
    pairs: Pairs,
    scores: Sequence[Score],
    colour: Mapping[str, str],
    key: jax.Array,
    footnotes: Mapping[str, str],
    most_drawn: int = 40,
) -> Chapter:
    findings = find(data, means, pairs)
    draws = {method: figures.draws_summary(tree) for method, tree in figures.draw_trees(data).items()}
    with style():
        first, later = ([part for make in makers if (part := make(data, colour))] for makers in (FIRST, LATER))
        pictures = figures.draw_all(data, means, draws, colour, key)
    reportable = estimates_part(data, key)
    first += [] if reportable is None else [reportable]
    differences = []
    for name, leader in (("balanced_accuracy", findings.labels), ("log_score", findings.probabilities)):
        if leader is not None and leader.others:
            score = next(score for score in scores if score.name == name)
            differences.append((score.title, leader_table(pairs, leader, score), all_pairs_table(pairs, score)))
    return Chapter(
        anchor,
        data,
        means,
        findings,
        summarise(data, means, pairs, findings),
        _about_data(data),
        first,
        pictures,
        later,
        score_tables(means, scores),
        _about_scores(data),
        differences,
        [
            frame_table(frame[:most_drawn], summary=f"Posterior draws of {method}: summary by ArviZ")
            for method, frame in draws.items()
        ],
        draws,
        footnotes,
    )


def _about_data(data: DatasetResult) -> str:
    known = f"{data.num_known:,} true labels are known"
    if data.num_known in (0, data.votes.num_items):
        known = "no true label is known" if data.num_known == 0 else "the true label of every item is known"
    if data.is_scored_by_gold:
        known = f"methods know {counted(data.num_known, 'gold label')}"
    votes = f"{data.votes.num_items:,} items, {counted(data.votes.num_voters, 'voter')}"
    source = f" The votes are simulated from {data.model}." if data.is_simulated else ""
    return f"{votes}, {len(data.class_names)} classes; {known}.{source}"


def _about_scores(data: DatasetResult) -> str:
    text = f"Small print: 95 % intervals over the items. {MARKS}"
    if data.is_scored_by_gold:
        text = f"On {data.labels_text}. {text}"
    number = len(data.repetitions)
    if number == 1:
        return text
    return f"{text} Means over {number} repetitions ± standard deviation; figures show the first repetition."


def _joined_tables(chapters: Sequence[Chapter]) -> dict[str, pd.DataFrame]:
    """The tables of all parts by name, with the data set in the first column."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for chapter in chapters:
        for part in (*chapter.first, *chapter.later):
            for name, frame in part.tables.items():
                found.setdefault(name, {})[chapter.data.name] = frame
        for method, frame in chapter.draw_frames.items():
            draws = frame.assign(estimator=method)[["estimator", *frame.columns]]
            mine = found.setdefault("draws", {})
            mine[chapter.data.name] = (
                pd.concat([mine[chapter.data.name], draws]) if chapter.data.name in mine else draws
            )
    return {name: pd.concat(frames, names=["dataset", "row"]).reset_index("dataset") for name, frames in found.items()}


def _render(
    chapters: Sequence[Chapter], comparison: Comparison, tables: Mapping[str, pd.DataFrame], most_embedded: int = 20_000
) -> str:
    single = chapters[0].data.name if len(chapters) == 1 else counted(len(chapters), "data set")
    embedded = [
        {
            "name": name,
            "rows": len(frame),
            "content": frame.to_csv(index=False).encode() if len(frame) <= most_embedded else b"",
        }
        for name, frame in tables.items()
    ]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"Comparison of methods on {single}",
            num_methods=len({name for data in comparison.datasets for name in data.estimators}),
            chapters=chapters,
            overview=summarise_all({chapter.data.name: chapter.findings for chapter in chapters}),
            glance=glance_tables({chapter.data.name: chapter.means for chapter in chapters}, comparison.scores),
            settings=[
                frame_table(tables["run"], ["Run", "Value"]),
                settings_table(tables["settings"]),
                frame_table(tables["diagnostics"], summary="Diagnostics of every fit"),
                meanings_table(comparison.scores),
            ],
            files=embedded,
            marks=MARKS,
            tests=TESTS,
            css=_resource("page.css"),
            script=_resource("page.js"),
        )
    )


def _environment() -> Environment:
    """Jinja with escaping of everything, and with control characters written out."""
    environment = Environment(
        loader=PackageLoader("latentens.reporting", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters |= {
        "base64": lambda content: b64encode(content).decode(),
        "breakable": lambda text: Markup("<wbr>").join(escape(printable(part)) for part in BREAKS.split(text)),
        "counted": counted,
        "in_columns": in_columns,
        "spots": _spots_text,
    }
    return environment


def _resource(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text("utf-8"))  # our own, not escaped


def _spots_text(spots: Sequence[Spot]) -> str:
    return json.dumps([(across, down, printable(text)) for across, down, text in spots], ensure_ascii=False)


def in_columns(pictures: Sequence[Picture], caption_height: float = 0.35) -> list[list[Picture]]:
    """Figures in two columns, each figure where more room is left."""
    columns: tuple[list[Picture], list[Picture]] = ([], [])
    heights = [0.0, 0.0]
    for picture in pictures:
        place = int(heights[1] < heights[0])
        columns[place].append(picture)
        heights[place] += picture.height + caption_height
    return [*columns]


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def safe_names(names: Iterable[str]) -> list[str]:
    """Distinct file names for distinct names, made of letters, digits and dashes."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        found.append(plain if plain and plain not in found else f"{plain}-{len(found)}".lstrip("-"))
    return found
