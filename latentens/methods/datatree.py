"""Fits as an `xarray.DataTree` in the layout of ArviZ, and the names of the axes of their parameters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes
from latentens.votes.labels import Names
from latentens.votes.triplets import Triplets

if TYPE_CHECKING:
    from latentens.methods.base import Fit

VOTERS = ("voter",)
CUSTOMARY: Mapping[str, tuple[str | None, ...]] = {
    "ability": VOTERS,
    "confusion": ("voter", "true_class", "vote_class"),
    "ease": ("item",),
    "groups": VOTERS,
    "prevalence": ("true_class",),
    "spectral_vector": VOTERS,
    "subtype_confusion": ("voter", "true_class", None, "vote_class"),
    "subtype_shares": ("true_class", None),
    "threshold": VOTERS,
    "visible_bias": VOTERS,
    "visible_bias_1": VOTERS,
    "voter_confusion": ("voter", None, "vote_class"),
    "weight": ("voter", None),
    "weights": ("voter", None),
    "weights_1": ("voter", None),
}
"""The axes of parameters that methods estimate without a program; None for those of their own."""


def axis_names(
    shapes: Mapping[str, tuple[int, ...]], named: "Votes | Fit", model: GenerativeModel | None = None
) -> dict[str, tuple[str, ...]]:
    """The name of each axis of each parameter.

    A plate of the program names its axis. An axis that nobody names is called after its parameter, as in ArviZ.

    Args:
        shapes: The shapes of the parameters, by name.
        named: The votes or the fit that they belong to.
        model: The program, for parameters of a program.
    """
    plates = {} if model is None else structure_of(model).parameter_plates
    sizes = {axis: len(names) for axis, names in coordinates(named).items()}
    found: dict[str, tuple[str, ...]] = {}
    for name, shape in shapes.items():
        axes: list[str] = []
        for axis, size in enumerate(shape):
            wanted = _at(plates.get(name, ()), axis) or _at(CUSTOMARY.get(name, ()), axis)
            fits = wanted is not None and wanted not in axes and sizes.setdefault(wanted, size) == size
            axes.append(wanted if wanted is not None and fits else f"{name}_dim_{axis}")
        found[name] = tuple(axes)
    return found


def coordinates(named: "Votes | Fit") -> dict[str, np.ndarray]:
    """The names along each axis of votes and fits."""
    classes = coordinate(named.class_names)
    votes = coordinate((*named.class_names, *named.other_names)) if len(named.other_names) else classes
    items, voters = coordinate(named.item_names), coordinate(named.voter_names)
    return {"item": items, "voter": voters, "label": classes, "true_class": classes, "vote_class": votes}


def coordinate(names: Names) -> np.ndarray:
    """Names as a file can hold them: what is neither text nor a number becomes text."""
    values = np.asarray(names)
    return values.astype(str) if values.dtype.hasobject else values


def _at(axes: tuple[str | None, ...], axis: int) -> str | None:
    return axes[axis] if axis < len(axes) else None


def fit_tree(fit: "Fit") -> xr.DataTree:
    """The groups of a fit.

    `posterior` and `sample_stats` are there for a sampled fit, `params` holds point estimates (or posterior means),
    `estimates` the posterior of each item's label. `observed_data` needs the votes, which a loaded fit does not have,
    and `log_likelihood` a method that gives votes a probability besides.
    """
    draws, stats = fit.draws or {}, fit.diagnostics.extra.get("sample_stats", {})
    shapes = {name: np.shape(value) for name, value in fit.params.items()}
    shapes |= {name: np.shape(value)[2:] for name, value in draws.items()}
    axes = axis_names(shapes, fit, fit.model) | {"label_prob": ("item", "label"), "votes": ("item",)}
    groups = {
        "params": labelled(fit.params, axes, fit),
        "estimates": labelled({"label_prob": fit.label_probs}, axes, fit),
    }
    if draws:
        groups["posterior"] = labelled(draws, axes, fit, ("chain", "draw"))
    if stats:
        groups["sample_stats"] = labelled(stats, axes, fit, ("chain", "draw"))
    if isinstance(fit.source, Votes):
        groups["observed_data"] = observed_data(fit.source)
        if (rows := fit.method.log_likelihood_of(fit, fit.source.patterns.votes)) is not None:
            by_item = rows[..., fit.source.patterns.inverse].reshape(*(rows.shape[:-1] or (1, 1)), -1)
            groups["log_likelihood"] = labelled({"votes": by_item}, axes, fit, ("chain", "draw"))
    return xr.DataTree.from_dict(groups)


def labelled(
    arrays: Mapping[str, Any],
    axes: Mapping[str, tuple[str, ...]],
    named: "Votes | Fit",
    leading: tuple[str, ...] = (),
) -> xr.Dataset:
    """Arrays as variables with named axes, after leading ones that all share, and the names along these."""
    found = {}
    for name, array in arrays.items():
        default = tuple(f"{name}_dim_{axis}" for axis in range(np.ndim(array) - len(leading)))
        found[name] = ((*leading, *axes.get(name, default)), array)
    made = xr.Dataset(found)
    # where votes for other categories are missing, `vote_class` has the classes alone, which come first
    names = {axis: names[: made.sizes[axis]] for axis, names in coordinates(named).items() if axis in made.sizes}
    return made.assign_coords(names)


def observed_data(votes: Votes) -> xr.Dataset:
    """The votes, by item and voter or, where few voters vote on an item, one entry for each vote."""
    names = {axis: values for axis, values in coordinates(votes).items() if axis in ("item", "voter", "vote_class")}
    if isinstance(votes.storage, Triplets):
        entries = zip(("item_of", "voter_of", "vote"), votes.storage, strict=True)
        found = xr.Dataset({name: ("entry", values) for name, values in entries}, names)
    else:
        found = xr.Dataset({"vote": (("item", "voter"), votes.storage)}, names)
    return found.assign_attrs(num_classes=votes.num_classes) if len(votes.other_names) else found
