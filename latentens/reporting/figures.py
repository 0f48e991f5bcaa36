"""Figures of a comparison: scores and ranks, posteriors, fits."""

from collections.abc import Mapping

import jax
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from latentens.checks import SimulationRanks
from latentens.comparison import EXACT, DatasetResult
from latentens.comparison.data_tree import draw_groups
from latentens.reporting import drawing, tables
from latentens.reporting.drawing import Picture, Point, evenly_spaced, panels, picture, row_axes, wrapped
from latentens.reporting.layout import Part, frame_table
from latentens.reporting.tables import CONFIDENCE_STEPS, Mean, Means, agreement, confidence_shares, shared_params
from latentens.scores import CONFIDENT
from latentens.scores.reliability import reliabilities
from latentens.scores.scores import mean_kl


def rank_figure(ranks: SimulationRanks, columns: int = 4) -> Figure:
    """Distribution functions of the true parameters' ranks less the diagonal, by ArviZ.

    ArviZ adds a simultaneous band, which a curve leaves if the draws are wrong, or, from version 1 on, a p-value.

    Args:
        ranks: The result of `simulation_based_calibration`.
        columns: Number of panels side by side.
    """
    from arviz_plots import plot_ecdf_pit

    uniforms = zip(ranks.names, ranks.uniforms.T, strict=True)
    values = xr.Dataset({name: (("chain", "draw"), column[None]) for name, column in uniforms})
    size = (2.6 * columns, 2.2 * -(-len(ranks.names) // columns))
    collection = plot_ecdf_pit(
        xr.DataTree.from_dict({"prior_sbc": values}),
        backend="matplotlib",
        col_wrap=columns,
        figure_kwargs={"figsize": size, "layout": "constrained"},
        visuals={"xlabel": {"text": "normalised rank"}},
    )
    return collection.viz["figure"].item()


def methods_part(
    data: DatasetResult, means: Means, colour: Mapping[str, str], key: jax.Array, most_rows: int = 40
) -> Part | None:
    """The figures that compare the methods, and summaries of posterior draws.

    Args:
        data: The data set.
        means: Scores by method and score.
        colour: Colours of methods.
        key: Random key of the bands of reliability curves.
        most_rows: Parameters shown of each method with posterior draws; the file `draws.csv` has all.
    """
    if not data.posteriors:
        return None
    drawn = [
        score_figure(data, means, colour),
        sureness_figure(data),
        reliability_figure(data, colour, key),
        exact_figure(data, colour),
        agreement_figure(data),
        recovery_figure(data, colour),
        *(singular_value_figure(data, method) for method in data.first_fits),
    ]
    draws = dict[str, pd.DataFrame]()
    for method, fit in data.first_fits.items():
        if fit.draws:
            tree = xr.DataTree.from_dict(draw_groups(fit, data.votes))
            draws[method] = draws_summary(tree)
            drawn.append(trace_figure(method, tree, draws[method]))
    return Part(
        "methods",
        "The methods side by side",
        pictures=[found for found in drawn if found is not None],
        body=[
            frame_table(summary[:most_rows], summary=f"Posterior draws of {method}: summary by ArviZ")
            for method, summary in draws.items()
        ],
        tables={"draws": tables.stacked(draws, "estimator")} if draws else {},
    )


def exact_figure(
    data: DatasetResult, colour: Mapping[str, str], most_points: int = 1500, most_spots: int = 150
) -> Picture | None:
    """Each method's posterior against the exact one."""
    truth = data.posteriors.get(EXACT)
    if truth is None or not data.estimates:
        return None
    titles = [f"{wrapped(name, 26)}\nKL {mean_kl(truth, probs):.3f}" for name, probs in data.estimates.items()]
    figure, grid = drawing.unit_squares(titles, f"exact probability {_which(data)}", "estimated probability")
    points: list[Point] = []
    for axes, (method, probs) in zip(grid, data.estimates.items(), strict=True):
        exact, estimated = _stated(truth), _stated(probs)
        for place in evenly_spaced(len(exact), most_spots):
            words = f"{_item(data, place)}: exact {exact[place]:.3f}, {method} {estimated[place]:.3f}"
            points.append((axes, exact[place], estimated[place], words))
        shown = evenly_spaced(len(exact), most_points)
        axes.plot(
            exact[shown], estimated[shown], "o", color=colour[method], markersize=2.6, alpha=0.25, markeredgewidth=0
        )
    return picture(
        figure,
        "exact",
        "Estimated against exact posterior",
        "Each dot is an item; on the dotted line the method states the exact posterior. On items near the upper or "
        "lower edge and far from the line the method is overconfident. KL is the mean divergence in nats.",
        "Scatter plots of estimated against exact posterior probabilities, one for each of: "
        + ", ".join(data.estimates),
        points,
    )


def _item(data: DatasetResult, place: int) -> str:
    """The item behind an entry of `_stated`, with its class where there are more than two."""
    if len(data.class_names) == 2:
        return f"item {data.votes.item_names[place]}"
    item, label = divmod(int(place), len(data.class_names))
    return f"item {data.votes.item_names[item]}, class {data.class_names[label]}"


def _which(data: DatasetResult) -> str:
    return f"of class {data.class_names[1]}" if len(data.class_names) == 2 else "of each class"


def _stated(probs: np.ndarray) -> np.ndarray:
    """The probability of class 1 of two classes, or the probabilities of all of more."""
    return probs[:, 1] if probs.shape[1] == 2 else probs.ravel()


def reliability_figure(data: DatasetResult, colour: Mapping[str, str], key: jax.Array) -> Picture | None:
    """Reliability curves, with the band of a calibrated method."""
    if not data.num_known:
        return None
    stated = f"stated probability {_which(data)}" if len(data.class_names) == 2 else "stated confidence"
    titles = [wrapped(method, 26) for method in data.posteriors]
    figure, grid = drawing.unit_squares(titles, stated, "share of items for which it was true")
    curves = reliabilities(data.labels, data.scored.values(), key=key)
    for axes, method, curve in zip(grid, data.scored, curves, strict=True):
        axes.fill_between(curve.stated, curve.low, curve.high, color="#c9ced4", linewidth=0)
        axes.plot(curve.stated, curve.observed, color=colour[method], linewidth=1.6)
    return picture(
        figure,
        "reliability",
        "Do stated probabilities come true?",
        "Curves show how often items with a stated probability really had that label (isotonic regression); a "
        "calibrated method stays in the grey band nine times out of ten. Flat curves are overconfident, steep ones "
        f"underconfident. On {data.labels_text}.",
        f"Reliability curves with consistency bands, one for each of: {', '.join(data.posteriors)}.",
    )


def recovery_figure(
    data: DatasetResult, colour: Mapping[str, str], most_panels: int = 4, most_points: int = 500
) -> Picture | None:
    """Estimated against true parameters, for parameters with more than one value."""
    points: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for method, fit in data.first_fits.items():
        for name, true, estimate in shared_params(data, fit.params):
            if true.size > 1:
                shown = evenly_spaced(true.size, most_points)
                points.setdefault(name, {})[method] = true.ravel()[shown], estimate.ravel()[shown]
    if not points:
        return None
    names = [name for name in data.true_params if name in points][:most_panels]
    figure, grid = panels(len(names), 2.3)
    for axes, name in zip(grid, names, strict=True):
        for method, (true, estimate) in points[name].items():
            axes.plot(true, estimate, "o", color=colour[method], alpha=0.7, label=method, ms=3.5, mew=0)
        values = np.concatenate([value for pair in points[name].values() for value in pair])
        ends = values.min(), values.max()
        axes.plot(ends, ends, color=colour[EXACT], linewidth=0.8, linestyle=":", zorder=1)
        axes.set(title=name.replace("_", " "), xlabel="true", ylabel="estimated")
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.set_figheight(figure.get_figheight() + 0.2 * len(handles))
    figure.legend(handles.values(), [wrapped(name, 60) for name in handles], loc="outside lower center")
    return picture(
        figure,
        "parameters",
        "Parameters: estimated against true",
        "Each dot is one parameter; on the dotted line the estimate equals the truth. Only parameters that a method "
        "estimates under the same name as the true model are shown.",
        f"Scatter plots of estimated against true {', '.join(names)} for {', '.join(handles)}.",
    )


def singular_value_figure(data: DatasetResult, method: str) -> Picture | None:
    """The cumulative singular values by which a stack of Boltzmann machines chose its sizes."""
    diagnostics = data.first_fits[method].diagnostics
    curves = diagnostics.get("singular_value_curves")
    if not curves or max(map(len, curves)) < 2:  # one unit was trained: there was nothing to choose
        return None
    sizes = diagnostics["architecture"]
    figure, (axes,) = panels(1, 2.5)
    for layer, curve in enumerate(curves):
        label = f"layer {layer + 1}: {sizes[layer + 1]} of {len(curve)}"
        (line,) = axes.plot(np.arange(1, len(curve) + 1), 100 * np.array(curve), "o-", markersize=3.5, label=label)
        chosen = min(sizes[layer + 1], len(curve))
        axes.plot(chosen, 100 * curve[chosen - 1], "o", markersize=10, markerfacecolor="none", color=line.get_color())
    lowest = min(100 * curve[0] for curve in curves)
    axes.set(xlabel="hidden units", ylabel="share of the singular values, %", ylim=(lowest - 5, 101))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    words = "–".join(map(str, sizes))
    return picture(
        figure,
        f"architecture {method}",
        f"Size of the network: {method}",
        f"Cumulative singular values of each trained layer's weights; rings mark the chosen sizes. Found: {words}.",
        f"Curves of cumulative singular values; the chosen architecture is {words}.",
    )


def draws_summary(draws: xr.DataTree) -> pd.DataFrame:
    """ArviZ's summary of posterior draws, a row for each parameter, those that mixed worst first."""
    import arviz_stats

    summary = arviz_stats.summary(draws, round_to="none").astype(float)
    return summary.sort_values("r_hat", ascending=False, kind="stable").rename_axis("parameter").reset_index()


def trace_figure(method: str, draws: xr.DataTree, summary: pd.DataFrame, most_panels: int = 4) -> Picture:
    """ArviZ's traces of the parameters that mixed worst."""
    import arviz_plots
    from matplotlib import pyplot

    worst = list(summary["parameter"][:most_panels])
    chosen = xr.DataTree.from_dict({"posterior": _elements(draws["posterior"].to_dataset(), worst)})
    size = (drawing.WIDTH, 1.6 * -(-len(worst) // 2) + 0.2)
    collection = arviz_plots.plot_trace(
        chosen, backend="matplotlib", col_wrap=2, figure_kwargs={"figsize": size}, visuals={"trace": {"width": 0.6}}
    )
    figure = collection.viz["figure"].item()
    pyplot.close(figure)
    return picture(
        figure,
        f"traces {method}",
        f"Posterior draws: {method}",
        "Draws in their order, one colour per chain; chains that found the same posterior overlap everywhere. "
        "The parameters that mixed worst are shown.",
        f"Traces of the draws of {', '.join(worst)}.",
    )


def _elements(draws: xr.Dataset, labels: list[str]) -> xr.Dataset:
    """Single parameters as variables, named as in ArviZ's summary, such as `confusion[ann, yes, no]`."""
    from arviz_base import xarray_sel_iter
    from arviz_base.labels import BaseLabeller

    label = BaseLabeller().make_label_flat
    places = {label(name, place, index): (name, index) for name, place, index in xarray_sel_iter(draws)}
    chosen = {label: places[label] for label in labels}
    return xr.Dataset({label: draws[name].isel(index, drop=True) for label, (name, index) in chosen.items()})


SURENESS_COLOURS = ("#e8eef4", "#bdd3e6", "#86b0d3", "#4a83b5", "#0b3c6f")


def score_figure(data: DatasetResult, means: Means, colour: Mapping[str, str]) -> Picture | None:
    """Balanced accuracy and log score of each method with their intervals."""
    if not data.num_known:
        return None
    methods = list(data.posteriors)
    figure, (left, right) = row_axes(methods, columns=2)
    accuracies = {method: Mean(*(100 * part for part in means[method, "balanced_accuracy"])) for method in methods}
    log_scores = {method: means[method, "log_score"] for method in methods}
    points = [*_dots(left, accuracies, " %", colour), *_dots(right, log_scores, " nats", colour)]
    left.set_xlabel("balanced accuracy, %\n(right is better)")
    right.set_xlabel("log score, nats\n(left is better)")
    words = [
        f"{method} {accuracy.value:.1f} percent, {log_scores[method].value:.2f} nats"
        for method, accuracy in accuracies.items()
    ]
    return picture(
        figure,
        "scores",
        "Scores with their uncertainty",
        f"Dots are scores on {data.labels_text}; bars are 95 % intervals over the items. "
        "Balanced accuracy judges the labels, the log score the stated probabilities.",
        f"Dot plot of balanced accuracy and log score: {'; '.join(words)}.",
        points,
    )


def _dots(
    axes: Axes, means: Mapping[str, Mean], unit: str, colour: Mapping[str, str], wide_range: float = 20.0
) -> list[Point]:
    """Draw a dot with its interval for each method; returns their tooltips."""
    points = list[Point]()
    for place, (method, mean) in enumerate(means.items()):
        ends = f" ({mean.ends()})" if mean.ends() else ""
        points.append((axes, mean.value, float(place), f"{method}: {mean.value:.2f}{unit}{ends}"))
        axes.plot([mean.low, mean.high], [place, place], color=colour[method], linewidth=2.5, alpha=0.45)
        axes.plot(mean.value, place, "D" if method == EXACT else "o", color=colour[method], markersize=5)
    if EXACT in means:
        axes.axvline(means[EXACT].value, color=colour[EXACT], linewidth=0.8, linestyle=":")
    values = [mean.value for mean in means.values()]
    if 0 < wide_range * min(values) < max(values):  # on a logarithmic axis
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.margins(x=0.12)
    return points


def sureness_figure(data: DatasetResult) -> Picture:
    """How many items each method labels with how much confidence, those with a gold label by a held-out prediction."""
    methods = list(data.scored)
    figure, (axes,) = row_axes(methods, above=0.5)
    shares = 100 * np.array([confidence_shares(probs) for probs in data.scored.values()])
    starts, points = np.cumsum(shares, axis=1) - shares, list[Point]()
    for step, colour in enumerate(SURENESS_COLOURS):
        low, high = CONFIDENCE_STEPS[step], CONFIDENCE_STEPS[step + 1]
        range_words = f"≤ {high:g}" if step == 0 else f"> {low:g}" if high == 1 else f"{low:g}–{high:g}"
        axes.barh(np.arange(len(methods)), shares[:, step], 0.66, starts[:, step], color=colour, label=range_words)
        range_words = f"of the items between {low:g} and {high:g}"
        points += [
            (axes, start + share / 2, float(row), f"{methods[row]}: {share:.1f} % {range_words}")
            for row, (start, share) in enumerate(zip(starts[:, step], shares[:, step], strict=True))
            if share > 0
        ]
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
    return picture(
        figure,
        "sureness",
        "Confidence of each method",
        "Each bar divides the items by the probability of their most probable label; the labelled part at the right "
        f"end has the items above {CONFIDENT:g}. A method with more of these than the exact posterior, if known, is "
        "overconfident.",
        f"Stacked bars of stated confidence. Share of the items above {CONFIDENT:g}: " + ", ".join(words) + ".",
        points,
    )


def agreement_figure(data: DatasetResult) -> Picture | None:
    """How often two methods give the same label."""
    methods = list(data.posteriors)
    if len(methods) < 2:
        return None
    same = agreement(data)
    share = np.array(
        [[100 * same.get((one, other), same.get((other, one), 1)) for other in methods] for one in methods]
    )
    figure = Figure(figsize=(drawing.WIDTH, 0.4 * len(methods) + 0.5))
    axes = figure.subplots()
    lowest = min(share.min(), 99.0)
    axes.imshow(share, cmap="Blues", vmin=lowest - (100 - lowest) * 0.3, vmax=100 + (100 - lowest) * 0.4, aspect="auto")
    points = list[Point]()
    for (row, column), value in np.ndenumerate(share):
        if row != column:
            ink = "white" if value > 100 - 0.25 * (100 - lowest) else "#1d2733"
            text = axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=ink)
            text.set_in_layout(False)  # it is inside of the axes anyhow
            points.append((axes, column, row, f"{methods[row]} and {methods[column]}: {value:.1f} %"))
    axes.set_xticks(range(len(methods)), [str(number) for number in range(1, len(methods) + 1)])
    axes.set_yticks(range(len(methods)), [f"{number}   {wrapped(name)}" for number, name in enumerate(methods, 1)])
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return picture(
        figure,
        "agreement",
        "Agreement between methods",
        "Share of the items, in percent, to which two methods give the same label; columns are numbered like the rows. "
        "Methods that agree can be wrong together.",
        f"Matrix of agreement between methods, from {share.min():.1f} to 100 percent.",
        points,
    )
