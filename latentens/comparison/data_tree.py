"""How a comparison is laid out in an `xarray.DataTree`: the one place where arrays get their labels.

The same for one data set and for many, with every dimension there even where its size is one:
    `scores`     one variable per score, [dataset, repetition, estimator], with seconds, peak_memory (bytes) and error
    `intervals`  bootstrap intervals of the scores, [dataset, repetition, estimator, bound]
    `pairs`      how an estimator differs from another one, [dataset, repetition, estimator, other]: for accuracy,
                 balanced accuracy and log score NAME_difference, NAME_low, NAME_high and NAME_p_value
and under the name of each data set:
    `observed_data`  vote[item, voter] (−1: missing); of triplets item_of[entry], voter_of[entry], vote[entry];
                     attribute `signal`: whether voters agree more than by chance, in words
    `truth`          true_label[item] (−1: unknown); gold[item], the labels that methods were told; and where known
                     bayes_prob[item, label] and the true parameters
    `estimates`      label_prob[repetition, estimator, item, label]
    `held_out`       where gold labels are the only ones known, for the items that have one: their fold[repetition,
                     item], and label_prob[repetition, estimator, item, label] by a fit that has seen the gold labels
                     of the other folds only. Scores, intervals and pairs come from these
    `predictions`    log_density[estimator, item] of votes that a fit has not seen, and by[estimator], how it was found;
                     of the first repetition, for estimators that give votes a probability
    `fits/ESTIMATOR/REPETITION`  settings, diagnostics, error and check as attributes, and below it
        `params`                     estimated parameters, such as confusion[voter, true_class, vote_class]
        `voters`                     skill of the voters with errors and intervals, by the names of `VoterSkill`
        `log_likelihood`             votes[chain, draw, item], for estimators that give votes a probability
        `posterior`, `sample_stats`  draws of a sampled fit, [chain, draw, …]: this node is a tree that ArviZ opens
Votes and true labels are codes: places in the coordinates `vote_class` and `label`, which hold the names. An estimator
or a data set whose name cannot be a node, as two that differ in a slash only, gets another node; the attribute
`estimator` of a node, and `data_trees`, tell which is whose.
"""

import json
import platform
import shlex
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from latentens.comparison.axes import node_names, node_paths
from latentens.comparison.cell import Outcome, Pointwise
from latentens.datasets.dataset import Dataset
from latentens.methods.base import Arrays, Posterior
from latentens.methods.datatree import axis_names, coordinates, observed_data
from latentens.scores import scores as evaluation
from latentens.votes import Votes

EXACT = "exact Bayes"
"""What the exact posterior is called among the estimators."""

HELD_OUT = "held_out"
"""The group of what fits say about gold labels that they have not seen."""

COMMON = ("scores", "intervals", "pairs")
FORMAT = "latentens comparison 3"
LIBRARIES = ("latentens", "jax", "numpyro", "numpy", "scipy", "xarray")

Address = tuple[str, int, str]
Outcomes = Mapping[Address, Outcome]
"""What came of each data set, repetition and estimator."""


def assemble(
    datasets: Sequence[Dataset], outcomes: Outcomes, key_data: np.ndarray, signals: Mapping[str, str]
) -> xr.DataTree:
    """The whole tree; outcomes of the exact posterior stand under the name `EXACT`, signals under data sets' names."""
    groups: dict[str, xr.Dataset] = _score_groups(datasets, outcomes)
    paths = node_paths((dataset.name for dataset in datasets), taken=COMMON)
    for dataset in datasets:
        mine = {address[1:]: outcome for address, outcome in outcomes.items() if address[0] == dataset.name}
        groups |= {f"{paths[dataset.name]}/{group}": part for group, part in _dataset_groups(dataset, mine).items()}
        groups[f"{paths[dataset.name]}/observed_data"].attrs["signal"] = signals[dataset.name]
    tree = xr.DataTree.from_dict(groups)
    named = {dataset.name: paths[dataset.name] for dataset in datasets}
    tree.attrs = {"format": FORMAT, "datasets": json.dumps(named), "key": key_data.tolist()}
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # as with python -m
    tree.attrs["command"] = shlex.join([name, *sys.argv[1:]])
    tree.attrs |= {f"version_{name}": version(name) for name in LIBRARIES}
    tree.attrs["version_python"] = platform.python_version()
    return tree


