"""Figures that show what stated probabilities are worth: against the truth, and against the exact posterior."""

from collections.abc import Mapping

import jax
import numpy as np

from latentens.comparison import EXACT
from latentens.evaluation.reliability import reliabilities
from latentens.evaluation.scores import mean_kl
from latentens.reporting.drawing import Picture, Point, evenly_spaced, render, spots, unit_squares, wrapped
from latentens.reporting.view import View

MOST_POINTS = 1500
MOST_SPOTS = 150
"""Of these a pointer can read the values."""


def exact_figure(view: View, colour: Mapping[str, str]) -> Picture | None:
    """Each method's posterior against the exact one."""
    if view.exact is None or not view.estimates:
        return None
    titles = [f"{wrapped(name, 26)}\nKL {mean_kl(view.exact, probs):.3f}" for name, probs in view.estimates.items()]
    figure, grid = unit_squares(titles, f"exact probability {_which(view)}", "estimated probability")
    points: list[Point] = []
    for axes, (method, probs) in zip(grid, view.estimates.items(), strict=True):
        exact, estimated = _stated(view.exact), _stated(probs)
        for place in evenly_spaced(len(exact), MOST_SPOTS):
            words = f"{_item(view, place)}: exact {exact[place]:.3f}, {method} {estimated[place]:.3f}"
            points.append((axes, exact[place], estimated[place], words))
        shown = evenly_spaced(len(exact), MOST_POINTS)
        axes.plot([0, 1], [0, 1], color=colour[EXACT], linewidth=0.8, linestyle=":")
        axes.plot(
            exact[shown], estimated[shown], "o", color=colour[method], markersize=2.6, alpha=0.25, markeredgewidth=0
        )
    return Picture(
        "exact",
        "Estimated against exact posterior",
        "Each dot is an item; on the dotted line the method says exactly what the votes support. Dots near the upper "
        "or lower edge, far from the line, are items about which the method is too sure. KL is the mean divergence in "
        "nats.",
        "Scatter plots of estimated against exact posterior probabilities, one for each of: "
        + ", ".join(view.estimates),
        render(figure),
        spots(figure, points),
    )


def _item(view: View, place: int) -> str:
    """The item behind an entry of `_stated`, with its class where there are more than two."""
    if len(view.class_names) == 2:
        return f"item {view.votes.item_names[place]}"
    item, label = divmod(int(place), len(view.class_names))
    return f"item {view.votes.item_names[item]}, class {view.class_names[label]}"


def _which(view: View) -> str:
    return f"of class {view.class_names[1]}" if len(view.class_names) == 2 else "of each class"


def _stated(probs: np.ndarray) -> np.ndarray:
    """The probability of class 1 of two classes, or the probabilities of all of more."""
    return probs[:, 1] if probs.shape[1] == 2 else probs.ravel()


def reliability_figure(view: View, colour: Mapping[str, str], key: jax.Array) -> Picture | None:
    """How often what was stated came true, with the band in which a calibrated method would lie."""
    if not view.num_known:
        return None
    stated = f"stated probability {_which(view)}" if len(view.class_names) == 2 else "stated confidence"
    titles = [wrapped(method, 26) for method in view.posteriors]
    figure, grid = unit_squares(titles, stated, "share of items for which it was true")
    curves = reliabilities(view.labels, view.scored.values(), key=key)
    for axes, method, curve in zip(grid, view.scored, curves, strict=True):
        axes.fill_between(curve.stated, curve.low, curve.high, color="#c9ced4", linewidth=0)
        axes.plot([0, 1], [0, 1], color=colour[EXACT], linewidth=0.8, linestyle=":")
        axes.plot(curve.stated, curve.observed, color=colour[method], linewidth=1.6)
    return Picture(
        "reliability",
        "Do stated probabilities come true?",
        "Curves show how often items with a stated probability really had that label (isotonic regression); a method "
        "whose probabilities can be taken at face value stays in the grey band nine times out of ten. Flat curves are "
        f"overconfident, steep ones too modest. By {view.labels_text}.",
        f"Reliability curves with consistency bands, one for each of: {', '.join(view.posteriors)}.",
        render(figure),
    )
