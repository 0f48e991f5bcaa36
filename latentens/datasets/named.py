"""Data sets by name: the paper's, with their models and parameters, published tables, and crowd-sourced ones."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from latentens.datasets.dataset import Dataset, simulate
from latentens.datasets.from_files import from_files
from latentens.errors import DataNotFoundError, Keyword, VotesError
from latentens.models import DawidSkene, LayeredGraph, Tree, TruncatedGaussian
from latentens.programs.components import two_class_confusion
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from latentens.votes.labels import MISSING, TableOptions

PAPER_MODELS: Mapping[str, GenerativeModel] = {
    "condInd": DawidSkene(),
    "Tree": Tree(),
    "LG": LayeredGraph(),
    "TG": TruncatedGaussian(),
}
"""The models of the paper's simulated sets, by the names of their folders."""

PAPER_ITEMS, PAPER_VOTERS = 10_000, 15


class PaperParams(NamedTuple):
    """Parameters that sets of the paper were drawn from."""

    params: dict[str, Float[np.ndarray, "..."]]
    is_estimate: bool
    """Whether the authors' own were not kept, so that these are estimated from their sets."""


@lru_cache
def paper_params(family: str) -> PaperParams:
    """The parameters of one of the paper's families; `published/README.md` names their source."""
    path = files("latentens.datasets") / "published" / "shaham_2016.json"
    known = json.loads(path.read_text(encoding="utf-8"))[family]
    return PaperParams(paper_to_params(PAPER_MODELS[family], known["params"]), known["source"] == "estimate")


def paper_to_params(model: GenerativeModel, values: Mapping[str, Any]) -> dict[str, Float[np.ndarray, "..."]]:
    """The parameters of a model from the paper's: the prevalence of label 1, sensitivities and specificities."""
    known = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    known["prevalence"] = np.stack([1 - known["prevalence"], known["prevalence"]])
    for name in structure_of(model).parameter_shapes:
        if name.endswith("confusion"):
            prefix = name.removesuffix("confusion")
            known[name] = two_class_confusion(known.pop(f"{prefix}sensitivity"), known.pop(f"{prefix}specificity"))
    return known


def simulate_paper(family: str, number: int, num_items: int = PAPER_ITEMS) -> Dataset:
    """Draw one of the paper's sets anew: parameters are the paper's for all numbers, items differ."""
    model, params = PAPER_MODELS[family], paper_params(family).params
    return replace(simulate(model, num_items, key=jax.random.key(number), params=params), name=f"{family}/{number}")


def true_params(
    family: str, votes: Votes, labels: Int[np.ndarray, " item"], *, standard_errors: float = 6.0
) -> dict[str, np.ndarray] | None:
    """The parameters that votes of a family were drawn from, if these are the authors' and the votes agree with them.

    Somebody who runs the authors' scripts anew draws other parameters; every voter's rate in each class must therefore
    be the one that the parameters give, within some standard errors.
    """
    known = paper_params(family)
    if known.is_estimate:
        return None
    for label, rates in enumerate(_rates(PAPER_MODELS[family], known.params)):
        own = votes.matrix[labels == label]
        error = np.sqrt(rates * (1 - rates) / max(len(own), 1))
        if len(own) and np.max(np.abs(own.mean(axis=0) - rates) / error) > standard_errors:
            return None
    return known.params


@double_precision
def _rates(model: GenerativeModel, params: dict[str, np.ndarray]) -> Float[np.ndarray, "label voter"]:
    """`P(vote = 1 | label)` of each voter."""
    tables = checked_tables(model, params)
    joint = np.exp(np.asarray(tables.log_prior))
    given_label = joint / joint.sum(axis=1, keepdims=True)
    says_one = np.exp(np.asarray(tables.log_emission))[..., 1]
    return (given_label[..., None] * says_one).sum(axis=1)


ROOT_VARIABLE = "LATENTENS_DATA"

FILES = {
    r"(condInd|Tree|LG|TG)/(\d+)": "simulated/{0}/dataset{1}.mat",
    r"(S[123])": "real/Dream/{0}_data.mat",
    r"magic/(\d+)": "real/magic/magic_block_{0}.mat",
}
"""Patterns of names and the authors' files they stand for, below `datasets/`."""


def _caries(path: Path) -> Votes:
    table = pd.read_csv(path)
    return Votes.from_patterns(table.drop(columns="count"), table["count"])


BUNDLED: Mapping[str, Callable[[Path], Votes]] = {
    "anesthesia": partial(Votes.from_csv, duplicates="keep"),
    "caries": _caries,
}
"""How to read each published table that comes with the package; `published/README.md` names their sources."""


