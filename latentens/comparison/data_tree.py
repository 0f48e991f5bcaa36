"""How a comparison is laid out in an `xarray.DataTree`, and how it is written, read and saved.

The layout is the same for one data set and for many; every dimension is there even if its size is one:
    `scores`     one variable per score, [dataset, repetition, estimator], with seconds, peak_memory (bytes) and error;
                 attributes of a variable say how the score is shown
    `intervals`  bootstrap intervals of the scores, [dataset, repetition, estimator, bound]
    `pairs`      how an estimator differs from another one, [dataset, repetition, estimator, other]: for accuracy,
                 balanced accuracy and log score NAME_difference, NAME_low, NAME_high and NAME_p_value
and under the name of each data set:
    `observed_data`  vote[item, voter] (−1: missing); of triplets item_of[entry], voter_of[entry], vote[entry]
                     and, of soft votes, weight[entry];
                     attribute `signal`: whether voters agree more than by chance, in a sentence
    `truth`          true_label[item] (−1: unknown); gold[item], the labels that methods may use; and where known
                     bayes_prob[item, label] and the true parameters
    `estimates`      label_prob[repetition, estimator, item, label]
    `held_out`       where gold labels are the only ones known, for the items that have one: their fold[repetition,
                     item], and label_prob[repetition, estimator, item, label] by a fit that has seen the gold labels
                     of the other folds only. Scores, intervals and pairs come from these
    `predictions`    log_density[estimator, item] of held-out votes, and by[estimator], how it was found; of the first
                     repetition, for estimators that give votes a probability
    `independence`   after `add_independence`: residual[voter, other_voter], the correlation of two voters' votes minus
                     that of independent voters; p_value[voter, other_voter], adjusted for the number of pairs, 1 if
                     not checked; group[voter], the group of dependent voters, −1 for none; attributes p_value,
                     level and summary of the whole
    `worth`          after `add_worth`: attributes by_information, the number of independent voters with as much
                     information, with low and high at a level, by_correlation, model and summary
    `fits/ESTIMATOR/REPETITION`  attributes kind, error and, as JSON, settings, diagnostics and check; below it
        `params`                     estimated parameters, such as confusion[voter, true_class, vote_class]
        `voters`                     skill of the voters with errors and intervals, by the names of `VoterSkill`
        `log_likelihood`             votes[chain, draw, item], for estimators that give votes a probability
        `posterior`, `sample_stats`  draws of a sampled fit, [chain, draw, …]: this node is a tree that ArviZ opens
Votes and true labels are codes: places in the coordinates `vote_class` and `label`, which hold the names. An estimator
or a data set whose name cannot be a node, such as two that differ in a slash only, gets another node: the attribute
`estimator` of a node has its name, and `data_trees` finds data sets by name.
"""

import json
import platform
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import chain, count, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from latentens.comparison.cell import check_of, describe
from latentens.comparison.result import (
    EXACT,
    Comparison,
    DatasetResult,
    Fits,
    HeldOut,
    Independence,
    Outcome,
    Pairs,
    Pointwise,
)
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError, require
from latentens.methods.base import Arrays, Diagnostics, Posterior
from latentens.methods.persistence import axis_names, coordinate, coordinates, labelled, observed_data, skill_of
from latentens.runtime.store import written_whole
from latentens.scores import PairedDifference
from latentens.scores.scores import SCORES, Score
from latentens.votes import Triplets, Votes

COMMON = ("scores", "intervals", "pairs")
OWN = ("observed_data", "truth", "estimates", "held_out", "predictions", "fits", "independence", "worth")
FORMAT = "latentens comparison 4"
LIBRARIES = ("latentens", "jax", "numpyro", "numpy", "scipy", "xarray")
SHOWN = ("title", "meaning", "group", "better", "unit", "heading")
"""Fields of a score that its variable has as attributes, so that it can be shown."""

Address = tuple[str, int, str]
Axes = Mapping[str, tuple[str, ...]]
Outcomes = Mapping[Address, Outcome]
"""Outcomes by data set, repetition and estimator."""


# ---- from outcomes to the typed result ----


