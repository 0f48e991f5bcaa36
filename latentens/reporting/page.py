"""The report as one HTML page that needs nothing but itself."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd
import xarray as xr

from latentens.errors import LatentensError
from latentens.reporting import html as cells
from latentens.reporting.drawing import Picture
from latentens.reporting.findings import Findings
from latentens.reporting.html import Html, details, element, footnotes
from latentens.reporting.parts import Part
from latentens.reporting.tables import Means, Pairs
from latentens.reporting.view import View
from latentens.reporting.wording import Reason, Summary
from latentens.runtime.text import printable
from latentens.scores import scores as evaluation

MARKS = "Green: the best method, the exact posterior aside. Arrows: which way is better."
TESTS = (
    "p-values are adjusted for all pairs of methods (Holm); methods are level where the p-value of their difference is "
    "0.05 or more, or the difference rounds to nothing in the text. Balanced accuracies are compared by McNemar's test "
    "within the true classes, log scores item by item."
)
WORDS_HEIGHT = 0.35
"""Of a figure's title and caption, about, as a share of its width."""

MOST_DRAWN = 40
"""Parameters in a table of posterior draws; the file has all."""

MOST_CARRIED = 20_000
"""Rows of a table that the page carries within itself."""


@dataclass(frozen=True, eq=False)
class Chapter:
    """All that the page says of one data set.

    Attributes:
        anchor: Its address on the page.
        view: The data set.
        means: Scores by method and score.
        pairs: Differences by score, method and other method.
        findings: What was found.
        summary: What to make of it.
        pictures: The figures.
        draws: ArviZ's summary of posterior draws by method.
        first: Parts before the figures.
        later: Parts after the figures.
        footnotes: Short names of methods by full ones, where these differ.
    """

    anchor: str
    view: View
    means: Means
    pairs: Pairs
    findings: Findings
    summary: Summary
    pictures: Sequence[Picture]
    draws: Mapping[str, pd.DataFrame]
    first: Sequence[Part]
    later: Sequence[Part]
    footnotes: Mapping[str, str]


def page(chapters: Sequence[Chapter], overview: Sequence[str], tables: Mapping[str, pd.DataFrame]) -> str:
    """The whole page.

    Args:
        chapters: One for each data set.
        overview: Sentences on all data sets together.
        tables: The tables that become files.
    """
    title = f"Comparison of methods on {_counted(len(chapters), 'data set')}"
    if len(chapters) == 1:
        title = f"Comparison of methods on {chapters[0].view.name}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", _resource("page.css")),
    )
    sections = [_glance(overview, chapters)] if len(chapters) > 1 else []
    sections += [_chapter(chapter) for chapter in chapters]
    sections += [_settings(tables), _files(tables)]
    script = element("script", _resource("page.js"))
    body = element("body", _header(title, chapters), element("main", *sections), script)
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _resource(name: str) -> Html:
    return Html(files(__package__).joinpath(name).read_text("utf-8"))


def _header(title: str, chapters: Sequence[Chapter]) -> Html:
    methods = list(dict.fromkeys(fit.method for chapter in chapters for fit in chapter.view.fits))
    links = (
        [element("a", chapter.view.name, href=f"#{chapter.anchor}") for chapter in chapters]
        if len(chapters) > 1
        else []
    )
    links += [element("a", "Settings and seeds", href="#settings"), element("a", "Files", href="#files")]
    return element(
        "header",
        element("h1", title),
        element(
            "p",
            f"{_counted(len(methods), 'method')} estimated the label of every item from the votes. True labels, where "
            "known, serve only to score the results; gold labels serve to find them too, but each is scored as "
            "predicted by a fit that has not seen it. Where the process behind the votes is known, so is the exact "
            "posterior, the best anyone can say given the votes.",
            class_="soft",
        ),
        element("nav", *links),
    )