def load(name: str, root: str | Path | None = None, **options: Unpack[TableOptions]) -> Dataset:
    """Load a data set with its true labels, where these are known.

    Args:
        name: `condInd/1` … `TG/5`, `S1` … `S3`, `magic/1` … for the paper's sets; `anesthesia` (Dawid & Skene 1979) or
            `caries` (Espeland & Handelman 1989), which come with the package, without true labels; or the name of a
            folder with `label.csv` (item, worker, label) and `truth.csv` (item, truth).
        root: Folder of the files, by default that of the variable LATENTENS_DATA. The authors' layout
            (`datasets/simulated/…`, `datasets/real/…`) and folders of crowd data are found in it directly, or in its
            folders `rbmpaper` and `crowds`. The parameters of the authors' `condInd`, `Tree` and `TG` are known to the
            package; those of sets of your own in this layout go into a file `true_params.json` beside `datasets`.
            Without any root `condInd`, `Tree`, `LG` and `TG` are drawn anew, the number being the seed.
        options: How to read `label.csv`, as in `Votes.from_csv`; a worker's later answer replaces the earlier.

    Examples:
        >>> import latentens as le
        >>> data = le.datasets.load("caries")
        >>> data.votes.shape, list(data.votes.voter_names)
        ((3869, 5), ['dentist_1', 'dentist_2', 'dentist_3', 'dentist_4', 'dentist_5'])
    """
    root = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if options and (name in BUNDLED or any(re.fullmatch(pattern, name) for pattern in FILES)):
        raise VotesError(f"{name} is not read from a table of yours, so {', '.join(options)} cannot be given")
    if name in BUNDLED:
        with as_file(files("latentens.datasets") / "published" / f"{name}.csv") as path:
            votes = BUNDLED[name](path)
        return Dataset(name, votes, np.full(votes.num_items, MISSING, dtype=np.int8))
    for pattern, template in FILES.items():
        if match := re.fullmatch(pattern, name):
            family, relative = match.group(1), template.format(*match.groups())
            if root is None and family in PAPER_MODELS:
                return simulate_paper(family, int(match.group(2)))
            return _load_authors(name, family, _find(name, relative, root, ("datasets", "rbmpaper/datasets", ".")))
    return _load_crowd(name, _find(name, f"{name}/label.csv", root, (".", "crowds")), {"duplicates": "last"} | options)


def _find(name: str, relative: str, root: str | Path | None, folders: tuple[str, ...]) -> Path:
    if root is None:
        choice = Keyword("root")
        raise DataNotFoundError(
            f"{name} is read from files: give their folder by {choice} or by {ROOT_VARIABLE}", choice
        )
    for folder in folders:
        if (path := Path(root, folder, relative)).is_file():
            return path
    wanted = Path(root, folders[0], relative)
    source = (
        "the folder `datasets` of the paper's authors (ushaham/RBMpaper on GitHub)"
        if relative.endswith(".mat")
        else "a crowd-sourced data set as label.csv (columns item, worker, label) and truth.csv (item, truth)"
    )
    raise DataNotFoundError(f"{name}: there is no file {wanted}; fetch {source} and put it there")


def _load_authors(name: str, family: str, path: Path) -> Dataset:
    """A `.mat` file with votes `f` (voter, item) and labels `y`, coded 0, 1 or −1, 1; nothing in it is executed."""
    try:
        content = loadmat(path, variable_names=("f", "y"))
    except (MatReadError, ValueError, NotImplementedError, TypeError) as error:
        raise VotesError(f"{path} is not a readable MATLAB file ({error})") from None
    for variable in ("f", "y"):
        values = content.get(variable)
        if values is None or values.dtype.kind not in "iufb" or not np.isin(values, (-1, 0, 1)).all():
            raise VotesError(f"{path} has no variable {variable!r} of votes coded 0, 1 or -1, 1")
    votes, labels = Votes.from_matrix(content["f"].T > 0, num_classes=2), (content["y"].ravel() > 0).astype(np.int8)
    dataset = Dataset(name, votes, labels, *_params_beside(family, path))
    if dataset.params is None and family in PAPER_MODELS and votes.num_voters == PAPER_VOTERS:
        return replace(dataset, model=PAPER_MODELS[family], params=true_params(family, votes, labels))
    return dataset


def _params_beside(family: str, path: Path) -> tuple[GenerativeModel | None, dict[str, Any] | None]:
    """Model and parameters from `true_params.json` in a folder above the data."""
    found = [folder / "true_params.json" for folder in path.parents[:4] if (folder / "true_params.json").is_file()]
    known = json.loads(found[0].read_text()) if found else {}
    if family not in known:
        return None, None
    values = known[family]
    model = Tree(tuple(values["voter_parent"])) if family == "Tree" else PAPER_MODELS[family]
    return model, paper_to_params(model, {k: v for k, v in values.items() if k not in ("note", "voter_parent")})


def _load_crowd(name: str, path: Path, options: TableOptions) -> Dataset:
    truth_path = path.with_name("truth.csv")
    if not truth_path.is_file():
        raise DataNotFoundError(f"{name}: there is no file {truth_path}; put the true labels there (item, truth)")
    return replace(from_files(path, truth_path, **options), name=name)
