"""Figures of scores, of how sure methods are, and of how far they agree."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from latentens.comparison import EXACT
from latentens.evaluation.statistics import CONFIDENT
from latentens.reporting.drawing import WIDTH, Picture, Point, render, row_axes, spots, wrapped
from latentens.reporting.score_tables import CONFIDENCE_STEPS, Mean, Means, agreement, confidence_shares
from latentens.reporting.view import View

SURENESS_COLOURS = ("#e8eef4", "#bdd3e6", "#86b0d3", "#4a83b5", "#0b3c6f")
WIDE_RANGE = 20.0
"""Positive scores that differ by more than this factor are drawn on a logarithmic axis."""


def score_figure(view: View, means: Means, colour: Mapping[str, str]) -> Picture | None:
    """Balanced accuracy and log score of each method with their intervals."""
    if not view.num_known:
        return None
    methods = list(view.posteriors)
    figure, (left, right) = row_axes(methods, 2)
    accuracies = [Mean(*(100 * number for number in means[method, "balanced_accuracy"])) for method in methods]
    log_scores = [means[method, "log_score"] for method in methods]
    _dots(left, dict(zip(methods, accuracies, strict=True)), colour)
    _dots(right, dict(zip(methods, log_scores, strict=True)), colour)
    left.set_xlabel("balanced accuracy, %\n(right is better)")
    right.set_xlabel("log score, nats\n(left is better)")
    words = [
        f"{method} {accuracy.value:.1f} percent, {log_score.value:.2f} nats"
        for method, accuracy, log_score in zip(methods, accuracies, log_scores, strict=True)
    ]
    return Picture(
        "scores",
        "Scores with their uncertainty",
        f"Dots are scores on {view.labels_text}; bars are 95 % intervals over the items that happened to be drawn. "
        "Balanced accuracy judges the labels, the log score the stated probabilities.",
        f"Dot plot of balanced accuracy and log score: {'; '.join(words)}.",
        render(figure),
        spots(
            figure, [*_mean_points(left, methods, accuracies, " %"), *_mean_points(right, methods, log_scores, " nats")]
        ),
    )


def _mean_points(axes: Axes, methods: Sequence[str], means: Sequence[Mean], unit: str) -> list[Point]:
    """What a pointer is told at each dot."""
    return [
        (axes, mean.value, float(place), f"{method}: {mean.value:.2f}{unit}{f' ({ends})' if ends else ''}")
        for place, (method, mean) in enumerate(zip(methods, means, strict=True))
        for ends in (mean.ends(),)
    ]


def _dots(axes: Axes, means: Mapping[str, Mean], colour: Mapping[str, str]) -> None:
    for place, (method, mean) in enumerate(means.items()):
        axes.plot([mean.low, mean.high], [place, place], color=colour[method], linewidth=2.5, alpha=0.45)
        axes.plot(mean.value, place, "D" if method == EXACT else "o", color=colour[method], markersize=5)
    if EXACT in means:
        axes.axvline(means[EXACT].value, color=colour[EXACT], linewidth=0.8, linestyle=":")
    values = [mean.value for mean in means.values()]
    if 0 < WIDE_RANGE * min(values) < max(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.margins(x=0.12)


def sureness_figure(view: View) -> Picture:
    """How many items each method labels with how much confidence."""
    methods = list(view.posteriors)
    figure, (axes,) = row_axes(methods, above=0.5)
    shares = 100 * np.array([confidence_shares(probs) for probs in view.posteriors.values()])
    starts = np.cumsum(shares, axis=1) - shares
    for step, colour in enumerate(SURENESS_COLOURS):
        low, high = CONFIDENCE_STEPS[step], CONFIDENCE_STEPS[step + 1]
        range_words = f"≤ {high:g}" if step == 0 else f"> {low:g}" if high == 1 else f"{low:g}–{high:g}"
        axes.barh(np.arange(len(methods)), shares[:, step], 0.66, starts[:, step], color=colour, label=range_words)
    for place, share in enumerate(shares[:, -1]):
        inside = share > 14
        x, colour = (99, "white") if inside else (100.8, SURENESS_COLOURS[-1])
        axes.text(
            x, place, f"{share:.0f} %", ha="right" if inside else "left", va="center", color=colour, weight="bold"
        )
    axes.set_xlim(0, 100 if (shares[:, -1] > 14).all() else 109)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel("share of the items, %")
    figure.legend(loc="outside upper center", ncols=5, handlelength=0.8, columnspacing=0.8, handletextpad=0.3)
    words = [f"{method} {share:.0f} %" for method, share in zip(methods, shares[:, -1], strict=True)]
    return Picture(
        "sureness",
        "How sure each method is",
        "Each bar divides the items by the probability of their most probable label; the part at the right end, "
        f"with its number, are items above {CONFIDENT:g}. More of these than in the exact posterior, if that is known, "
        "means that a method claims more than the votes support.",
        f"Stacked bars of stated confidence. Share of the items above {CONFIDENT:g}: " + ", ".join(words) + ".",
        render(figure),
        spots(figure, _share_points(axes, methods, shares, starts)),
    )


def _share_points(axes: Axes, methods: Sequence[str], shares: np.ndarray, starts: np.ndarray) -> list[Point]:
    return [
        (
            axes,
            float(starts[row, step] + shares[row, step] / 2),
            float(row),
            f"{methods[row]}: {shares[row, step]:.1f} % of the "
            f"items between {CONFIDENCE_STEPS[step]:g} and {CONFIDENCE_STEPS[step + 1]:g}",
        )
        for row, step in np.ndindex(shares.shape)
        if shares[row, step] > 0
    ]


def agreement_figure(view: View) -> Picture | None:
    """How often two methods give the same label."""
    methods = list(view.posteriors)
    if len(methods) < 2:
        return None
    same = agreement(view)
    share = np.array(
        [[100 * same.get((one, other), same.get((other, one), 1)) for other in methods] for one in methods]
    )
    figure = Figure(figsize=(WIDTH, 0.4 * len(methods) + 0.5))
    axes = figure.subplots()
    lowest = min(share.min(), 99.0)
    axes.imshow(share, cmap="Blues", vmin=lowest - (100 - lowest) * 0.3, vmax=100 + (100 - lowest) * 0.4, aspect="auto")
    _write_shares(axes, share, lowest)
    axes.set_xticks(range(len(methods)), [str(number) for number in range(1, len(methods) + 1)])
    axes.set_yticks(range(len(methods)), [f"{number}   {wrapped(name)}" for number, name in enumerate(methods, 1)])
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return Picture(
        "agreement",
        "Agreement between methods",
        "Share of the items, in percent, to which two methods give the same label; columns are numbered like the rows. "
        "Methods that agree can be wrong together.",
        f"Matrix of agreement between methods, from {share.min():.1f} to 100 percent.",
        render(figure),
        spots(figure, _pair_points(axes, methods, share)),
    )


def _write_shares(axes: Axes, share: np.ndarray, lowest: float) -> None:
    for (row, column), value in np.ndenumerate(share):
        if row != column:
            ink = "white" if value > 100 - 0.25 * (100 - lowest) else "#1d2733"
            text = axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            text.set_in_layout(False)  # it is inside of the axes anyhow


def _pair_points(axes: Axes, methods: Sequence[str], share: np.ndarray) -> list[Point]:
    return [
        (axes, column, row, f"{methods[row]} and {methods[column]}: {share[row, column]:.1f} %")
        for row, column in np.ndindex(share.shape)
        if row != column
    ]
