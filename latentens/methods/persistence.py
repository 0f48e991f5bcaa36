"""Fits as an `xarray.DataTree` in the layout of ArviZ and as netCDF files, and labels of files larger than memory."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import jax
import numpy as np
import xarray as xr

from latentens.errors import LatentensError, require
from latentens.inference.skill import VoterSkill
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.runtime.store import written_whole
from latentens.votes import Votes
from latentens.votes.counting import Paths, tables_in, wide_layout
from latentens.votes.labels import Coded, Names, Reading, TableOptions, encode_labels, without
from latentens.votes.tables import naming, wide_rows
from latentens.votes.triplets import Triplets

if TYPE_CHECKING:
    from latentens.methods.base import Fit

FORMAT = "latentens fit 4"
ARRAYS = ("params", "draws", "state")
NAMES = ("item_names", "voter_names", "class_names", "other_names", "grade_names")
PLAIN = (str, int, float, bool, type(None))


def save_fit(fit: "Fit", path: str | Path) -> None:
    """Write a fit; the file appears under its name only when it is whole.

    Args:
        fit: The fit.
        path: The file, usually `….nc`.
    """
    require("Saving a fit", "h5netcdf", "h5py")
    settings: dict[str, np.ndarray] = {}
    groups = {group: _dataset(getattr(fit, group) or {}) for group in ARRAYS}
    groups["/"] = xr.Dataset({"label_probs": (("item", "label"), fit.label_probs)})
    groups["/"].attrs = {
        "format": FORMAT,
        "method": json.dumps(_encode(fit.method, settings)),
        "diagnostics": json.dumps(dict(fit.diagnostics), default=plain),
        "has_draws": int(fit.draws is not None),
    }
    for name in NAMES:
        names = getattr(fit, name)
        counted = isinstance(names, range) and names == range(len(names))
        groups["/"].attrs[name] = json.dumps(len(names) if counted else list(names), default=plain)
    groups["settings"], groups["votes"] = _dataset(settings), _dataset({"by_item": fit.summary.by_item})
    groups["voters"] = _dataset(fit.summary.skill._asdict())
    content = xr.DataTree.from_dict(groups).to_netcdf(engine="h5netcdf")  # in memory: on a full disk HDF5 crashes
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_bytes(content)


def read_parts(path: str | Path, types: Iterable[type | Callable[..., Any]] = ()) -> dict[str, Any]:
    """The parts of a saved fit by name: diagnostics as a mapping, votes per item and the voters' skill apart."""
    tree = _open(path)
    arrays = {group: _arrays(tree, group) for group in ARRAYS}
    known = {_address(found): found for found in types}
    return {
        "params": arrays["params"],
        "draws": arrays["draws"] if tree.attrs["has_draws"] else None,
        "state": arrays["state"],
        "diagnostics": json.loads(tree.attrs["diagnostics"]),
        "label_probs": tree["label_probs"].to_numpy(),
        "method": _decode(json.loads(tree.attrs["method"]), _arrays(tree, "settings"), known),
        "by_item": tree["votes/by_item"].to_numpy(),
        "skill": skill_of(_arrays(tree, "voters")),
        **{name: _names(json.loads(tree.attrs[name])) for name in NAMES if name in tree.attrs},
    }


def skill_of(arrays: Mapping[str, np.ndarray]) -> VoterSkill:
    """The skill of the voters from arrays by name."""
    found: dict[str, Any] = {**arrays, "intervals": str(arrays["intervals"])}
    return VoterSkill(**found)


def _open(path: str | Path) -> xr.DataTree:
    require("Loading a fit", "h5netcdf", "h5py")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as opened:
            tree = opened.load()
    except FileNotFoundError:
        raise LatentensError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise LatentensError(f"{path} is not a readable netCDF file ({error})") from None
    if tree.attrs.get("format") != FORMAT:
        content = "a fit of another version of latentens" if "fit" in tree.attrs.get("format", "") else "no fit"
        raise LatentensError(f"{path} holds {content}: fit the votes again, and save the result with `fit.save`")
    return tree


def _arrays(tree: xr.DataTree, group: str) -> dict[str, np.ndarray]:
    return {str(name): value.to_numpy() for name, value in tree[group].data_vars.items()}


def _dataset(arrays: Mapping[str, Any]) -> xr.Dataset:
    """Arrays as variables with dimensions of their own."""
    values = {name: np.asarray(array) for name, array in arrays.items()}
    return xr.Dataset(
        {name: ([f"{name}_dim_{axis}" for axis in range(value.ndim)], value) for name, value in values.items()}
    )


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A setting as JSON; arrays are put aside and referred to by their names."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[name := f"array_{len(arrays)}"] = np.asarray(value)
        return {"array": name}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_encode(part, arrays) for part in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_encode(name, arrays), _encode(part, arrays)] for name, part in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        settings = {part.name: _encode(getattr(value, part.name), arrays) for part in fields(value) if part.init}
        return {"type": _address(type(value)), "settings": settings}
    if callable(value) and hasattr(value, "__qualname__"):
        return {"function": _address(value)}
    raise LatentensError(f"a fit whose settings hold a {type(value).__name__} cannot be saved")


