"""Names of axes and of nodes in a tree."""

import re
from collections.abc import Container, Iterable, Mapping

import numpy as np

from latentens.programs.contract import inspect
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes
from latentens.votes.labels import Names

UNSAFE = re.compile(r"[/\x00-\x1f]")


def node_names(names: Iterable[str], taken: Container[str] = ()) -> dict[str, str]:
    """A different node for each name: the name itself where it can be one.

    Args:
        names: Different names.
        taken: Nodes that are there already.
    """
    names = list(names)
    found = {name: name for name in names if _is_node(name) and name not in taken}
    for name in names:
        if name not in found:
            found[name] = _free(UNSAFE.sub("_", name).strip(".") or "_", {*found.values()}, taken)
    return {name: found[name] for name in names}


def node_paths(names: Iterable[str], taken: Container[str] = ()) -> dict[str, str]:
    """A different path for each name, none of them inside another; slashes lead to nodes within nodes.

    Args:
        names: Different names.
        taken: Nodes at the top that are there already.
    """
    names = sorted(names, key=lambda name: name.count("/"))
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if all(map(_is_node, parts)) and parts[0] not in taken and not above & {*found.values()}:
            found[name] = name
    tops = {path.partition("/")[0] for path in found.values()}
    for name in names:
        if name not in found:
            found[name] = _free(UNSAFE.sub("_", name).strip(".") or "_", tops, taken)
            tops.add(found[name])
    return found


def _is_node(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not UNSAFE.search(name)


def _free(wanted: str, *taken: Container[str]) -> str:
    """The wanted name, or the first with a number that is free."""
    number, name = 1, wanted
    while any(name in names for names in taken):
        number += 1
        name = f"{wanted}_{number}"
    return name


VOTERS = ("voter",)
CUSTOMARY: Mapping[str, tuple[str | None, ...]] = {
    "ability": VOTERS,
    "confusion": ("voter", "true_class", "vote_class"),
    "ease": ("item",),
    "groups": VOTERS,
    "prevalence": ("true_class",),
    "sensitivity": VOTERS,
    "specificity": VOTERS,
    "spectral_vector": VOTERS,
    "subtype_confusion": ("voter", "true_class", None, "vote_class"),
    "subtype_shares": ("true_class", None),
    "threshold": VOTERS,
    "visible_bias": VOTERS,
    "visible_bias_1": VOTERS,
    "voter_sensitivity": VOTERS,
    "voter_specificity": VOTERS,
    "weight": ("voter", None),
    "weights": ("voter", None),
    "weights_1": ("voter", None),
}
"""The axes of parameters that methods estimate without a program; None for those of their own."""


def axis_names(
    shapes: Mapping[str, tuple[int, ...]], votes: Votes, model: GenerativeModel | None = None
) -> dict[str, tuple[str, ...]]:
    """The name of each axis of each parameter.

    A plate of the program names its axis. An axis that nobody names is called after its parameter, as in ArviZ.

    Args:
        shapes: The shapes of the parameters, by name.
        votes: The votes that they belong to.
        model: The program, for parameters of a program.
    """
    plates = {} if model is None else inspect(model).parameter_plates
    sizes = {"voter": votes.num_voters, "item": votes.num_items}
    sizes |= dict.fromkeys(("true_class", "vote_class"), votes.num_classes)
    found: dict[str, tuple[str, ...]] = {}
    for name, shape in shapes.items():
        axes: list[str] = []
        for axis, size in enumerate(shape):
            wanted = _at(plates.get(name, ()), axis) or _at(CUSTOMARY.get(name, ()), axis)
            fits = wanted is not None and wanted not in axes and sizes.setdefault(wanted, size) == size
            axes.append(wanted if wanted is not None and fits else f"{name}_dim_{axis}")
        found[name] = tuple(axes)
    return found


def coordinates(votes: Votes) -> dict[str, np.ndarray]:
    """The names along each axis that votes have."""
    classes = coordinate(votes.class_names)
    items, voters = coordinate(votes.item_names), coordinate(votes.voter_names)
    return {"item": items, "voter": voters, "label": classes, "true_class": classes, "vote_class": classes}


def coordinate(names: Names) -> np.ndarray:
    """Names as a file can hold them: what is neither text nor a number becomes text."""
    values = np.asarray(names)
    return values.astype(str) if values.dtype.hasobject else values


def _at(axes: tuple[str | None, ...], axis: int) -> str | None:
    return axes[axis] if axis < len(axes) else None