def _glance(overview: Sequence[str], chapters: Sequence[Chapter]) -> Html:
    verdicts = [
        element("li", element("a", chapter.view.name, href=f"#{chapter.anchor}"), ": " + chapter.summary.headline)
        for chapter in chapters
    ]
    means = {chapter.view.name: chapter.means for chapter in chapters}
    main = [score for score in evaluation.SCORES if score.heading and score.group != "Cost"]
    tables = [found for score in main if (found := cells.glance_table(means, score)) is not None]
    return element(
        "section",
        element("h2", "At a glance"),
        *(element("p", words) for words in overview),
        element("ul", *verdicts, class_="reasons"),
        *tables,
        element("p", MARKS, class_="soft"),
        id="glance",
    )


def _chapter(chapter: Chapter) -> Html:
    summary = chapter.summary
    return element(
        "section",
        element("h2", chapter.view.name),
        element("p", _data_words(chapter.view), class_="soft"),
        element("p", summary.headline, class_="verdict"),
        element("ul", *map(_reason, summary.reasons), class_="reasons"),
        *_troubles(summary.troubles),
        *_contents(chapter),
        *(_part(chapter.anchor, part) for part in chapter.first),
        *_pictures(chapter),
        *(_part(chapter.anchor, part) for part in chapter.later),
        element("div", element("h3", "Scores"), class_="part"),
        *cells.score_tables(chapter.means),
        element("p", _score_words(chapter.view), class_="soft"),
        *footnotes(chapter.footnotes),
        *_pairs(chapter),
        *_draws(chapter),
        id=chapter.anchor,
    )


def _pictures(chapter: Chapter) -> list[Html]:
    """The figures, under a heading of their own after other parts."""
    heading = [element("div", element("h3", "The methods side by side"), class_="part")] if chapter.first else []
    return [*heading, _figures(chapter.pictures)]


def _contents(chapter: Chapter) -> list[Html]:
    """Links to the parts of a chapter, if there are any."""
    parts = [*chapter.first, *chapter.later]
    links = [element("a", part.title, href=f"#{chapter.anchor}-{part.name}") for part in parts]
    return [element("p", *links, class_="contents")] if links else []


def _part(anchor: str, part: Part) -> Html:
    shown = [_figures(part.pictures)] if part.pictures else []
    if part.beside is not None:
        shown = [element("div", *shown, element("div", part.beside), class_="beside")]
    words = (element("p", text) for text in part.words)
    body = [*shown, *part.body]
    return element("div", element("h3", part.title), *words, *body, class_="part", id=f"{anchor}-{part.name}")


def _reason(reason: Reason) -> Html:
    examples = [element("ul", *(element("li", words) for words in reason.examples))] if reason.examples else []
    return element("li", reason.text, *examples)


def _data_words(view: View) -> str:
    known = (
        "the true label of every item is known"
        if view.num_known == view.num_items
        else f"{view.num_known:,} true labels are known"
    )
    if view.num_known == 0:
        known = "no true label is known"
    if view.is_scored_by_gold:
        known = f"methods know {_counted(view.num_known, 'gold label')}"
    words = f"{view.num_items:,} items, {_counted(view.num_voters, 'voter')}, {len(view.class_names)} classes; {known}."
    settings_left_open = r",? \w+=None"
    return words + (f" The votes come from {re.sub(settings_left_open, '', view.model)}." if view.is_simulated else "")


def _score_words(view: View) -> str:
    words = f"Small: 95 % intervals over the items. {MARKS}"
    if view.is_scored_by_gold:
        words = f"On {view.labels_text}. {words}"
    repetitions = 1 + max(fit.repetition for fit in view.fits)
    if repetitions == 1:
        return words
    return (
        f"{words} Means over {repetitions} repetitions with other seeds, ± their standard deviation; figures show the "
        "first repetition."
    )


def _troubles(troubles: Sequence[str]) -> list[Html]:
    if not troubles:
        return []
    items = element("ul", *(element("li", words) for words in troubles))
    return [element("div", element("strong", "Take care"), items, class_="troubles")]