def _decode(value: Any, arrays: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> Any:
    """The inverse of `_encode`."""
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind == "array":
        return arrays[content]
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](_decode(part, arrays, known) for part in content)
    if kind == "dict":
        return {_decode(name, arrays, known): _decode(part, arrays, known) for name, part in content}
    if kind == "function":
        return _find(content, known)
    settings = {name: _decode(part, arrays, known) for name, part in value["settings"].items()}
    return _find(content, known)(**settings)


def _address(code: Any) -> str:
    return f"{code.__module__}:{code.__qualname__}"


def _find(address: str, known: Mapping[str, Any]) -> Any:
    """A class or function by module and name."""
    if address in known:
        return known[address]
    module, _, names = address.partition(":")
    try:
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        raise LatentensError(
            f"the fit refers to {names} of the module {module!r}, which cannot be imported: pass it in types"
        ) from None
    return found


def _names(value: Any) -> Names:
    return range(value) if isinstance(value, int) else tuple(value)


def plain(value: Any) -> Any:
    """Values as JSON can hold them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | jax.Array) else repr(value)


def write_labels(fit: "Fit", paths: Paths, out: str | Path, **options: Unpack[TableOptions]) -> None:
    """Write the label of every item, with the probabilities of all labels, to a Parquet file.

    Args:
        fit: A fit, for example to what `count_votes_in` found in the same files.
        paths: The votes, as in `count_votes_in`; items are in their order there.
        out: The file to write: columns `item` (if the tables name items), `label`, and `prob_…` for each class.
        options: As in `count_votes_in`.
    """
    import pyarrow
    import pyarrow.parquet

    reading, writer = Reading(**options), None
    try:
        for table in tables_in(paths):
            with naming(table.path):
                layout = wide_layout(table, reading)
                for chunk in table.read([*layout.voters, *layout.items], reading):
                    columns = {"item": _text(chunk[layout.items[0]])} if layout.items else {}
                    columns |= _labels(fit, wide_rows(layout, chunk), layout.voters, reading)
                    labelled = pyarrow.table(columns)
                    writer = writer or pyarrow.parquet.ParquetWriter(out, labelled.schema)
                    writer.write_table(labelled)
    finally:
        if writer is not None:
            writer.close()


def _labels(fit: "Fit", rows: Coded, voters: Sequence[str], reading: Reading) -> dict[str, np.ndarray]:
    categories = (*fit.class_names, *fit.other_names)
    codes, classes, strange, _ = encode_labels(without(rows, reading.missing), categories)
    probs = fit.predict(Votes(codes, len(codes), codes.shape[1], len(classes), (), voters, classes, strange))
    labels = np.asarray(fit.class_names)[probs.argmax(axis=1)]
    return {"label": labels, **{f"prob_{name}": probs[:, k] for k, name in enumerate(fit.class_names)}}


def _text(column: Coded) -> np.ndarray:
    """The names of items as text, so that all chunks have one type."""
    return column.names.astype(str)[column.codes]


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
    votes = coordinate(named.category_names)
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
    names = {axis: names for axis, names in coordinates(named).items() if axis in made.sizes}
    if "vote_class" in names:
        names["vote_class"] = coordinate(vote_names(named, made.sizes["vote_class"]))
    return made.assign_coords(names)


def vote_names(named: "Votes | Fit", number: int) -> Names:
    """The names of this many different votes.

    Methods for which votes for other categories are missing, or which take grades as votes for classes, have the
    classes alone, which come first; others take grades as further categories.
    """
    if number == len(named.category_names):
        return named.category_names
    others = named.other_names if len(named.other_names) else named.grade_names
    return (*named.class_names, *others)[:number]


def observed_data(votes: Votes) -> xr.Dataset:
    """The votes, by item and voter or, where few voters vote on an item, one entry for each vote."""
    ordered, votes = votes.is_ordered, votes.as_categories()
    names = {axis: values for axis, values in coordinates(votes).items() if axis in ("item", "voter", "vote_class")}
    if isinstance(votes.storage, Triplets):
        entries = zip(("item_of", "voter_of", "vote"), votes.storage, strict=True)
        found = xr.Dataset({name: ("entry", values) for name, values in entries}, names)
        found = found if votes.weights is None else found.assign(weight=("entry", votes.weights))
    else:
        found = xr.Dataset({"vote": (("item", "voter"), votes.storage)}, names)
    about = {"num_classes": votes.num_classes, **({"ordered": 1} if ordered else {})}
    return found.assign_attrs(about) if len(votes.other_names) else found
