"""How a comparison is laid out in an `xarray.DataTree`: the one place where arrays get their labels.

The tree of one data set, its groups flat so that ArviZ opens it:
    `observed_data`  vote[item, voter]; of triplets item_of[entry], voter_of[entry], vote[entry]
    `truth`          label[item] (−1: unknown), and where known bayes_prob[item, label] and the true parameters
    `estimates`      label_prob[method, item, label]
    `scores`         one variable a score, [method], with seconds, peak_memory (bytes) and error
    `intervals`      bootstrap intervals of the scores, [method, bound]
    `pairs`          differences of a method from another, [method, other]: accuracy_difference, …_low, …_high and
                     …_p_value by McNemar's test, and the same of log_score
    `posterior`, `sample_stats`  draws of the first sampled fit; of others `posterior_NAME`, `sample_stats_NAME`
    `fits/NAME`      a method's parameters; its settings and diagnostics are attributes
With several repetitions `repetition` is the first dimension. A sweep over data sets has such a tree for each under its
name, and common `scores`, `intervals` and `pairs` with the dimension `dataset` at the top.
"""

import json
import platform
import shlex
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import permutations, product
from typing import Any

import numpy as np
import xarray as xr

from latentens.comparison.cell import Outcome
from latentens.datasets.dataset import Dataset
from latentens.evaluation import scores as evaluation
from latentens.methods.base import Posterior
from latentens.votes import Votes
from latentens.votes.triplets import Triplets

EXACT = "exact Bayes"
"""What the exact posterior is called among the methods."""

LIBRARIES = ("latentens", "jax", "numpyro", "numpy", "scipy", "xarray")

Address = tuple[str, int, str]
Outcomes = Mapping[Address, Outcome]
"""What came of each data set, repetition and method."""


def assemble(datasets: Sequence[Dataset], outcomes: Outcomes, key_data: np.ndarray) -> xr.DataTree:
    """The whole tree; outcomes of the exact posterior stand under the name `EXACT`."""
    alone = len(datasets) == 1
    groups: dict[str, xr.Dataset] = {}
    for dataset in datasets:
        mine = {address[1:]: outcome for address, outcome in outcomes.items() if address[0] == dataset.name}
        prefix = "" if alone else f"{dataset.name}/"
        groups |= {prefix + group: part for group, part in _dataset_groups(dataset, mine).items()}
    for group, part in _score_groups(datasets, outcomes).items():
        single = [name for name in ("dataset", "repetition") if part.sizes[name] == 1]
        groups[group] = part.squeeze([name for name in single if name == "repetition" or alone], drop=True)
    tree = xr.DataTree.from_dict(groups)
    names = [dataset.name for dataset in datasets]
    tree.attrs = {"datasets": json.dumps(names), "key": key_data.tolist(), "command": shlex.join(sys.argv)}
    tree.attrs |= {f"version_{name}": version(name) for name in LIBRARIES}
    tree.attrs["version_python"] = platform.python_version()
    return tree


def data_trees(tree: xr.DataTree) -> dict[str, xr.DataTree]:
    """The part of each data set by its name, whether the comparison has one or several."""
    names = json.loads(tree.attrs["datasets"])
    if len(names) == 1:
        return {names[0]: tree}
    nodes = {name: tree[name] for name in names}
    return {name: node for name, node in nodes.items() if isinstance(node, xr.DataTree)}


def full_scores(tree: xr.DataTree, group: str = "scores") -> xr.Dataset:
    """`scores`, `intervals` or `pairs` with the dimensions `dataset` and `repetition`, whatever was compared."""
    found = tree[group].to_dataset()
    if "repetition" not in found.dims:
        found = found.expand_dims(repetition=[0])
    return found if "dataset" in found.dims else found.expand_dims(dataset=list(data_trees(tree)))