def collect(
    datasets: Sequence[Dataset],
    outcomes: Outcomes,
    key_data: np.ndarray,
    signals: Mapping[str, str],
    scores: Sequence[Score] = SCORES,
) -> Comparison:
    """The typed result.

    Args:
        datasets: The data sets.
        outcomes: The outcome of every cell; those of the exact posterior have the name `EXACT`.
        key_data: Data of the random key.
        signals: For each data set whether its voters agree more than by chance, in a sentence.
        scores: The scores that were computed, in the order of tables.
    """
    found = []
    for dataset in datasets:
        mine = {address[1:]: outcome for address, outcome in outcomes.items() if address[0] == dataset.name}
        exact = next((outcome for (_, name), outcome in mine.items() if name == EXACT), None)
        fits = {address: outcome for address, outcome in mine.items() if address[1] != EXACT}
        shapes = {name: np.shape(value) for name, value in (dataset.params or {}).items()}
        axes = axis_names(shapes, dataset.votes, dataset.model)
        model = "" if dataset.model is None else describe(dataset.model)
        result = DatasetResult(dataset, model, axes, fits, exact, signal=signals[dataset.name])
        found.append(replace(result, pairs=_compared(result, scores)))
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # as with python -m
    about = {"command": shlex.join([name, *sys.argv[1:]]), **{f"version_{name}": version(name) for name in LIBRARIES}}
    about["version_python"] = platform.python_version()
    return Comparison(tuple(found), tuple(scores), key_data, about)


def _compared(result: DatasetResult, scores: Sequence[Score]) -> dict[tuple[int, str, str, str], PairedDifference]:
    """Each estimator against each other on the items whose label is known."""
    found = {}
    labels = result.labels
    for repetition in result.repetitions if (labels >= 0).any() else []:
        outcomes = {name: outcome for place, name, outcome in result.outcomes() if place == repetition}
        scored = {name: outcome.scored_probs(result.dataset) for name, outcome in outcomes.items()}
        probs = {name: values for name, values in scored.items() if values is not None}
        for (one, other), score in product(permutations(probs, 2), scores):
            if score.paired is not None:
                found[repetition, score.name, one, other] = score.paired(labels, probs[one], probs[other])
    return found


# ---- writing the tree ----


def to_tree(comparison: Comparison) -> xr.DataTree:
    """The tree of a typed result."""
    groups = _score_groups(comparison)
    paths = node_names((data.name for data in comparison.datasets), COMMON, nested=True)
    for data in comparison.datasets:
        groups |= {f"{paths[data.name]}/{group}": part for group, part in _dataset_groups(data).items()}
    tree = xr.DataTree.from_dict(groups)
    named = {data.name: paths[data.name] for data in comparison.datasets}
    tree.attrs = {"format": FORMAT, "datasets": json.dumps(named), "key": comparison.key_data.tolist()}
    tree.attrs |= comparison.about
    return tree


def _score_groups(comparison: Comparison) -> dict[str, xr.Dataset]:
    """Scores, their intervals and the differences between estimators, [dataset, repetition, estimator]."""
    outcomes = {
        (data.name, repetition, name): outcome
        for data in comparison.datasets
        for repetition, name, outcome in data.outcomes()
    }
    axes: dict[str, list[Any]] = {
        "dataset": [data.name for data in comparison.datasets],
        "repetition": sorted({repetition for _, repetition, _ in outcomes}),
        "estimator": sorted(dict.fromkeys(name for *_, name in outcomes), key=lambda name: name != EXACT),
    }
    both = {**axes, "other": axes["estimator"]}
    measured = {
        place: {**outcome.scores, "seconds": outcome.seconds, "peak_memory": outcome.peak_memory}
        for place, outcome in outcomes.items()
    }
    differences: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for data in comparison.datasets:
        for (repetition, name, one, other), found in data.pairs.items():
            named = {f"{name}_{kind}": value for kind, value in found._asdict().items()}
            differences[data.name, repetition, one, other] |= named
    scores, table = _stacked(measured, axes), {}
    for score in comparison.scores:
        if score.name in scores:
            table[score.name] = *scores[score.name], {name: getattr(score, name) or "" for name in SHOWN}
    errors = [outcomes[place].error if place in outcomes else "" for place in product(*axes.values())]
    table["error"] = tuple(axes), np.reshape(errors, [len(values) for values in axes.values()])
    intervals = _stacked({place: outcome.intervals for place, outcome in outcomes.items()}, axes, "bound")
    return {
        "scores": xr.Dataset(table, axes),
        "intervals": xr.Dataset(intervals, {**axes, "bound": ["low", "high"]}),
        "pairs": xr.Dataset(_stacked(differences, both), both),
    }


