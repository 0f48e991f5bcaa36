"""From a comparison to the parts of its report: numbers first, then words and figures, then the page."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import pandas as pd
import xarray as xr

from latentens.reporting import figures, fit_figures, posterior_figures
from latentens.reporting.drawing import Picture, colours, style
from latentens.reporting.findings import find
from latentens.reporting.page import Chapter, page
from latentens.reporting.score_tables import (
    Means,
    Pairs,
    average_pairs,
    averages,
    csv_tables,
    pairs_frame,
    scores_frame,
)
from latentens.reporting.view import View, views
from latentens.reporting.wording import summarise, summarise_all
from latentens.runtime.progress import track_late


def compose(tree: xr.DataTree) -> tuple[str, dict[str, Picture], dict[str, pd.DataFrame]]:
    """The text of the page, the figures and the tables by name."""
    found = views(tree)
    tables = csv_tables(tree, found)
    means, pairs = averages(scores_frame(tree)), average_pairs(pairs_frame(tree))
    key = jax.random.wrap_key_data(jnp.asarray(tree.attrs["key"], dtype=jnp.uint32))
    colour = colours(list(dict.fromkeys(fit.method for view in found for fit in view.fits)))
    parts = []
    for number, view in track_late(list(enumerate(found, 1)), lambda step: f"Report on {step[1].name}"):
        parts.append(_chapter(f"data-{number}", view, means[view.name], pairs.get(view.name, {}), colour, key))
    overview = summarise_all({part.view.name: part.findings for part in parts})
    draws = {(part.view.name, method): frame for part in parts for method, frame in part.draws.items()}
    if draws:
        tables["draws"] = pd.concat(draws, names=["dataset", "estimator", "row"]).reset_index(["dataset", "estimator"])
    pictures = {f"{part.view.name} {picture.name}": picture for part in parts for picture in part.pictures}
    return page(parts, overview, tables), pictures, tables


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
