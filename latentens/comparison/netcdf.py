"""Comparisons and their cells as netCDF files."""

from pathlib import Path
from typing import Any

import xarray as xr

from latentens.comparison.cell import Outcome
from latentens.comparison.data_tree import variables
from latentens.errors import LatentensError

ATTRIBUTES = ("settings", "seconds", "peak_memory", "error", "diagnostics")
ARRAYS = ("params", "draws", "sample_stats")


def save(tree: xr.DataTree, path: str | Path) -> None:
    """Write a comparison; the file appears under its name only when it is whole."""
    part = Path(f"{path}.part")
    tree.to_netcdf(part, engine="h5netcdf")
    part.replace(path)


def load(path: str | Path) -> xr.DataTree:
    """Read a comparison into memory."""
    if not Path(path).is_file():
        raise LatentensError(f"there is no file {path}")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            loaded = tree.load()
    except (OSError, ValueError, KeyError) as error:
        raise LatentensError(f"{path} is not a readable netCDF file ({error})") from None
    if "scores" not in loaded.children or "datasets" not in loaded.attrs:
        raise LatentensError(f"{path} holds no comparison: make one with `latentens compare --out`")
    return loaded


def save_outcome(outcome: Outcome, path: Path) -> None:
    """Write what came of a cell."""
    groups = {group: xr.Dataset(variables(getattr(outcome, group))) for group in ARRAYS}
    groups["scores"] = xr.Dataset(dict(outcome.scores))
    groups["intervals"] = xr.Dataset({name: ("bound", list(pair)) for name, pair in outcome.intervals.items()})
    groups["/"] = xr.Dataset(attrs={name: getattr(outcome, name) for name in ATTRIBUTES})
    if outcome.label_probs is not None:
        groups["/"]["label_prob"] = (("item", "label"), outcome.label_probs)
    save(xr.DataTree.from_dict(groups), path)


def load_outcome(path: Path) -> Outcome:
    """Read what came of a cell."""
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        arrays: dict[str, Any] = {
            group: {str(name): values.to_numpy() for name, values in tree[group].data_vars.items()} for group in ARRAYS
        }
        return Outcome(
            **{name: tree.attrs[name] for name in ATTRIBUTES},
            **arrays,
            label_probs=tree["label_prob"].to_numpy() if "label_prob" in tree else None,
            scores={str(name): float(value) for name, value in tree["scores"].data_vars.items()},
            intervals={str(name): tuple(pair.values.tolist()) for name, pair in tree["intervals"].data_vars.items()},
        )