def data_trees(tree: xr.DataTree) -> dict[str, xr.DataTree]:
    """The part of each data set by its name."""
    nodes = {name: tree[path] for name, path in json.loads(tree.attrs["datasets"]).items()}
    return {name: node for name, node in nodes.items() if isinstance(node, xr.DataTree)}


def _dataset_groups(dataset: Dataset, outcomes: Mapping[tuple[int, str], Outcome]) -> dict[str, xr.Dataset]:
    """The groups of one data set but for its scores."""
    exact = next((outcome.label_probs for (_, name), outcome in outcomes.items() if name == EXACT), None)
    fits = {address: outcome for address, outcome in outcomes.items() if address[1] != EXACT}
    groups = {"observed_data": observed_data(dataset.votes), "truth": _truth(dataset, exact)}
    groups["estimates"], groups["predictions"] = _estimates(dataset, fits), _predictions(dataset, fits)
    if dataset.is_scored_by_gold:
        groups[HELD_OUT] = _held_out(dataset, fits)
    nodes = node_names(dict.fromkeys(name for _, name in fits))
    for (repetition, name), outcome in fits.items():
        about = {"estimator": name, "repetition": repetition}
        about |= {key: getattr(outcome, key) for key in ("settings", "diagnostics", "error", "check")}
        node = f"fits/{nodes[name]}/{repetition}"
        groups[f"fits/{nodes[name]}"] = xr.Dataset(attrs={"estimator": name})
        groups[node] = xr.Dataset(attrs=about)
        groups[f"{node}/params"] = _labelled(outcome.params, outcome.axes, dataset.votes)
        groups[f"{node}/voters"] = _labelled(outcome.voters, _voter_axes(outcome.voters), dataset.votes)
        if outcome.pointwise.log_likelihood is not None:
            groups[f"{node}/log_likelihood"] = _draws(
                {"votes": outcome.pointwise.log_likelihood}, {"votes": ("item",)}, dataset.votes
            )
        if outcome.draws:
            groups[f"{node}/posterior"] = _draws(outcome.draws, outcome.axes, dataset.votes)
            groups[f"{node}/sample_stats"] = _draws(outcome.sample_stats, {}, dataset.votes)
    return groups


def _truth(dataset: Dataset, exact: Posterior | None) -> xr.Dataset:
    params = {name: np.asarray(value) for name, value in (dataset.params or {}).items()}
    axes = axis_names({name: value.shape for name, value in params.items()}, dataset.votes, dataset.model)
    truth = _labelled(params, axes, dataset.votes).assign_coords(_along(dataset.votes, "item", "label"))
    truth["true_label"] = "item", dataset.labels
    if dataset.gold is not None:
        truth["gold"] = "item", dataset.gold
    if exact is not None:
        truth["bayes_prob"] = ("item", "label"), exact
    return truth.assign_attrs(model=repr(dataset.model))


def _estimates(dataset: Dataset, fits: Mapping[tuple[int, str], Outcome]) -> xr.Dataset:
    estimators = list(dict.fromkeys(name for _, name in fits))
    repetitions = sorted({repetition for repetition, _ in fits})
    probs = np.full((len(repetitions), len(estimators), dataset.votes.num_items, dataset.votes.num_classes), np.nan)
    for (repetition, name), outcome in fits.items():
        if outcome.label_probs is not None:
            probs[repetitions.index(repetition), estimators.index(name)] = outcome.label_probs
    names = {"repetition": repetitions, "estimator": estimators, **_along(dataset.votes, "item", "label")}
    return xr.Dataset({"label_prob": (("repetition", "estimator", "item", "label"), probs)}, names)


def _held_out(dataset: Dataset, fits: Mapping[tuple[int, str], Outcome]) -> xr.Dataset:
    """The posterior of gold labels by fits that have not seen them."""
    assert dataset.gold is not None, "asked for only where there are gold labels"
    estimators = list(dict.fromkeys(name for _, name in fits))
    repetitions = sorted({repetition for repetition, _ in fits})
    items = np.asarray(dataset.votes.item_names)[dataset.gold >= 0]
    probs = np.full((len(repetitions), len(estimators), len(items), dataset.votes.num_classes), np.nan)
    fold = np.full((len(repetitions), len(items)), -1)
    for (repetition, name), outcome in fits.items():
        if outcome.held_out is not None:
            place = repetitions.index(repetition)
            probs[place, estimators.index(name)] = outcome.held_out.probs
            fold[place] = outcome.held_out.fold  # the same for all methods
    names = {"repetition": repetitions, "estimator": estimators, **_along(dataset.votes, "label"), "item": items}
    variables = {"label_prob": (("repetition", "estimator", "item", "label"), probs)}
    return xr.Dataset({**variables, "fold": (("repetition", "item"), fold)}, names)