def _stacked(values: Mapping[Any, Mapping[str, Any]], axes: Mapping[str, Sequence[Any]], *inner: str) -> dict[str, Any]:
    """Variables from numbers or arrays by place and name, NaN where there are none.

    Args:
        values: The values of each place.
        axes: The axes of places.
        inner: The axes of a single value.
    """
    found: dict[str, np.ndarray] = {}
    for place, named in values.items():
        here = tuple(names.index(part) for names, part in zip(axes.values(), place, strict=True))
        for name, value in named.items():
            if name not in found:
                found[name] = np.full((*map(len, axes.values()), *np.shape(value)), np.nan)
            found[name][here] = value
    return {name: ((*axes, *inner), array) for name, array in found.items()}


def _dataset_groups(data: DatasetResult) -> dict[str, xr.Dataset]:
    """The groups of one data set but for its scores."""
    votes = data.votes
    groups = {"observed_data": observed_data(votes).assign_attrs(signal=data.signal), "truth": _truth(data)}
    groups["estimates"], groups["predictions"] = _estimates(data), _predictions(data)
    if data.is_scored_by_gold:
        groups["held_out"] = _held_out(data)
    if data.independence is not None:
        groups["independence"] = independence_group(data.independence, votes)
    if data.worth:
        groups["worth"] = xr.Dataset(attrs=dict(data.worth))
    nodes = node_names(data.estimators)
    for (repetition, name), fit in data.fits.items():
        node = f"fits/{nodes[name]}/{repetition}"
        groups[f"fits/{nodes[name]}"] = xr.Dataset(attrs={"estimator": name})
        about = {"estimator": name, "repetition": repetition, "kind": fit.kind, "error": fit.error}
        about |= {"settings": json.dumps(fit.settings), "diagnostics": json.dumps(dict(fit.diagnostics))}
        about["check"] = json.dumps(None if fit.check is None else fit.check._asdict())
        groups[node] = xr.Dataset(attrs=about)
        groups[f"{node}/params"] = _labelled(fit.params, fit.axes, votes)
        skill = {} if fit.skill is None else {name: np.asarray(part) for name, part in fit.skill._asdict().items()}
        axes = {name: ("voter", "true_class", "vote_class")[: part.ndim] for name, part in skill.items()}
        groups[f"{node}/voters"] = _labelled(skill, axes, votes)
        groups |= {f"{node}/{group}": part for group, part in draw_groups(fit, votes).items()}
    return groups | dict(data.groups)


def draw_groups(fit: Outcome, votes: Votes) -> dict[str, xr.Dataset]:
    """Log-likelihoods and posterior draws of a fit, as ArviZ takes them."""
    found = {}
    if fit.pointwise.log_likelihood is not None:
        found["log_likelihood"] = _draws({"votes": fit.pointwise.log_likelihood}, {"votes": ("item",)}, votes)
    if fit.draws:
        found["posterior"] = _draws(fit.draws, fit.axes, votes)
    if fit.sample_stats:
        found["sample_stats"] = _draws(fit.sample_stats, {}, votes)
    return found


def independence_group(found: Independence, votes: Votes) -> xr.Dataset:
    """The group `independence`."""
    names, both = coordinate(votes.voter_names), ("voter", "other_voter")
    variables = {"residual": (both, found.residual), "p_value": (both, found.p_values), "group": ("voter", found.group)}
    about = {"p_value": found.p_value, "level": found.level, "summary": found.summary}
    return xr.Dataset(variables, {"voter": names, "other_voter": names}, about)


def _truth(data: DatasetResult) -> xr.Dataset:
    dataset = data.dataset
    truth = _labelled(data.true_params, data.axes, data.votes).assign_coords(_along(data.votes, "item", "label"))
    truth["true_label"] = "item", dataset.labels
    if dataset.gold is not None:
        truth["gold"] = "item", dataset.gold
    if data.exact is not None:
        truth["bayes_prob"] = ("item", "label"), data.exact.label_probs
    return truth.assign_attrs(model=data.model)


def _estimates(data: DatasetResult) -> xr.Dataset:
    failed = np.full((data.votes.num_items, data.votes.num_classes), np.nan)
    probs = {place: failed if fit.label_probs is None else fit.label_probs for place, fit in data.fits.items()}
    return _posteriors(data, probs, _along(data.votes, "item", "label"))


