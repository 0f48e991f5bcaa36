"""A comparison as a folder: the page, its figures and its tables."""

import re
from collections.abc import Iterable
from pathlib import Path

import xarray as xr

from latentens.errors import LatentensError

PAGE = "report.html"


def report(tree: xr.DataTree, out: str | Path) -> Path:
    """Write a report of a comparison: `report.html`, which needs no other file, and PNG and CSV files beside it.

    Args:
        tree: What `latentens.comparison` returned or `latentens.comparison.load` read.
        out: A folder, made if need be.

    Returns:
        The path of the page.
    """
    from latentens.reporting.chapters import compose  # draws, and so takes a second to import

    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LatentensError(f"no folder {folder} can be made ({error.strerror}); name another") from None
    text, pictures, tables = compose(tree)
    (folder / PAGE).write_text(text, encoding="utf-8")
    for name, picture in zip(safe_names(pictures), pictures.values(), strict=True):
        (folder / f"{name}.png").write_bytes(picture.png)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder / PAGE


def safe_names(names: Iterable[str]) -> list[str]:
    """Different file names for different names, made of letters, digits and dashes."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        found.append(plain if plain and plain not in found else f"{plain}-{len(found)}".lstrip("-"))
    return found