def _predictions(dataset: Dataset, fits: Mapping[tuple[int, str], Outcome]) -> xr.Dataset:
    first: dict[str, Pointwise] = {}
    for (_, name), outcome in sorted(fits.items(), key=lambda pair: pair[0][0]):
        if outcome.pointwise.log_density is not None:
            first.setdefault(name, outcome.pointwise)
    values = np.empty((len(first), dataset.votes.num_items))
    for row, found in zip(values, first.values(), strict=True):
        row[:] = found.log_density
    names = {"estimator": np.array(list(first), dtype=str), **_along(dataset.votes, "item")}
    by = np.array([found.by for found in first.values()], dtype=str)
    return xr.Dataset({"log_density": (("estimator", "item"), values), "by": ("estimator", by)}, names)


def _along(votes: Votes, *axes: str) -> dict[str, np.ndarray]:
    return {axis: names for axis, names in coordinates(votes).items() if axis in axes}


def _labelled(arrays: Arrays, axes: Mapping[str, tuple[str, ...]], votes: Votes, leading: tuple[str, ...] = ()) -> Any:
    """Arrays as variables with their axes named, and the names along these."""
    found = {}
    for (name, array), variable in zip(arrays.items(), node_names(arrays).values(), strict=True):
        default = tuple(f"{name}_dim_{axis}" for axis in range(array.ndim - len(leading)))
        found[variable] = ((*leading, *axes.get(name, default)), array)
    used = {axis for dimensions, _ in found.values() for axis in dimensions}
    return xr.Dataset(found, _along(votes, *used))


def _voter_axes(arrays: Arrays) -> dict[str, tuple[str, ...]]:
    return {name: ("voter", "true_class", "vote_class")[: array.ndim] for name, array in arrays.items()}


def _draws(arrays: Arrays, axes: Mapping[str, tuple[str, ...]], votes: Votes) -> xr.Dataset:
    return _labelled(arrays, axes, votes, ("chain", "draw")).pipe(
        lambda found: found.assign_coords(chain=np.arange(found.sizes["chain"]), draw=np.arange(found.sizes["draw"]))
    )


def _score_groups(datasets: Sequence[Dataset], outcomes: Outcomes) -> dict[str, xr.Dataset]:
    """Scores, their intervals and the differences between estimators, [dataset, repetition, estimator]."""
    axes: dict[str, list[Any]] = {
        "dataset": [dataset.name for dataset in datasets],
        "repetition": sorted({repetition for _, repetition, _ in outcomes}),
        "estimator": sorted(dict.fromkeys(name for *_, name in outcomes), key=lambda name: name != EXACT),
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
        "pairs": xr.Dataset(pairs, {**axes, "other": axes["estimator"]}),
    }


def _pairs(datasets: Sequence[Dataset], outcomes: Outcomes, axes: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
    """Each estimator against each other on the items whose label is known."""
    found = _cube(axes, len(axes["estimator"]))
    for (i, dataset), (j, repetition) in product(enumerate(datasets), enumerate(axes["repetition"])):
        probs = {}
        for k, name in enumerate(axes["estimator"]):
            outcome = outcomes.get((dataset.name, repetition, name))
            if outcome is not None and (scored := outcome.scored_probs(dataset)) is not None:
                probs[k] = scored
        if (dataset.scored_labels >= 0).any():
            for (first, second), score in product(permutations(probs, 2), evaluation.SCORES):
                if score.paired is not None:
                    difference = score.paired(dataset.scored_labels, probs[first], probs[second])
                    for name, value in difference._asdict().items():
                        found[f"{score.name}_{name}"][i, j, first, second] = value
    return found


def _cube(axes: Mapping[str, list[Any]], *more: int) -> defaultdict[str, np.ndarray]:
    """Arrays by name over the axes of a comparison, each unknown until it is filled."""
    return defaultdict(lambda: np.full((*map(len, axes.values()), *more), np.nan))