def variables(arrays: Mapping[str, Any], *leading: str) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Arrays by name as variables; axes after the leading ones are called after the array, as in ArviZ."""
    shaped = {name: np.asarray(value) for name, value in arrays.items()}
    return {
        name: ((*leading, *(f"{name}_dim_{axis}" for axis in range(value.ndim - len(leading)))), value)
        for name, value in shaped.items()
    }


def _dataset_groups(dataset: Dataset, outcomes: Mapping[tuple[int, str], Outcome]) -> dict[str, xr.Dataset]:
    """The groups of one data set but for its scores."""
    exact = next((outcome.label_probs for (_, name), outcome in outcomes.items() if name == EXACT), None)
    fits = {address: outcome for address, outcome in outcomes.items() if address[1] != EXACT}
    groups = {"observed_data": _observed(dataset.votes), "truth": _truth(dataset, exact)}
    groups["estimates"] = _estimates(dataset, fits)
    for (repetition, name), outcome in fits.items():
        node = name.replace("/", "_")
        if len(groups["estimates"].get("repetition", [0])) > 1:
            node += f"/{repetition}"
        about = {key: getattr(outcome, key) for key in ("settings", "diagnostics", "error")}
        groups[f"fits/{node}"] = xr.Dataset(variables(outcome.params), attrs=about)
        if outcome.draws:
            suffix = "_" + node.replace("/", "_") if "posterior" in groups else ""
            source = {"method": name, "repetition": repetition}
            groups["posterior" + suffix] = _draws(outcome.draws, source)
            groups["sample_stats" + suffix] = _draws(outcome.sample_stats, source)
    return groups


def _observed(votes: Votes) -> xr.Dataset:
    names = {"item": ("item", np.asarray(votes.item_names)), "voter": ("voter", np.asarray(votes.voter_names))}
    if isinstance(votes.storage, Triplets):
        entries = zip(("item_of", "voter_of", "vote"), votes.storage, strict=True)
        return xr.Dataset({name: ("entry", values) for name, values in entries}, names)
    return xr.Dataset({"vote": (("item", "voter"), votes.storage)}, names)


def _truth(dataset: Dataset, exact: Posterior | None) -> xr.Dataset:
    """The label is a coordinate of the items: as a variable it could not share its name with a dimension."""
    known = {} if exact is None else {"bayes_prob": (("item", "label"), exact)}
    coordinates = {**_item_names(dataset.votes), "label": ("item", dataset.labels)}
    truth = xr.Dataset(known | variables(dataset.params or {}), coordinates)
    return truth.assign_attrs(model=repr(dataset.model))


def _estimates(dataset: Dataset, fits: Mapping[tuple[int, str], Outcome]) -> xr.Dataset:
    methods = list(dict.fromkeys(name for _, name in fits))
    repetitions = sorted({repetition for repetition, _ in fits})
    probs = np.full((len(repetitions), len(methods), dataset.votes.num_items, dataset.votes.num_classes), np.nan)
    for (repetition, name), outcome in fits.items():
        if outcome.label_probs is not None:
            probs[repetitions.index(repetition), methods.index(name)] = outcome.label_probs
    dims = ("repetition", "method", "item", "label")
    coordinates = {"repetition": repetitions, "method": methods, **_item_names(dataset.votes)}
    coordinates["label"] = np.asarray(dataset.votes.class_names)
    found = xr.Dataset({"label_prob": (dims, probs)}, coordinates)
    return found if len(repetitions) > 1 else found.squeeze("repetition", drop=True)


def _item_names(votes: Votes) -> dict[str, Any]:
    return {"item": ("item", np.asarray(votes.item_names))}


def _draws(arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> xr.Dataset:
    chains, draws = next(iter(arrays.values())).shape[:2]
    coordinates = {"chain": np.arange(chains), "draw": np.arange(draws)}
    return xr.Dataset(variables(arrays, "chain", "draw"), coordinates, attributes)


def _score_groups(datasets: Sequence[Dataset], outcomes: Outcomes) -> dict[str, xr.Dataset]:
    """Scores, their intervals and the differences between methods, [dataset, repetition, method]."""
    axes: dict[str, list[Any]] = {
        "dataset": [dataset.name for dataset in datasets],
        "repetition": sorted({repetition for _, repetition, _ in outcomes}),
        "method": sorted(dict.fromkeys(name for *_, name in outcomes), key=lambda name: name != EXACT),
    }
    scores, bounds, errors = _cube(axes), _cube(axes, 2), np.full([*map(len, axes.values())], "", dtype=object)
    for address, outcome in outcomes.items():
        place = tuple(values.index(part) for values, part in zip(axes.values(), address, strict=True))
        measured = {**outcome.scores, "seconds": outcome.seconds, "peak_memory": outcome.peak_memory}
        for name, value in measured.items():
            scores[name][place] = value
        for name, pair in outcome.intervals.items():
            bounds[name][place] = pair
        errors[place] = outcome.error
    table = {name: (tuple(axes), values) for name, values in scores.items()}
    table["error"] = (tuple(axes), errors.astype(str))
    intervals = {name: ((*axes, "bound"), values) for name, values in bounds.items()}
    pairs = {name: ((*axes, "other"), values) for name, values in _pairs(datasets, outcomes, axes).items()}
    return {
        "scores": xr.Dataset(table, axes),
        "intervals": xr.Dataset(intervals, {**axes, "bound": ["low", "high"]}),
        "pairs": xr.Dataset(pairs, {**axes, "other": axes["method"]}),
    }


def _pairs(datasets: Sequence[Dataset], outcomes: Outcomes, axes: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
    """Each method against each other on the items whose label is known."""
    found = _cube(axes, len(axes["method"]))
    for (i, dataset), (j, repetition) in product(enumerate(datasets), enumerate(axes["repetition"])):
        probs = {}
        for k, name in enumerate(axes["method"]):
            outcome = outcomes.get((dataset.name, repetition, name))
            if outcome is not None and outcome.label_probs is not None:
                probs[k] = outcome.label_probs
        if (dataset.labels >= 0).any():
            for (first, second), score in product(permutations(probs, 2), evaluation.SCORES):
                if score.paired is not None:
                    difference = score.paired(dataset.labels, probs[first], probs[second])
                    for name, value in difference._asdict().items():
                        found[f"{score.name}_{name}"][i, j, first, second] = value
    return found


def _cube(axes: Mapping[str, list[Any]], *more: int) -> defaultdict[str, np.ndarray]:
    """Arrays by name over the axes of a comparison, each unknown until it is filled."""
    return defaultdict(lambda: np.full((*map(len, axes.values()), *more), np.nan))
