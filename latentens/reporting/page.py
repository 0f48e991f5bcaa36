"""The report: one HTML page that needs no other file, with its figures and tables as files beside it."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from latentens.reporting import layout, parts, tables
from latentens.reporting.conclusions import Findings, Summary, find, summarise, summarise_all
from latentens.reporting.drawing import Picture, colours, style
from latentens.reporting.figures import methods_part
from latentens.reporting.layout import Part, Table
from latentens.reporting.voters import dependence_part, voters_part
from latentens.runtime.progress import track_late
from latentens.runtime.text import printable

PAGE = "report.html"

BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\()(?=[A-Z])|(?<=[_/=,.:])(?=[A-Za-z])")
"""Where names such as `Tempered(DawidSkeneEM)` may be broken."""


@dataclass(frozen=True, eq=False)
class Chapter:
    """The content of the page on one data set.

    Attributes:
        data: The data set, with short names of methods.
        means: Scores by method and score.
        findings: Conclusions in numbers.
        summary: Conclusions in words.
        parts: Its titled parts.
        scores: Tables of scores.
        differences: By title of a score the table of the best method against the others and that of all pairs.
        footnotes: Short names of methods by full ones, where these differ.
    """

    data: DatasetResult
    means: tables.Means
    findings: Findings
    summary: Summary
    parts: list[Part]
    scores: list[Table]
    differences: list[tuple[str, Table, Table]]
    footnotes: Mapping[str, str]


def report(comparison: xr.DataTree | Comparison, out: str | Path) -> Path:
    """Write a report of a comparison: `report.html`, which needs no other file, and PNG and CSV files beside it.

    Args:
        comparison: The result of `latentens.compare` or `latentens.load_comparison`, or the typed result.
        out: A folder, created if necessary.

    Returns:
        The path of the page.
    """
    if not isinstance(comparison, xr.DataTree | Comparison):
        raise LatentensError(
            f"report takes the result of compare, not {comparison!r}: a saved one is read by latentens.load_comparison"
        )
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LatentensError(f"the folder {folder} cannot be created ({error.strerror}); choose another") from None
    result = comparison if isinstance(comparison, Comparison) else from_tree(comparison)
    chapters = _chapters(result)
    of_parts = tables.by_dataset((chapter.data.name, part.tables) for chapter in chapters for part in chapter.parts)
    frames = of_parts | tables.csv_tables(result)
    (folder / PAGE).write_text(_render(chapters, result, frames), encoding="utf-8")
    pictures = {
        f"{chapter.data.name} {picture.name}": picture
        for chapter in chapters
        for part in chapter.parts
        for picture in part.pictures
    }
    for name, picture in zip(safe_names(pictures), pictures.values(), strict=True):
        (folder / f"{name}.png").write_bytes(picture.png)
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder / PAGE


def _chapters(comparison: Comparison) -> list[Chapter]:
    """The content of the page, with short names of methods."""
    short, scores, brief = comparison.short_names, comparison.scores, tables.with_short_methods(comparison)
    key = jax.random.wrap_key_data(jnp.asarray(comparison.key_data, dtype=jnp.uint32))
    colour = colours(list(dict.fromkeys(name for data in brief.datasets for name in data.estimators)))
    chapters = list[Chapter]()
    for data in track_late(brief.datasets, lambda data: f"Report on {data.name}"):
        means, pairs = tables.averages(data), tables.average_pairs(data)
        findings = find(data, means, pairs)
        with style():
            found = [
                parts.recommendation_part(data),
                parts.signal_part(data),
                parts.estimates_part(data, key),
                methods_part(data, means, colour, key),
                parts.items_part(data),
                voters_part(data),
                dependence_part(data),
                parts.effective_voters_part(data),
                parts.prediction_part(data),
                parts.check_part(data, colour),
            ]
        differences = []
        for name, leader in findings.leaders.items():
            if leader.others:
                score = next(score for score in scores if score.name == name)
                against, everything = layout.leader_table(pairs, leader, score), layout.all_pairs_table(pairs, score)
                differences.append((score.title, against, everything))
        chapter = Chapter(
            data,
            means,
            findings,
            summarise(data, means, pairs, findings),
            [part for part in found if part is not None],
            layout.score_tables(means, scores),
            differences,
            {name: shown for name, shown in short.items() if shown in data.estimators and shown != name},
        )
        chapters.append(chapter)
    return chapters


def _render(
    chapters: Sequence[Chapter], comparison: Comparison, frames: Mapping[str, pd.DataFrame], most_embedded: int = 20_000
) -> str:
    """Jinja escapes everything; control characters are written out."""
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
        "spots": lambda spots: json.dumps([(*place, printable(text)) for *place, text in spots], ensure_ascii=False),
    }
    css, script = (Markup(files(__package__).joinpath(f"page.{kind}").read_text("utf-8")) for kind in ("css", "js"))
    texts = {name: frame.to_csv(index=False) if len(frame) <= most_embedded else "" for name, frame in frames.items()}
    return environment.get_template("page.html.j2").render(
        title=chapters[0].data.name if len(chapters) == 1 else counted(len(chapters), "data set"),
        num_methods=len({name for data in comparison.datasets for name in data.estimators}),
        chapters=chapters,
        overview=summarise_all({chapter.data.name: chapter.findings for chapter in chapters}),
        glance=layout.glance_tables({chapter.data.name: chapter.means for chapter in chapters}, comparison.scores),
        run=layout.frame_table(frames["run"], ["Run", "Value"]),
        settings=frames["settings"].groupby("estimator", sort=False),
        diagnostics=layout.frame_table(frames["diagnostics"], summary="Diagnostics of every fit"),
        meanings=layout.meanings_table(comparison.scores),
        files=[(name, len(frames[name]), text.encode()) for name, text in texts.items()],
        css=css,
        script=script,
    )


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
