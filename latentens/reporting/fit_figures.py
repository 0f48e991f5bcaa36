"""Figures of single fits: recovered parameters, sizes of Boltzmann machines, and posterior draws."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.ticker import MaxNLocator

from latentens.comparison import EXACT
from latentens.reporting.drawing import WIDTH, Picture, evenly_spaced, panels, render, wrapped
from latentens.reporting.score_tables import shared_params
from latentens.reporting.view import View

MOST_PANELS = 4
MOST_POINTS = 500


def recovery_figure(view: View, colour: Mapping[str, str]) -> Picture | None:
    """Estimated against true parameters, for parameters with more than one value."""
    points = {name: found for name, found in _recovered(view).items() if view.true_params[name].size > 1}
    if not points:
        return None
    names = list(points)[:MOST_PANELS]
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
    return Picture(
        "parameters",
        "Parameters: estimated against true",
        "Each dot is one parameter; on the dotted line the estimate equals the truth. Only parameters that a method "
        "estimates under the same name as the true model are shown.",
        f"Scatter plots of estimated against true {', '.join(names)} for {', '.join(handles)}.",
        render(figure),
    )


def _recovered(view: View) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """By parameter and method, true and estimated values, at most some of them."""
    points: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {name: {} for name in view.true_params}
    for method, fit in view.first_fits.items():
        for name, true, estimate in shared_params(view, fit.params):
            shown = evenly_spaced(true.size, MOST_POINTS)
            points[name][method] = true.ravel()[shown], estimate.ravel()[shown]
    return {name: found for name, found in points.items() if found}


def singular_value_figure(view: View, method: str) -> Picture | None:
    """The cumulative singular values by which a stack of Boltzmann machines chose its sizes."""
    diagnostics = view.first_fits[method].diagnostics
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
    return Picture(
        f"architecture {method}",
        f"Size of the network: {method}",
        f"Cumulative singular values of each trained layer's weights; rings mark the chosen sizes. Found: {words}.",
        f"Curves of cumulative singular values; the chosen architecture is {words}.",
        render(figure),
    )


def draws_summary(draws: xr.DataTree) -> pd.DataFrame:
    """ArviZ's summary of posterior draws, a row for each parameter, those that mixed worst first."""
    import arviz_stats

    summary = arviz_stats.summary(draws, round_to="none").astype(float)
    return summary.sort_values("r_hat", ascending=False, kind="stable").rename_axis("parameter").reset_index()


def trace_figure(method: str, draws: xr.DataTree, summary: pd.DataFrame) -> Picture:
    """ArviZ's traces of the parameters that mixed worst."""
    import arviz_plots
    from matplotlib import pyplot

    worst = list(summary["parameter"][:MOST_PANELS])
    chosen = xr.DataTree.from_dict({"posterior": _elements(draws["posterior"].to_dataset(), worst)})
    size = (WIDTH, 1.6 * -(-len(worst) // 2) + 0.2)
    collection = arviz_plots.plot_trace(
        chosen, backend="matplotlib", col_wrap=2, figure_kwargs={"figsize": size}, visuals={"trace": {"width": 0.6}}
    )
    figure = collection.viz["figure"].item()
    png = render(figure)
    pyplot.close(figure)
    return Picture(
        f"traces {method}",
        f"Posterior draws: {method}",
        "Draws in their order, one colour per chain; chains that found the same posterior overlap everywhere. "
        "The parameters that mixed worst are shown.",
        f"Traces of the draws of {', '.join(worst)}.",
        png,
    )


def _elements(draws: xr.Dataset, labels: list[str]) -> xr.Dataset:
    """Single parameters, by the labels of ArviZ's summary, such as `sensitivity[ann]`, as variables of their own."""
    from arviz_base import xarray_sel_iter
    from arviz_base.labels import BaseLabeller

    label = BaseLabeller().make_label_flat
    places = {label(name, place, index): (name, index) for name, place, index in xarray_sel_iter(draws)}
    chosen = {label: places[label] for label in labels}
    return xr.Dataset({label: draws[name].isel(index, drop=True) for label, (name, index) in chosen.items()})
