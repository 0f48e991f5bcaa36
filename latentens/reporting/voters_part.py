"""A part on the voters: how good each is, with its uncertainty, and what it confuses."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentens.inference.skill import AS_FITTED, COVERAGE, NOT_KNOWN, VoterSkill, as_fitted, count_by_label, skills_of
from latentens.methods.display import MOST_CLASSES
from latentens.reporting.drawing import WIDTH, Picture, render, spots, wrapped
from latentens.reporting.html import Html, details, element, number_cell, table, words_cell
from latentens.reporting.parts import Part
from latentens.reporting.view import View

MOST_DRAWN = 40
"""Voters in the chart: the best and the worst if there are more."""

MOST_MATRICES = 24
"""Voters whose confusion matrices are shown, those with the most votes."""

MOST_OPEN = 10
"""Up to this many matrices are shown without being asked for."""

MOST_ROWS = 300
PLAIN, FLAGGED, KNOWN = "#0b5394", "#c0392b", "#222222"
LEAST_KNOWN = 50
"""Known labels from which on they have a say."""

HALF = 0.5
"""Of a vote: a voter who was never wrong on a few items is not known to be perfect."""


def voters_part(view: View, colour: Mapping[str, str]) -> Part | None:
    """The quality of the voters by one method, for votes whose origin is unknown."""
    del colour
    if view.is_simulated or not view.estimates:
        return None
    method = judge(view)
    found = view.first_fits[method].skill
    if found is None:
        return None
    order = np.argsort(-np.nan_to_num(found.balanced_accuracy, nan=-1.0), kind="stable")
    body = [_matrices(view, found)] if len(view.class_names) <= MOST_CLASSES else []
    known = by_known_labels(view)
    return Part(
        "voters",
        "Quality of the voters",
        _words(view, method, found, known),
        [_chart(view, found, order, known)],
        _quality_table(view, found, order, known),
        body,
    )


def by_known_labels(view: View) -> VoterSkill | None:
    """What the known labels say of the voters, with half a vote more of each kind; None if they are few."""
    chosen = np.flatnonzero(view.labels >= 0)
    if len(chosen) < LEAST_KNOWN:
        return None
    truth = np.eye(len(view.class_names))[view.labels[chosen]]
    cast, shares = count_by_label(view.votes.take(chosen), truth), truth.mean(axis=0)
    counts = cast + HALF
    found = as_fitted(skills_of(shares, counts / counts.sum(axis=2, keepdims=True)), counts, shares, COVERAGE)
    value, low, high = (np.where(cast.any(axis=(1, 2)), part, np.nan) for part in _balanced(found))
    return found._replace(balanced_accuracy=value, balanced_accuracy_low=low, balanced_accuracy_high=high)


def judge(view: View) -> str:
    """The method by which voters are judged: the first that estimates what each confuses, best by likelihood."""
    able = [(method, fit) for method, fit in view.first_fits.items() if "confusion" in fit.params]
    likely = [method for method, fit in able if "log_likelihood" in fit.diagnostics]
    return next(iter([*likely, *(method for method, _ in able), *view.estimates]))


def _words(view: View, method: str, found: VoterSkill, known: VoterSkill | None) -> list[str]:
    words = [
        f"As {method} sees them. No label is behind these numbers but the method's own estimates: where those are "
        f"wrong, so is the picture of the voters. {_interval_words(found.intervals)}"
    ]
    if known is not None:
        words.append(
            f"Diamonds, and the last figures of the table, go by the {view.num_known:,} known labels; where the two "
            "differ, these are to be believed."
        )
    for flag in dict.fromkeys(filter(None, found.flags)):
        names = [name for name, mine in zip(view.voter_names, found.flags, strict=True) if mine == flag]
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        words.append(f"{flag[0].upper()}{flag[1:]}: {listed}.")
    return words


def _interval_words(intervals: str) -> str:
    if intervals == NOT_KNOWN:
        return "How exact the numbers are is not known for this method."
    narrow = ": they take the labels as fitted and are too narrow" if intervals == AS_FITTED else f", from {intervals}"
    return (
        f"Intervals cover {100 * COVERAGE:.0f}\u00a0% if the method's model holds{narrow}; "
        "voters whose intervals overlap widely should not be ranked."
    )


def _chart(view: View, found: VoterSkill, order: np.ndarray, known: VoterSkill | None) -> Picture:
    """Balanced accuracies with their intervals, the best on top."""
    drawn = order[~np.isnan(found.balanced_accuracy[order])]
    if len(drawn) > MOST_DRAWN:
        drawn = np.concatenate([drawn[: MOST_DRAWN // 2], drawn[-MOST_DRAWN // 2 :]])
    figure = Figure(figsize=(WIDTH, (0.2 if known is None else 0.28) * len(drawn) + 0.8))
    axes = figure.subplots()
    _draw_voters(axes, found, drawn)
    if known is not None:
        _draw_known(axes, known, drawn)
    axes.axvline(100 / len(view.class_names), color="#555555", linewidth=0.9, linestyle=":")
    axes.set_yticks(range(len(drawn)), [wrapped(view.voter_names[voter], 24).split("\n")[0] for voter in drawn])
    axes.set_xlabel("balanced accuracy, % (dotted: chance)")
    png = render(figure)
    said = [_said(view, found, int(voter)) for voter in drawn]
    value = 100 * found.balanced_accuracy[drawn]
    points = [(axes, value[place], float(place), words) for place, words in enumerate(said)]
    caption = "Each dot is a voter, the best on top; red ones are no better than chance or worse."
    if known is not None:
        caption += f" Diamonds below them are frequencies on the {view.num_known:,} items whose label is known."
    if len(drawn) < len(order):
        caption += f" The best and the worst {MOST_DRAWN // 2} of {len(order)} are shown."
    alternative = f"Dot plot. {'. '.join(said)}."
    return Picture("voters", "Who can be relied on", caption, alternative, png, spots(figure, points))


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


def _said(view: View, found: VoterSkill, voter: int) -> str:
    value, low, high = (100 * part[voter] for part in _balanced(found))
    flag = f", {found.flags[voter]}" if found.flags[voter] else ""
    within = "" if np.isnan(low) else f" ({low:.1f} to {high:.1f})"
    return f"{view.voter_names[voter]}: {value:.1f}\u00a0%{within}, {found.votes[voter]:,} votes{flag}"


def _balanced(found: VoterSkill) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.balanced_accuracy, found.balanced_accuracy_low, found.balanced_accuracy_high


def _plain(found: VoterSkill) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.accuracy, found.accuracy_low, found.accuracy_high


def _quality_table(view: View, found: VoterSkill, order: np.ndarray, known: VoterSkill | None) -> Html:
    scores = [_balanced(found), _plain(found) if known is None else _balanced(known)]
    rows = [
        [
            view.voter_names[voter],
            number_cell(f"{found.votes[voter]:,}", order=found.votes[voter]),
            *(_range_cell(*(part[voter] for part in score)) for score in scores),
            *([words_cell(found.flags[voter])] if any(found.flags) else []),
        ]
        for voter in order[:MOST_ROWS]
    ]
    last = "accuracy, %" if known is None else "the same by known labels, %"
    headings = ["Voter", "votes", "balanced accuracy, %", last, "remark"]
    return table(headings if any(found.flags) else headings[:-1], rows)


def _range_cell(value: float, low: float, high: float) -> Html:
    if np.isnan(value):
        return number_cell("–")
    ends = [] if np.isnan(low) else [element("small", f"{100 * low:.1f} – {100 * high:.1f}")]
    return number_cell(f"{100 * value:.1f}", *ends, order=value)


def _matrices(view: View, found: VoterSkill) -> Html:
    """Small confusion matrices of the voters with the most votes."""
    busiest = np.sort(np.argsort(-found.votes, kind="stable")[:MOST_MATRICES])
    grids = [_matrix(view, found, int(voter)) for voter in busiest]
    words = "Rows: the label, as estimated. Columns: the vote. Percent of each row."
    more = f" The {MOST_MATRICES} voters with the most votes." if len(found.votes) > MOST_MATRICES else ""
    shown = element("div", *grids, class_="matrices")
    children = element("p", words + more, class_="soft"), shown
    return details("What each voter confuses", *children, opened=len(grids) <= MOST_OPEN)


def _matrix(view: View, found: VoterSkill, voter: int) -> Html:
    head = element("tr", element("td"), *(element("th", name, scope="col") for name in view.class_names))
    rows = [
        element("tr", element("th", name, scope="row"), *map(_shaded, found.confusion[voter, label]))
        for label, name in enumerate(view.class_names)
    ]
    name = element("caption", view.voter_names[voter])
    return element("table", name, element("thead", head), element("tbody", *rows), class_="confusion")


def _shaded(share: float) -> Html:
    if np.isnan(share):
        return element("td", "–")
    colour = f"background: color-mix(in srgb, var(--accent) {45 * share:.0f}%, transparent)"
    return element("td", f"{100 * share:.0f}", style=colour)