def _held_out(data: DatasetResult) -> xr.Dataset:
    assert data.dataset.gold is not None, "held-out labels are gold labels"
    items = np.asarray(data.votes.item_names)[data.dataset.gold >= 0]
    found = {place: fit.held_out for place, fit in data.fits.items() if fit.held_out is not None}
    probs = {place: part.probs for place, part in found.items()}
    group = _posteriors(data, probs, {**_along(data.votes, "label"), "item": items})
    fold = np.full((len(data.repetitions), len(items)), -1)
    for (repetition, _), part in found.items():
        fold[data.repetitions.index(repetition)] = part.fold  # the same for all methods
    return group.assign(fold=(("repetition", "item"), fold))


def _posteriors(data: DatasetResult, probs: Mapping[tuple[int, str], Posterior], names: Arrays) -> xr.Dataset:
    axes: dict[str, Any] = {"repetition": data.repetitions, "estimator": data.estimators}
    stacked = _stacked({place: {"label_prob": each} for place, each in probs.items()}, axes, "item", "label")
    return xr.Dataset(stacked, {**axes, **names})


def _predictions(data: DatasetResult) -> xr.Dataset:
    found = predictions(data)
    values = np.array([part.log_density for part in found.values()]).reshape(len(found), data.votes.num_items)
    names = {"estimator": np.array(list(found), dtype=str), **_along(data.votes, "item")}
    by = np.array([part.by for part in found.values()], dtype=str)
    return xr.Dataset({"log_density": (("estimator", "item"), values), "by": ("estimator", by)}, names)


def predictions(data: DatasetResult) -> dict[str, Pointwise]:
    """The log-likelihoods of each method's first fit, for methods that give held-out votes a probability."""
    found = {name: fit.pointwise for name, fit in data.first_fits.items()}
    return {name: part for name, part in found.items() if part.log_density is not None}


def _along(votes: Votes, *axes: str) -> dict[str, np.ndarray]:
    return {axis: names for axis, names in coordinates(votes).items() if axis in axes}


def _labelled(arrays: Arrays, axes: Axes, votes: Votes, leading: tuple[str, ...] = ()) -> xr.Dataset:
    """Arrays with named axes, under names that a file can hold."""
    nodes = node_names(arrays)
    axes = {nodes[name]: dimensions for name, dimensions in axes.items() if name in nodes}
    return labelled({nodes[name]: array for name, array in arrays.items()}, axes, votes, leading)


def _draws(arrays: Arrays, axes: Axes, votes: Votes) -> xr.Dataset:
    found = _labelled(arrays, axes, votes, ("chain", "draw"))
    return found.assign_coords(chain=np.arange(found.sizes["chain"]), draw=np.arange(found.sizes["draw"]))


# ---- reading the tree ----


def from_tree(tree: xr.DataTree) -> Comparison:
    """The typed result in a tree, the inverse of `to_tree`."""
    about = {str(name): value for name, value in tree.attrs.items() if name not in ("format", "datasets", "key")}
    scores = scores_of(tree)
    datasets = tuple(_read_dataset(name, node, tree, scores) for name, node in data_trees(tree).items())
    return Comparison(datasets, scores, np.asarray(tree.attrs["key"], np.uint32), about)


def data_trees(tree: xr.DataTree) -> dict[str, xr.DataTree]:
    """The part of each data set by its name."""
    nodes = {name: tree[path] for name, path in json.loads(tree.attrs["datasets"]).items()}
    return {name: node for name, node in nodes.items() if isinstance(node, xr.DataTree)}


def scores_of(tree: xr.DataTree) -> tuple[Score, ...]:
    """The scores of a tree, which can be shown but not computed."""
    found = []
    for name, variable in tree["scores"].data_vars.items():
        if name != "error":
            about = {**variable.attrs, "better": variable.attrs["better"] or None}
            found.append(Score(str(name), **{field: about[field] for field in SHOWN}))
    return tuple(found)


