"""Comparisons as netCDF files."""

from pathlib import Path

import xarray as xr

from latentens.comparison.data_tree import FORMAT
from latentens.errors import LatentensError


def save(tree: xr.DataTree, path: str | Path) -> None:
    """Write a comparison; the file appears under its name only when it is whole."""
    content = tree.to_netcdf(engine="h5netcdf")  # in memory: on a full disk HDF5 crashes
    part = Path(f"{path}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path) -> xr.DataTree:
    """Read a comparison into memory."""
    if Path(path).is_dir():
        raise LatentensError(f"{path} is a folder; name the file in it, such as {Path(path) / 'tree.nc'}")
    if not Path(path).is_file():
        raise LatentensError(f"there is no file {path}")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            loaded = tree.load()
    except (OSError, ValueError, KeyError) as error:
        raise LatentensError(f"{path} is not a readable netCDF file ({error})") from None
    if loaded.attrs.get("format") != FORMAT:
        older = "a comparison of an earlier version" if "datasets" in loaded.attrs else "no comparison"
        raise LatentensError(f"{path} holds {older}: make one with `latentens compare --out`")
    return loaded
