"""Published tables of votes that come with the package; `published/README.md` names their sources."""

from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd

from latentens.datasets.dataset import Dataset
from latentens.votes import Votes
from latentens.votes.labels import MISSING


def _anesthesia(path: Path) -> Votes:
    return Votes.from_csv(path, duplicates="keep")


def _caries(path: Path) -> Votes:
    table = pd.read_csv(path)
    return Votes.from_patterns(table.drop(columns="count"), table["count"])


BUNDLED: Mapping[str, Callable[[Path], Votes]] = {"anesthesia": _anesthesia, "caries": _caries}
"""How to read each table."""


def load_bundled(name: str) -> Dataset:
    """A published table by its name; its true labels are not known."""
    with as_file(files("latentens.datasets") / "published" / f"{name}.csv") as path:
        votes = BUNDLED[name](path)
    return Dataset(name, votes, np.full(votes.num_items, MISSING, dtype=np.int8))
