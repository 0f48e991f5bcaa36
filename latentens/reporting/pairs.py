"""The part of the page on dependent voters: pairs that agree beyond what the label explains."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.sparse.csgraph import connected_components

from latentens.checks import LabelDependence, label_dependence
from latentens.comparison import DatasetResult
from latentens.comparison.result import Independence
from latentens.reporting.conclusions import LEAST_KNOWN
from latentens.reporting.drawing import WIDTH, Picture, Spot, render, spots, wrapped
from latentens.reporting.layout import Part, Row, Table, number
from latentens.runtime.text import signed

TITLE = "Who votes like whom"


def dependence_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """The check of independence, if it was made, and the same by known labels if there are enough."""
    del colour
    found = data.independence
    if found is None:
        return None
    words = [
        found.summary,
        "Voters who copy each other, or share a source, count as one: methods that assume independent voters are then "
        "overconfident. The check needs no labels.",
    ]
    pictures = [_without_labels(data, found)]
    if not data.votes.is_sparse and data.num_known >= LEAST_KNOWN:
        known = label_dependence(data.votes.matrix, data.labels, len(data.class_names))
        words.append(_by_known_labels(data, known))
        pictures = [_with_labels(data, known), *pictures]
    pairs = _pair_table(stand_out) if (stand_out := _pairs(data, found)) else None
    if len(pictures) == 1:
        return Part("dependence", TITLE, words, pictures, beside=pairs)
    return Part("dependence", TITLE, words, pictures, body=[pairs] if pairs else [])


def _by_known_labels(data: DatasetResult, known: LabelDependence, most: int = 5) -> str:
    """Dependent voters by the known labels, which are more reliable than the check without labels."""
    pairs = known.dependent()[:most]
    opening = f"By the {data.num_known:,} known labels, which are more reliable where the two differ,"
    if not pairs:
        return f"{opening} no two voters depend on each other."
    named = (f"{data.voter_names[i]} and {data.voter_names[j]} ({known.correlation[i, j]:.2f})" for i, j in pairs)
    return f"{opening} these agree beyond the label: {', '.join(named)}."


def _pairs(data: DatasetResult, found: Independence) -> list[tuple[str, str, float, float]]:
    """The pairs that stand out, the strongest first."""
    residual, p_values, names = found.residual, found.p_values, data.voter_names
    first, second = np.nonzero(np.triu(p_values <= found.level, 1))
    order = np.argsort(-np.abs(residual[first, second]), kind="stable")
    places = [(int(first[k]), int(second[k])) for k in order]
    return [(names[i], names[j], float(residual[i, j]), float(p_values[i, j])) for i, j in places]


def _pair_table(pairs: list[tuple[str, str, float, float]], most: int = 50) -> Table:
    rows: list[Row] = [
        [one, other, number(signed(residual)), number(f"{p_value:.3f}")]
        for one, other, residual, p_value in pairs[:most]
    ]
    return Table(["By the votes alone, pairs that stand out", "and", "excess correlation", "adjusted p-value"], rows)


def _without_labels(data: DatasetResult, found: Independence) -> Picture:
    """Residual correlations by the check without labels."""
    drawing = _heat_map(found.residual, list(data.voter_names), found.group)
    return Picture(
        "dependence",
        "Agreement beyond the label, by the votes alone",
        "Red: two voters agree more often than a fit of independent voters predicts; blue: less often. Frames mark "
        "groups of dependent voters. Such a group need not be red: if the fit mistakes its common opinion for the "
        "label, other pairs stand out instead.",
        f"Heat map of excess correlations between {len(found.group)} voters. {found.summary}",
        *drawing,
    )


def _with_labels(data: DatasetResult, known: LabelDependence) -> Picture:
    """Correlations given the known labels."""
    linked = np.zeros(known.correlation.shape, dtype=bool)
    for pair in known.dependent():
        linked[pair] = True
    _, groups = connected_components(linked, directed=False)
    alone = np.bincount(groups)[groups] == 1
    drawing = _heat_map(known.correlation, [str(name) for name in data.voter_names], np.where(alone, -1, groups))
    return Picture(
        "dependence-known",
        "Agreement beyond the label, by known labels",
        "Red: among items with the same true label, two voters agree more often than by chance; blue: less often. "
        "Frames mark voters linked by pairs that chance does not explain.",
        f"Heat map of correlations between {len(groups)} voters given the label. {_by_known_labels(data, known)}",
        *drawing,
    )


def _heat_map(
    values: np.ndarray, names: list[str], groups: np.ndarray, most_spots: int = 60, beyond: float = 1.3
) -> tuple[bytes, tuple[Spot, ...]]:
    """Excess correlations of all pairs, voters of a group next to each other and in a frame; group −1 is none."""
    order = np.lexsort((np.arange(len(groups)), np.where(groups < 0, len(groups), groups)))
    values, names = values[np.ix_(order, order)], [names[voter] for voter in order]
    # beyond the largest value: the almost black ends of the scale would be white on a dark page
    scale = beyond * max(float(np.abs(values).max(initial=0.0)), 0.1)
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
        if row != column and len(order) <= most_spots
    ]
    return png, spots(figure, points)


def _name_cells(
    axes: Axes,
    values: np.ndarray,
    names: list[str],
    scale: float,
    most_names: int = 40,
    most_numbers: int = 12,
    dark: float = 0.5,
) -> None:
    """Numbers in the cells and names at the sides, as far as there is room."""
    if len(names) <= most_numbers:
        for (row, column), value in np.ndenumerate(values):
            if row != column:
                ink = "white" if abs(value) > dark * scale else "#1d2733"
                axes.text(column, row, signed(value), ha="center", va="center", fontsize=7, color=ink)
    labels = [wrapped(name, 18).split("\n")[0] for name in names] if len(names) <= most_names else []
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.grid(False)
    axes.tick_params(length=0)


def _frame_groups(axes: Axes, groups: np.ndarray) -> None:
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        corner, size = (members[0] - 0.5, members[0] - 0.5), len(members)
        axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor="#111111", linewidth=1.6))
