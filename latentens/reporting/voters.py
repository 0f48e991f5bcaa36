"""The part of the page on the voters: the quality of each with its uncertainty, and its confusion matrix."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentens.comparison import DatasetResult
from latentens.inference.skill import (
    AS_FITTED,
    COVERAGE,
    NOT_KNOWN,
    VoterSkill,
    as_fitted,
    count_by_label,
    says_of,
    skills_of,
)
from latentens.methods.display import MOST_CLASSES
from latentens.reporting.conclusions import LEAST_KNOWN
from latentens.reporting.drawing import WIDTH, Picture, render, spots, wrapped
from latentens.reporting.layout import Block, Cell, Matrices, Part, Row, Table, number, words

PLAIN, FLAGGED, KNOWN = "#0b5394", "#c0392b", "#222222"


def voters_part(data: DatasetResult, colour: Mapping[str, str]) -> Part | None:
    """The quality of the voters by one method, for votes of unknown origin."""
    del colour
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
    says = says_of(data.votes)
    rates = skills_of(shares, counts / counts.sum(axis=2, keepdims=True), says)
    found = as_fitted(rates, counts, shares, COVERAGE, says)
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
    if intervals == NOT_KNOWN:
        return "This method gives no standard errors."
    narrow = (
        ": they treat the fitted labels as known and are too narrow"
        if intervals == AS_FITTED
        else f", from {intervals}"
    )
    return (
        f"{100 * COVERAGE:.0f}\u00a0% intervals if the method's model holds{narrow}. "
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
    _draw_voters(axes, found, drawn)
    if known is not None:
        _draw_known(axes, known, drawn)
    axes.axvline(100 / len(data.class_names), color="#555555", linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(drawn)), [wrapped(data.voter_names[voter], 24).split("\n")[0] for voter in drawn])
    axes.set_xlabel("balanced accuracy, % (dotted: chance)")
    png = render(figure)
    said = [_voter_text(data, found, int(voter)) for voter in drawn]
    value = 100 * found.balanced_accuracy[drawn]
    points = [(axes, value[place], float(place), text) for place, text in enumerate(said)]
    caption = "Each dot is a voter, the best on top; red ones are no better than chance."
    if known is not None:
        caption += f" Diamonds below them are frequencies on the {data.num_known:,} items whose label is known."
    if len(drawn) < len(order):
        caption += f" The best and the worst {most // 2} of {len(order)} are shown."
    alternative = f"Dot plot. {'. '.join(said)}."
    return Picture("voters", "Balanced accuracy of the voters", caption, alternative, png, spots(figure, points))


def _draw_voters(axes: Axes, found: VoterSkill, drawn: np.ndarray) -> None:
    value, low, high = (100 * part[drawn] for part in _balanced(found))
    for place, voter in enumerate(drawn):
        colour = FLAGGED if found.flags[voter] else PLAIN
        axes.plot([low[place], high[place]], [place, place], color=colour, linewidth=2.2, alpha=0.45)
        axes.plot(value[place], place, "o", color=colour, markersize=4.5)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _draw_known(axes: Axes, known: VoterSkill, drawn: np.ndarray) -> None:
    value, low, high = (100 * part[drawn] for part in _balanced(known))
    places = np.arange(len(drawn)) + 0.3
    axes.hlines(places, low, high, color=KNOWN, linewidth=1.0)
    axes.plot(value, places, "D", color=KNOWN, markerfacecolor="white", markersize=3.8)


def _voter_text(data: DatasetResult, found: VoterSkill, voter: int) -> str:
    value, low, high = (100 * part[voter] for part in _balanced(found))
    flag = f", {found.flags[voter]}" if found.flags[voter] else ""
    within = "" if np.isnan(low) else f" ({low:.1f} to {high:.1f})"
    return f"{data.voter_names[voter]}: {value:.1f}\u00a0%{within}, {found.votes[voter]:,} votes{flag}"


def _balanced(found: VoterSkill) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.balanced_accuracy, found.balanced_accuracy_low, found.balanced_accuracy_high


def _plain(found: VoterSkill) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.accuracy, found.accuracy_low, found.accuracy_high


def _quality_table(
    data: DatasetResult, found: VoterSkill, order: np.ndarray, known: VoterSkill | None, most: int = 300
) -> Table:
    scores = [_balanced(found), _plain(found) if known is None else _balanced(known)]
    rows: list[Row] = [
        [
            data.voter_names[voter],
            number(f"{found.votes[voter]:,}", order=found.votes[voter]),
            *(_range_cell(*(part[voter] for part in score)) for score in scores),
            *([words(found.flags[voter])] if any(found.flags) else []),
        ]
        for voter in order[:most]
    ]
    last = "accuracy, %" if known is None else "by known labels, %"
    headings = ["Voter", "votes", "balanced accuracy, %", last, "remark"]
    return Table(headings if any(found.flags) else headings[:-1], rows)


def _range_cell(value: float, low: float, high: float) -> Cell:
    if np.isnan(value):
        return number("–")
    ends = "" if np.isnan(low) else f"{100 * low:.1f} – {100 * high:.1f}"
    return number(f"{100 * value:.1f}", ends, order=value)


def _matrices(data: DatasetResult, found: VoterSkill, most_open: int = 10, most: int = 24) -> Matrices:
    """Confusion matrices of the voters with the most votes."""
    busiest = np.sort(np.argsort(-found.votes, kind="stable")[:most])
    note = "Rows: the estimated label. Columns: the vote. Percent of each row."
    if len(found.votes) > most:
        note += f" The {most} voters with the most votes."
    shown = [(data.voter_names[voter], found.confusion[voter]) for voter in busiest]
    columns = tuple(map(str, data.votes.category_names))[: found.confusion.shape[2]]
    return Matrices("Confusion matrix of each voter", note, data.class_names, columns, shown, len(shown) <= most_open)