def _read_dataset(name: str, node: xr.DataTree, tree: xr.DataTree, scores: Sequence[Score]) -> DatasetResult:
    truth, votes = node["truth"].to_dataset(), _read_votes(node["observed_data"].to_dataset())
    known = {part: truth[part].to_numpy() for part in ("true_label", "gold", "bayes_prob") if part in truth}
    params, axes = _read_arrays(truth.drop_vars(known))
    dataset = Dataset(name, votes, known["true_label"], None, params or None, known.get("gold"))
    table, bounds, pairs = (tree[group].to_dataset().sel(dataset=name, drop=True) for group in COMMON)
    measured = _read_scores(table, bounds, scores)
    repetitions = table["repetition"].to_numpy().tolist()
    exact = None
    if "bayes_prob" in known:
        exact = Outcome(label_probs=known["bayes_prob"], **measured[repetitions[0], EXACT])
    return DatasetResult(
        dataset,
        str(truth.attrs["model"]),
        axes,
        _read_fits(node, measured),
        exact,
        _read_pairs(pairs),
        str(node["observed_data"].attrs["signal"]),
        _read_independence(node["independence"].to_dataset()) if "independence" in node.children else None,
        {str(name): value for name, value in node["worth"].attrs.items()} if "worth" in node.children else {},
        {str(name): child.to_dataset() for name, child in node.children.items() if name not in OWN},
    )


def _read_votes(observed: xr.Dataset) -> Votes:
    items, voters, classes = (observed[axis].to_numpy() for axis in ("item", "voter", "vote_class"))
    storage: Any = observed["vote"].to_numpy()
    if "entry" in observed.dims:
        storage = Triplets(observed["item_of"].to_numpy(), observed["voter_of"].to_numpy(), storage)
    number = int(observed.attrs.get("num_classes", len(classes)))  # after them come votes that are not labels
    others = classes[number:]
    grades = others if observed.attrs.get("ordered") else ()
    names = items, voters, classes[:number], others, grades
    weights = observed["weight"].to_numpy() if "weight" in observed else None
    read = Votes(storage, len(items), len(voters), number, *names, weights=weights)
    return read.as_ordered()


