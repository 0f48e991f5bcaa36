"""A part on who votes like whom beyond what the label explains: the check of independence, drawn."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.sparse.csgraph import connected_components

from latentens.checks import LabelDependence, label_dependence
from latentens.comparison.dependence import GROUP
from latentens.reporting.drawing import WIDTH, Picture, Spot, render, spots, wrapped
from latentens.reporting.html import Html, number_cell, table
from latentens.reporting.parts import Part
from latentens.reporting.view import View
from latentens.runtime.text import signed

TITLE = "Who votes like whom"

MOST_NUMBERS = 12
"""Up to this many voters the cells hold numbers."""

MOST_NAMES = 40
MOST_SPOTS = 60
MOST_PAIRS = 50
MOST_NAMED = 5
LEAST_KNOWN = 50
"""Known labels from which on they are asked who depends on whom."""

BEYOND = 1.3
"""How far the scale goes beyond the largest value: its ends, almost black, would be white on a dark page."""

DARK = 0.5
"""Cells beyond this share of the scale are dark, and what is written in them is white."""


def dependence_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The check of independence, if the comparison has it on record, and the same by known labels if there are some."""
    del colour
    if GROUP not in view.node.children:
        return None
    found = view.node[GROUP].to_dataset()
    words = [
        str(found.attrs["summary"]),
        "Voters that copy each other, or share a source, count as one: methods that take voters to be independent are "
        "then too sure. The check needs no label.",
    ]
    pictures = [_without_labels(found)]
    if not view.votes.is_sparse and view.num_known >= LEAST_KNOWN:
        known = label_dependence(view.votes.matrix, view.labels, len(view.class_names))
        words.append(_by_known_labels(view, known))
        pictures = [_with_labels(view, known), *pictures]
    pairs = _pair_table(stand_out) if (stand_out := _pairs(found)) else None
    if len(pictures) == 1:
        return Part("dependence", TITLE, words, pictures, beside=pairs)
    return Part("dependence", TITLE, words, pictures, body=[pairs] if pairs else [])


def _by_known_labels(view: View, known: LabelDependence) -> str:
    """The same by the known labels, which can tell who copies whom where the check without labels may mistake it."""
    pairs = known.dependent()[:MOST_NAMED]
    opening = f"By the {view.num_known:,} known labels, which are to be believed where the two differ,"
    if not pairs:
        return f"{opening} no two voters depend on each other."
    named = (f"{view.voter_names[i]} and {view.voter_names[j]} ({known.correlation[i, j]:.2f})" for i, j in pairs)
    return f"{opening} those who vote alike beyond the label are: {', '.join(named)}."


def _pairs(found: xr.Dataset) -> list[tuple[str, str, float, float]]:
    """The pairs that stand out, the strongest first."""
    residual, p_values, names = found["residual"].to_numpy(), found["p_value"].to_numpy(), _names(found)
    first, second = np.nonzero(np.triu(p_values <= found.attrs["level"], 1))
    order = np.argsort(-np.abs(residual[first, second]), kind="stable")
    places = [(int(first[k]), int(second[k])) for k in order]
    return [(names[i], names[j], float(residual[i, j]), float(p_values[i, j])) for i, j in places]


def _pair_table(pairs: list[tuple[str, str, float, float]]) -> Html:
    rows = [
        [one, other, number_cell(signed(residual)), number_cell(f"{p_value:.3f}")]
        for one, other, residual, p_value in pairs[:MOST_PAIRS]
    ]
    return table(
        ["By the votes alone, pairs that stand out", "and", "excess correlation", "p, for all pairs together"], rows
    )


def _without_labels(found: xr.Dataset) -> Picture:
    """What the check without labels saw."""
    drawing = _heat_map(found["residual"].to_numpy(), _names(found), found["group"].to_numpy())
    return Picture(
        "dependence",
        "Agreement beyond the label, by the votes alone",
        "Red: two voters agree more often than a fit of independent voters says; blue: less often. Frames are groups "
        "of voters who depend on each other. Such a group need not be red: where the fit takes its common opinion for "
        "the label, others stand out instead.",
        f"Heat map of excess correlations between {found.sizes['voter']} voters. {found.attrs['summary']}",
        *drawing,
    )


def _with_labels(view: View, known: LabelDependence) -> Picture:
    """What the known labels show."""
    linked = np.zeros(known.correlation.shape, dtype=bool)
    for pair in known.dependent():
        linked[pair] = True
    _, groups = connected_components(linked, directed=False)
    alone = np.bincount(groups)[groups] == 1
    drawing = _heat_map(known.correlation, [str(name) for name in view.voter_names], np.where(alone, -1, groups))
    return Picture(
        "dependence-known",
        "Agreement beyond the label, by known labels",
        "Red: among items with the same true label, two voters agree more often than by chance; blue: less often. "
        "Frames are voters linked by pairs that chance does not explain.",
        f"Heat map of correlations between {len(groups)} voters given the label. {_by_known_labels(view, known)}",
        *drawing,
    )


def _heat_map(values: np.ndarray, names: list[str], groups: np.ndarray) -> tuple[bytes, tuple[Spot, ...]]:
    """Excess correlations of all pairs, voters of a group next to each other and in a frame; group −1 is none."""
    order = np.lexsort((np.arange(len(groups)), np.where(groups < 0, len(groups), groups)))
    values, names = values[np.ix_(order, order)], [names[voter] for voter in order]
    scale = BEYOND * max(float(np.abs(values).max(initial=0.0)), 0.1)
    figure = Figure(figsize=(WIDTH, min(max(0.24 * len(order), 2.4), 5.0) + 0.9))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="RdBu_r", vmin=-scale, vmax=scale, aspect="auto")
    _name_cells(axes, values, names, scale)
    _frame_groups(axes, groups[order])
    figure.colorbar(shown, ax=axes, shrink=0.8, label="excess correlation")
    png = render(figure)
    points = [
        (axes, float(column), float(row), f"{names[row]} and {names[column]}: {signed(float(values[row, column]))}")
        for row, column in np.ndindex(values.shape)
        if row != column and len(order) <= MOST_SPOTS
    ]
    return png, spots(figure, points)


def _name_cells(axes: Axes, values: np.ndarray, names: list[str], scale: float) -> None:
    """Numbers in the cells and names at the sides, as far as there is room."""
    if len(names) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            if row != column:
                ink = "white" if abs(value) > DARK * scale else "#1d2733"
                axes.text(column, row, signed(value), ha="center", va="center", fontsize=7, color=ink)
    labels = [wrapped(name, 18).split("\n")[0] for name in names] if len(names) <= MOST_NAMES else []
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.grid(False)
    axes.tick_params(length=0)


def _frame_groups(axes: Axes, groups: np.ndarray) -> None:
    for number in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == number)
        corner, size = (members[0] - 0.5, members[0] - 0.5), len(members)
        axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor="#111111", linewidth=1.6))


def _names(found: xr.Dataset) -> list[str]:
    return list(map(str, found["voter"].to_numpy()))
