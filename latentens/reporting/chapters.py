"""Which parts a chapter has, in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import pandas as pd
import xarray as xr

from latentens.reporting import figures
from latentens.reporting import figures as fit_figures
from latentens.reporting import figures as posterior_figures
from latentens.reporting.dependence_part import dependence_part
from latentens.reporting.drawing import Picture, colours, style
from latentens.reporting.evidence import check_part, items_part, prediction_part, signal_part, worth_part
from latentens.reporting.findings import find
from latentens.reporting.page import Chapter, page
from latentens.reporting.parts import MakePart, Part
from latentens.reporting.recommendation_part import recommendation_part
from latentens.reporting.tables import (
    Means,
    Pairs,
    average_pairs,
    averages,
    csv_tables,
    labels_frame,
    pairs_frame,
    renamed,
    scores_frame,
    voters_frame,
)
from latentens.reporting.view import View, short_names, views
from latentens.reporting.voters_part import voters_part
from latentens.reporting.wording import summarise, summarise_all
from latentens.runtime.progress import track_late

FIRST: tuple[MakePart, ...] = (recommendation_part, signal_part)
"""Parts that answer a question of the reader: before the figures."""

LATER: tuple[MakePart, ...] = (items_part, voters_part, dependence_part, worth_part, prediction_part, check_part)
"""Parts to look things up in: after the figures, before the scores."""


def make_parts(makers: Sequence[MakePart], view: View, colour: Mapping[str, str]) -> list[Part]:
    """The parts that have something to say."""
    with style():
        made = [make(view, colour) for make in makers]
    return [part for part in made if part is not None]


def compose(tree: xr.DataTree) -> tuple[str, dict[str, Picture], dict[str, pd.DataFrame]]:
    """The text of the page, the figures and the tables by name."""
    whole = views(tree)
    mine = {"labels": labels_frame(whole), "voters": voters_frame(whole)}
    tables = {name: frame for name, frame in mine.items() if len(frame)} | csv_tables(tree, whole)
    short = short_names(map(str, tree["scores/estimator"].to_numpy()))
    found = views(tree, short)
    means, pairs = averages(renamed(scores_frame(tree), short)), average_pairs(renamed(pairs_frame(tree), short))
    key = jax.random.wrap_key_data(jnp.asarray(tree.attrs["key"], dtype=jnp.uint32))
    colour = colours(list(dict.fromkeys(fit.method for view in found for fit in view.fits)))
    parts = []
    for number, view in track_late(list(enumerate(found, 1)), lambda step: f"Report on {step[1].name}"):
        chapter = _chapter(f"data-{number}", view, means[view.name], pairs.get(view.name, {}), colour, key)
        parts.append(replace(chapter, footnotes=_footnotes(view, short)))
    overview = summarise_all({part.view.name: part.findings for part in parts})
    draws = {(part.view.name, method): frame for part in parts for method, frame in part.draws.items()}
    if draws:
        tables["draws"] = pd.concat(draws, names=["dataset", "estimator", "row"]).reset_index(["dataset", "estimator"])
    pictures = {f"{part.view.name} {picture.name}": picture for part in parts for picture in _all_pictures(part)}
    tables = _part_tables(parts) | tables
    return page(parts, overview, tables), pictures, tables


def _all_pictures(chapter: Chapter) -> list[Picture]:
    return [*chapter.pictures, *(picture for part in (*chapter.first, *chapter.later) for picture in part.pictures)]


def _part_tables(chapters: Sequence[Chapter]) -> dict[str, pd.DataFrame]:
    """The tables of all parts by name, with the data set in the first column."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for chapter in chapters:
        for part in (*chapter.first, *chapter.later):
            for name, frame in part.tables.items():
                found.setdefault(name, {})[chapter.view.name] = frame
    return {name: pd.concat(frames, names=["dataset", "row"]).reset_index("dataset") for name, frames in found.items()}


def _footnotes(view: View, short: Mapping[str, str]) -> dict[str, str]:
    """What the short names of a chapter's methods stand for."""
    mine = {fit.method for fit in view.fits}
    return {name: brief for name, brief in short.items() if brief in mine and brief != name}


def _chapter(anchor: str, view: View, means: Means, pairs: Pairs, colour: Mapping[str, str], key: jax.Array) -> Chapter:
    findings = find(view, means, pairs)
    draws = {method: fit_figures.draws_summary(tree) for method, tree in view.draws.items()}
    return Chapter(
        anchor,
        view,
        means,
        pairs,
        findings,
        summarise(view, means, pairs, findings),
        _pictures(view, means, draws, colour, key),
        draws,
        make_parts(FIRST, view, colour),
        make_parts(LATER, view, colour),
        {},
    )


def _pictures(
    view: View, means: Means, draws: Mapping[str, pd.DataFrame], colour: Mapping[str, str], key: jax.Array
) -> list[Picture]:
    """All figures that the data set has something for."""
    if not view.posteriors:
        return []
    with style():
        drawn = [
            figures.score_figure(view, means, colour),
            figures.sureness_figure(view),
            posterior_figures.reliability_figure(view, colour, key),
            posterior_figures.exact_figure(view, colour),
            figures.agreement_figure(view),
            fit_figures.recovery_figure(view, colour),
            *(fit_figures.singular_value_figure(view, method) for method in view.first_fits),
            *(fit_figures.trace_figure(method, view.draws[method], summary) for method, summary in draws.items()),
        ]
    return [picture for picture in drawn if picture is not None]