def _read_arrays(group: xr.Dataset, leading: int = 0) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Arrays by name, and the names of their axes after the leading ones."""
    arrays = {str(name): values.to_numpy() for name, values in group.data_vars.items()}
    return arrays, {str(name): tuple(map(str, values.dims[leading:])) for name, values in group.data_vars.items()}


def _read_scores(
    table: xr.Dataset, bounds: xr.Dataset, scores: Sequence[Score]
) -> dict[tuple[int, str], dict[str, Any]]:
    """Time, memory, scores and intervals by repetition and estimator, by the names of `Outcome`."""
    found = {}
    low, high = (_by_place(bounds.sel(bound=bound, drop=True)) for bound in ("low", "high"))
    for place, values in _by_place(table[[score.name for score in scores]]).items():
        costs = {cost: values.pop(cost, np.nan) for cost in ("seconds", "peak_memory")}
        mine = {score: value for score, value in values.items() if not np.isnan(value)}
        intervals = {score: (low[place][score], high[place][score]) for score in mine if score in bounds}
        found[place] = {**costs, "scores": mine, "intervals": intervals}
    return found


def _by_place(group: xr.Dataset) -> dict[Any, Any]:
    return group.to_dataframe(["repetition", "estimator"]).to_dict("index")


def _read_fits(node: xr.DataTree, measured: Mapping[tuple[int, str], Mapping[str, Any]]) -> Fits:
    estimates, densities = node["estimates"].to_dataset()["label_prob"], node["predictions"].to_dataset()
    unseen = node["held_out"].to_dataset() if "held_out" in node.children else None
    nodes = {str(child.attrs["estimator"]): child for child in node.children["fits"].children.values()}
    found: dict[tuple[int, str], Outcome] = {}
    predicted = set(densities["estimator"].to_numpy().tolist())
    repetitions, estimators = (estimates[axis].to_numpy().tolist() for axis in ("repetition", "estimator"))
    for (i, repetition), (j, name) in product(enumerate(repetitions), enumerate(estimators)):
        if str(repetition) not in nodes[name].children:
            continue
        part, at = nodes[name][str(repetition)], {"repetition": i, "estimator": j}
        groups = {group: _read_arrays(child.to_dataset(), 2) for group, child in part.children.items()}
        params, axes = _read_arrays(part["params"].to_dataset())
        draws, draw_axes = groups.get("posterior", ({}, {}))
        skill, probs = groups["voters"][0], estimates[at].to_numpy()
        failed = bool(np.isnan(probs).any())
        held_out, density, by = None, None, ""
        if unseen is not None and not failed:
            held_out = HeldOut(unseen["fold"][i].values, unseen["label_prob"][at].values)
        if name in predicted and not failed:  # on record for the first repetition only
            predicted.remove(name)
            row = densities.sel(estimator=name)
            density, by = row["log_density"].to_numpy(), str(row["by"].item())
        found[repetition, name] = Outcome(
            **measured[repetition, name],
            error=str(part.attrs["error"]),
            kind=str(part.attrs["kind"]),
            settings=json.loads(part.attrs["settings"]),
            label_probs=None if failed else probs,
            held_out=held_out,
            params=params,
            skill=skill_of(skill) if skill else None,
            diagnostics=Diagnostics().updated(**json.loads(part.attrs["diagnostics"])),
            draws=draws,
            sample_stats=groups.get("sample_stats", ({}, {}))[0],
            axes=draw_axes | axes,
            pointwise=Pointwise(groups.get("log_likelihood", ({}, {}))[0].get("votes"), density, by),
            check=check_of(json.loads(part.attrs["check"])),
        )
    return found


def _read_pairs(group: xr.Dataset) -> Pairs:
    frame = group.to_dataframe(["repetition", "estimator", "other"])
    found: dict[tuple[int, str, str, str], PairedDifference] = {}
    for score in [name.removesuffix("_difference") for name in map(str, frame) if name.endswith("_difference")]:
        kinds = frame[[f"{score}_{kind}" for kind in PairedDifference._fields]]
        for (repetition, one, other), *values in kinds.dropna(how="all").itertuples():
            found[repetition, score, one, other] = PairedDifference(*values)
    return found


def _read_independence(group: xr.Dataset) -> Independence:
    residual, p_values, number = (group[name].to_numpy() for name in ("residual", "p_value", "group"))
    about = group.attrs
    return Independence(residual, p_values, number, float(about["p_value"]), float(about["level"]), about["summary"])


# ---- names of nodes ----

UNSAFE = re.compile(r"[/\x00-\x1f]")


def node_names(names: Iterable[str], taken: Collection[str] = (), *, nested: bool = False) -> dict[str, str]:
    """A different node for each name: the name itself where it can be one, and none inside another.

    Args:
        names: Different names.
        taken: Nodes at the top that are there already.
        nested: Whether slashes lead to nodes within nodes.
    """
    names = sorted(names, key=lambda name: name.count("/")) if nested else list(names)
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("/") if nested else [name]
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if all(map(_is_node, parts)) and parts[0] not in taken and not above & {*found.values()}:
            found[name] = name
    tops = {*taken, *(path.partition("/")[0] for path in found.values())}
    for name in names:
        if name not in found:
            wanted = UNSAFE.sub("_", name).strip(".") or "_"
            numbered = chain([wanted], (f"{wanted}_{number}" for number in count(2)))
            found[name] = next(node for node in numbered if node not in tops)
            tops.add(found[name])
    return found


def _is_node(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not UNSAFE.search(name)


# ---- files ----


def save_comparison(tree: xr.DataTree, path: str | Path) -> None:
    """Write a comparison as netCDF; the file appears under its name only when it is complete.

    Args:
        tree: The comparison, as `latentens.compare` returns it.
        path: The file, usually `….nc`.
    """
    require("Saving a comparison", "h5netcdf", "h5py")
    content = tree.to_netcdf(engine="h5netcdf")  # in memory: on a full disk HDF5 crashes
    with written_whole(path) as part:
        part.write_bytes(content)


def load_comparison(path: str | Path) -> xr.DataTree:
    """Read a comparison into memory.

    Args:
        path: A file that `save_comparison` or `latentens compare --out` has written.
    """
    require("Loading a comparison", "h5netcdf", "h5py")
    if Path(path).is_dir():
        raise LatentensError(f"{path} is a folder; name the file in it, such as {Path(path) / 'tree.nc'}")
    if not Path(path).is_file():
        raise LatentensError(f"there is no file {path}")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            loaded = tree.load()
    except (OSError, ValueError, KeyError):
        raise LatentensError(f"{path} is not a readable netCDF file: make one with `latentens compare --out`") from None
    if loaded.attrs.get("format") != FORMAT:
        content = "a comparison of another version of latentens" if "datasets" in loaded.attrs else "no comparison"
        raise LatentensError(f"{path} holds {content}: make one with `latentens compare --out`")
    return loaded