def _figures(pictures: Sequence[Picture]) -> Html:
    """Figures in two columns, each where there is more room left; on a narrow page one column follows the other."""
    columns: list[list[Html]] = [[], []]
    heights = [0.0, 0.0]
    for picture in pictures:
        place = int(heights[1] < heights[0])
        columns[place].append(_figure(picture))
        heights[place] += picture.height + WORDS_HEIGHT
    return element("div", *(element("div", *column) for column in columns if column), class_="figures")


def _figure(picture: Picture) -> Html:
    source = "data:image/png;base64," + b64encode(picture.png).decode()
    told = [(across, down, printable(words)) for across, down, words in picture.spots]
    spots = {"data_spots": json.dumps(told, ensure_ascii=False)} if told else {}
    image = element("img", src=source, alt=picture.alternative, **spots)
    return element("figure", element("h4", picture.title), image, element("figcaption", picture.caption))


def _pairs(chapter: Chapter) -> list[Html]:
    parts: list[Html] = []
    leaders = {"balanced_accuracy": chapter.findings.labels, "log_score": chapter.findings.probabilities}
    for name, leader in leaders.items():
        if leader is not None and leader.others:
            score = evaluation.find_score(name)
            parts.append(element("h3", f"Differences in {score.title}"))
            parts.append(cells.leader_table(chapter.pairs, leader, score))
            parts.append(details("All pairs of methods", cells.all_pairs_table(chapter.pairs, score)))
    return [*parts, element("p", TESTS, class_="soft")] if parts else []


def _draws(chapter: Chapter) -> list[Html]:
    return [
        details(f"Posterior draws of {method}: summary by ArviZ", cells.frame_table(frame[:MOST_DRAWN]))
        for method, frame in chapter.draws.items()
    ]


def _settings(tables: Mapping[str, pd.DataFrame]) -> Html:
    seeds = (
        "The key below is the seed of the whole comparison. The key of each fit follows from it, from the name of the "
        "data set and from the number of the repetition: the same key gives the same results."
    )
    return element(
        "section",
        element("h2", "Settings and seeds"),
        element("p", seeds),
        cells.frame_table(tables["run"], ["Run", "Value"]),
        element("h3", "Hyperparameters"),
        cells.settings_table(tables["settings"]),
        details("Diagnostics of every fit", cells.frame_table(tables["diagnostics"])),
        details("What the scores say", cells.meanings()),
        id="settings",
    )


def _files(tables: Mapping[str, pd.DataFrame]) -> Html:
    links = []
    for name, frame in tables.items():
        if len(frame) > MOST_CARRIED:
            links.append(element("li", f"{name}.csv ({_counted(len(frame), 'row')}), in the folder of this page"))
            continue
        source = "data:text/csv;base64," + b64encode(frame.to_csv(index=False).encode()).decode()
        words = element("a", f"{name}.csv", href=source, download=f"{name}.csv")
        links.append(element("li", words, f" ({_counted(len(frame), 'row')})"))
    return element(
        "section",
        element("h2", "Files"),
        element("p", "The tables behind this page; they are part of it, but for very long ones, and need no network."),
        element("ul", *links, class_="reasons"),
        id="files",
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


PAGE = "report.html"


def report(tree: xr.DataTree, out: str | Path) -> Path:
    """Write a report of a comparison: `report.html`, which needs no other file, and PNG and CSV files beside it.

    Args:
        tree: What `latentens.comparison` returned or `latentens.comparison.load` read.
        out: A folder, made if need be.

    Returns:
        The path of the page.
    """
    from latentens.reporting.chapters import compose  # draws, and so takes a second to import

    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LatentensError(f"no folder {folder} can be made ({error.strerror}); name another") from None
    text, pictures, tables = compose(tree)
    (folder / PAGE).write_text(text, encoding="utf-8")
    for name, picture in zip(safe_names(pictures), pictures.values(), strict=True):
        (folder / f"{name}.png").write_bytes(picture.png)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder / PAGE


def safe_names(names: Iterable[str]) -> list[str]:
    """Different file names for different names, made of letters, digits and dashes."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        found.append(plain if plain and plain not in found else f"{plain}-{len(found)}".lstrip("-"))
    return found
