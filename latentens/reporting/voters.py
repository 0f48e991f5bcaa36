"""Parts of the page on the voters: the quality of each, and pairs that agree more than the label explains."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.sparse.csgraph import connected_components

from latentens.checks import LabelDependence, label_dependence
from latentens.comparison import DatasetResult
from latentens.inference import skill
from latentens.inference.independent import count_by_label
from latentens.inference.skill import COVERAGE, VoterSkill
from latentens.methods.display import MOST_CLASSES
from latentens.reporting.conclusions import LEAST_KNOWN
from latentens.reporting.drawing import WIDTH, Picture, Point, one_line, picture
from latentens.reporting.layout import Block, Matrices, Part, Row, Table, measured, number, words
from latentens.runtime.text import signed

PLAIN, FLAGGED, KNOWN = "#0b5394", "#c0392b", "#222222"


def voters_part(data: DatasetResult) -> Part | None:
    """The quality of the voters by one method, for votes of unknown origin."""
    if data.is_simulated or not data.estimates:
        return None
    method = judge(data)
    found = data.first_fits[method].skill
    if found is None:
        return None
    order = np.argsort(-np.nan_to_num(found.balanced_accuracy, nan=-1.0), kind="stable")
    body: list[Block] = [_matrices(data, found)] if len(data.class_names) <= MOST_CLASSES else []
    known = by_known_labels(data)
    return Part(
        "voters",
        "Quality of the voters",
        _paragraphs(data, method, found, known),
        [_chart(data, found, order, known)],
        _quality_table(data, found, order, known),
        body,
    )


def by_known_labels(data: DatasetResult, pseudo_count: float = 0.5) -> VoterSkill | None:
    """The quality of the voters on the known labels, with half a vote added of each kind; None if they are few."""
    chosen = np.flatnonzero(data.labels >= 0)
    if len(chosen) < LEAST_KNOWN:
        return None
    truth = np.eye(len(data.class_names))[data.labels[chosen]]
    cast, shares = count_by_label(data.votes.take(chosen), truth), truth.mean(axis=0)
    counts = cast + pseudo_count
    says = skill.says_of(data.votes)
    rates = skill.skills_of(shares, counts / counts.sum(axis=2, keepdims=True), says)
    found = skill.as_fitted(rates, counts, shares, COVERAGE, says)
    value, low, high = (np.where(cast.any(axis=(1, 2)), part, np.nan) for part in _balanced(found))
    return found._replace(balanced_accuracy=value, balanced_accuracy_low=low, balanced_accuracy_high=high)


def judge(data: DatasetResult) -> str:
    """The method by which voters are judged: the first with confusion matrices, preferably with a likelihood."""
    able = [(method, fit) for method, fit in data.first_fits.items() if "confusion" in fit.params]
    likely = [method for method, fit in able if fit.diagnostics.log_likelihood is not None]
    return next(iter([*likely, *(method for method, _ in able), *data.estimates]))


def _paragraphs(data: DatasetResult, method: str, found: VoterSkill, known: VoterSkill | None) -> list[str]:
    text = [
        f"Estimated by {method} from its own labels: where those are wrong, so are these numbers. "
        f"{_interval_words(found.intervals)}"
    ]
    if known is not None:
        text.append(
            f"Diamonds, and the last figures of the table, come from the {data.num_known:,} known labels; they are "
            "more reliable where the two differ."
        )
    for flag in dict.fromkeys(filter(None, found.flags)):
        names = [name for name, mine in zip(data.voter_names, found.flags, strict=True) if mine == flag]
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        text.append(f"{flag[0].upper()}{flag[1:]}: {listed}.")
    return text


def _interval_words(intervals: str) -> str:
    if intervals == skill.NOT_KNOWN:
        return "This method gives no standard errors."
    source = f", from {intervals}"
    if intervals == skill.AS_FITTED:
        source = ": they treat the fitted labels as known and are too narrow"
    return (
        f"{100 * COVERAGE:.0f}\u00a0% intervals if the method's model holds{source}. "
        "Do not rank voters whose intervals overlap widely."
    )


def _chart(
    data: DatasetResult, found: VoterSkill, order: np.ndarray, known: VoterSkill | None, most: int = 40
) -> Picture:
    """Balanced accuracies with their intervals, the best on top."""
    drawn = order[~np.isnan(found.balanced_accuracy[order])]
    if len(drawn) > most:
        drawn = np.concatenate([drawn[: most // 2], drawn[-most // 2 :]])
    figure = Figure(figsize=(WIDTH, (0.2 if known is None else 0.28) * len(drawn) + 0.8))
    axes = figure.subplots()
    value, low, high = (100 * part[drawn] for part in _balanced(found))
    for place, voter in enumerate(drawn):
        colour = FLAGGED if found.flags[voter] else PLAIN
        axes.plot([low[place], high[place]], [place, place], color=colour, linewidth=2.2, alpha=0.45)
        axes.plot(value[place], place, "o", color=colour, markersize=4.5)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.grid(False, axis="y")
    if known is not None:
        known_value, *ends = (100 * part[drawn] for part in _balanced(known))
        places = np.arange(len(drawn)) + 0.3
        axes.hlines(places, *ends, color=KNOWN, linewidth=1.0)
        axes.plot(known_value, places, "D", color=KNOWN, markerfacecolor="white", markersize=3.8)
    axes.axvline(100 / len(data.class_names), color="#555555", linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(drawn)), one_line([data.voter_names[voter] for voter in drawn], 24))
    axes.set_xlabel("balanced accuracy, % (dotted: chance)")
    said = []
    for place, voter in enumerate(drawn):
        flag = f", {found.flags[voter]}" if found.flags[voter] else ""
        within = "" if np.isnan(low[place]) else f" ({low[place]:.1f} to {high[place]:.1f})"
        votes = f"{found.votes[voter]:,} votes{flag}"
        said.append(f"{data.voter_names[voter]}: {value[place]:.1f}\u00a0%{within}, {votes}")
    points = [(axes, value[place], float(place), text) for place, text in enumerate(said)]
    caption = "Each dot is a voter, the best on top; red ones are no better than chance."
    if known is not None:
        caption += f" Diamonds below them are frequencies on the {data.num_known:,} items whose label is known."
    if len(drawn) < len(order):
        caption += f" The best and the worst {most // 2} of {len(order)} are shown."
    alternative = f"Dot plot. {'. '.join(said)}."
    return picture(figure, "voters", "Balanced accuracy of the voters", caption, alternative, points)


def _balanced(found: VoterSkill) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.balanced_accuracy, found.balanced_accuracy_low, found.balanced_accuracy_high


def _quality_table(
    data: DatasetResult, found: VoterSkill, order: np.ndarray, known: VoterSkill | None, most: int = 300
) -> Table:
    scores = [_balanced(found), (found.accuracy, found.accuracy_low, found.accuracy_high)]
    if known is not None:
        scores[1] = _balanced(known)
    rows: list[Row] = [
        [
            data.voter_names[voter],
            number(f"{found.votes[voter]:,}"),
            *(measured(*(100 * part[voter] for part in score), digits=1) for score in scores),
            *([words(found.flags[voter])] if any(found.flags) else []),
        ]
        for voter in order[:most]
    ]
    last = "accuracy, %" if known is None else "by known labels, %"
    headings = ["Voter", "votes", "balanced accuracy, %", last, "remark"]
    return Table(headings if any(found.flags) else headings[:-1], rows)


def _matrices(data: DatasetResult, found: VoterSkill, most: int = 24) -> Matrices:
    """Confusion matrices of the voters with the most votes."""
    busiest = np.sort(np.argsort(-found.votes, kind="stable")[:most])
    note = "Rows: the estimated label. Columns: the vote. Percent of each row."
    if len(found.votes) > most:
        note += f" The {most} voters with the most votes."
    shown = [(data.voter_names[voter], found.confusion[voter]) for voter in busiest]
    columns = tuple(map(str, data.votes.category_names))[: found.confusion.shape[2]]
    return Matrices(note, data.class_names, columns, shown)


def dependence_part(data: DatasetResult, most: int = 50) -> Part | None:
    """The check of independence, if it was made, and the same by known labels if there are enough."""
    found = data.independence
    if found is None:
        return None
    words = [
        found.summary,
        "Voters who copy each other, or share a source, count as one: methods that assume independent voters are then "
        "overconfident. The check needs no labels.",
    ]
    names = list(data.voter_names)
    figure, points = _heat_map(found.residual, names, found.group)
    pictures = [
        picture(
            figure,
            "dependence",
            "Agreement beyond the label, by the votes alone",
            "Red: two voters agree more often than a fit of independent voters predicts; blue: less often. Frames mark "
            "groups of dependent voters. Such a group need not be red: if the fit mistakes its common opinion for the "
            "label, other pairs stand out instead.",
            f"Heat map of excess correlations between {len(names)} voters. {found.summary}",
            points,
        )
    ]
    if not data.votes.is_sparse and data.num_known >= LEAST_KNOWN:
        known = label_dependence(data.votes.matrix, data.labels, len(data.class_names))
        words.append(_by_known_labels(data, known))
        linked = np.zeros(known.correlation.shape, dtype=bool)
        for pair in known.dependent():
            linked[pair] = True
        _, groups = connected_components(linked, directed=False)
        alone = np.bincount(groups)[groups] == 1
        figure, points = _heat_map(known.correlation, names, np.where(alone, -1, groups))
        by_labels = picture(
            figure,
            "dependence-known",
            "Agreement beyond the label, by known labels",
            "Red: among items with the same true label, two voters agree more often than by chance; blue: less often. "
            "Frames mark voters linked by pairs that chance does not explain.",
            f"Heat map of correlations between {len(groups)} voters given the label. {words[-1]}",
            points,
        )
        pictures = [by_labels, *pictures]
    first, second = np.nonzero(np.triu(found.p_values <= found.level, 1))
    order = np.argsort(-np.abs(found.residual[first, second]), kind="stable")[:most]
    rows: list[Row] = [
        [names[i], names[j], number(signed(found.residual[i, j])), number(f"{found.p_values[i, j]:.3f}")]
        for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True)
    ]
    headings = ["By the votes alone, pairs that stand out", "and", "excess correlation", "adjusted p-value"]
    pairs = [Table(headings, rows)] if rows else []
    beside, body = (pairs[0], []) if pairs and len(pictures) == 1 else (None, pairs)
    return Part("dependence", "Who votes like whom", words, pictures, beside, body)


def _by_known_labels(data: DatasetResult, known: LabelDependence, most: int = 5) -> str:
    """Dependent voters by the known labels, which are more reliable than the check without labels."""
    pairs = known.dependent()[:most]
    opening = f"By the {data.num_known:,} known labels, which are more reliable where the two differ,"
    if not pairs:
        return f"{opening} no two voters depend on each other."
    named = (f"{data.voter_names[i]} and {data.voter_names[j]} ({known.correlation[i, j]:.2f})" for i, j in pairs)
    return f"{opening} these agree beyond the label: {', '.join(named)}."


def _heat_map(
    values: np.ndarray, names: list[str], groups: np.ndarray, most_spots: int = 60, beyond: float = 1.3
) -> tuple[Figure, list[Point]]:
    """Excess correlations of all pairs, voters of a group next to each other and in a frame; group −1 is none."""
    order = np.lexsort((np.arange(len(groups)), np.where(groups < 0, len(groups), groups)))
    values, names = values[np.ix_(order, order)], [names[voter] for voter in order]
    # beyond the largest value: the almost black ends of the scale would be white on a dark page
    scale = beyond * max(float(np.abs(values).max(initial=0.0)), 0.1)
    figure = Figure(figsize=(WIDTH, min(max(0.24 * len(order), 2.4), 5.0) + 0.9))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="RdBu_r", vmin=-scale, vmax=scale, aspect="auto")
    _name_cells(axes, values, names, scale)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups[order] == group)
        corner, size = (members[0] - 0.5, members[0] - 0.5), len(members)
        axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor="#111111", linewidth=1.6))
    figure.colorbar(shown, ax=axes, shrink=0.8, label="excess correlation")
    points = [
        (axes, float(column), float(row), f"{names[row]} and {names[column]}: {signed(float(values[row, column]))}")
        for row, column in np.ndindex(values.shape)
        if row != column and len(order) <= most_spots
    ]
    return figure, points


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
    labels = one_line(names, 18) if len(names) <= most_names else []
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.grid(False)
    axes.tick_params(length=0)
