"""Files of the commands: votes and labels are read, outputs are checked before the work and written whole."""

import json
import os
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.cli.options import as_option
from latentens.cli.terminal import say, tell
from latentens.datasets import Dataset, from_files, read_labels, read_votes
from latentens.errors import Keyword, LatentensError, require
from latentens.runtime.parallel import available_cores
from latentens.runtime.store import written_whole
from latentens.votes import Votes
from latentens.votes.labels import FileOptions, listed
from latentens.votes.matching import gold_codes, named_labels
from latentens.votes.tables import naming

Codes = Int[np.ndarray, " item"]
Known = dict[Hashable, Hashable]
"""Gold labels by the names of items and classes."""


def read_files(
    path: Path, reading: FileOptions, gold: Path | None = None, anchor: Collection[str] | None = None
) -> tuple[Votes, Known | None]:
    """Votes from a user's file, anchored, and gold labels, if there is a file of them; prints a line on the votes."""
    votes = _usable(read_votes(path, **reading), path).anchored(anchor or ())
    tell(described(path, votes))
    return votes, read_gold(votes, gold, reading)


def read_users_dataset(
    path: Path, truth: Path | None, gold: Path | None, anchor: Collection[str] | None, reading: FileOptions
) -> Dataset:
    """A data set from a user's files."""
    dataset = from_files(path, truth, **reading)
    dataset = replace(dataset, votes=_usable(dataset.votes, path).anchored(anchor or ()))
    known: Any = read_gold(dataset.votes, gold, reading)  # a data set keeps the codes
    return replace(dataset, gold=known)


def _usable(votes: Votes, path: Path) -> Votes:
    for number, what in ((votes.num_items, "item"), (votes.num_voters, "voter")):
        if number < 2:
            raise LatentensError(f"{path} has votes of only one {what}; at least two are needed")
    return votes


def read_gold(votes: Votes, path: Path | None, reading: FileOptions) -> Known | None:
    """The gold labels in a user's file; None without a file."""
    if path is None:
        return None
    labels = read_labels(path, item=reading.get("item"), missing=reading.get("missing", ()))
    with naming(path):
        codes = gold_codes(votes, labels)
    found, number = np.unique(codes[codes >= 0]), int(np.sum(codes >= 0))
    if len(found) == 1 < min(number, votes.num_classes):
        label = listed([votes.class_names[found[0]]])
        say(f"all {number:,} gold labels are {label}, so they do not show how voters vote on items of other classes")
    elif "classes" not in reading and (doubt := _doubtful_classes(votes, codes)):
        say(doubt)
    return named_labels(votes, codes)


def _doubtful_classes(votes: Votes, codes: Codes, level: float = 0.01) -> str:
    """A sentence on votes that no known label agrees with, such as "tie"; "" if that may well be chance.

    Args:
        votes: The votes.
        codes: Known labels, −1 where unknown.
        level: Largest probability of no such label among the known ones, were it as frequent as such votes are.
    """
    known, shares = np.bincount(codes[codes >= 0], minlength=votes.num_classes), votes.tally.sum(axis=0)
    absent = (known == 0) & ((1 - shares / max(shares.sum(), 1)) ** known.sum() < level)
    if np.sum(known > 0) < 2 or not absent.any():
        return ""
    labels, others = ([votes.class_names[code] for code in np.flatnonzero(part).tolist()] for part in (~absent, absent))
    listing = as_option(Keyword("classes", tuple(labels)))
    return f"no known label is {listed(others)}: if votes can be, but labels cannot, add {listing}"


def described(source: str | Path, votes: Votes, labels: Codes | None = None) -> str:
    """What was read, in one line: items, voters, classes, missing votes, true labels, a doubtful class."""
    known = f", {np.sum(labels >= 0):,} true labels" if labels is not None and (labels >= 0).any() else ""
    missing = {"na", "n/a", "nan", "null", "none", "?", "-", "."}
    codes = tuple(str(name) for name in votes.class_names if str(name).casefold() in missing)
    doubt = f" (if {codes[0]!r} means a missing vote, add {as_option(Keyword('missing', codes))})" if codes else ""
    if not doubt and labels is not None and (words := _doubtful_classes(votes, labels)):
        doubt = f" ({words})"
    return f"{source}: {votes.summary}{known}{doubt}"


def refuse_without(owner: str, given: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that need another one that was not given."""
    stray = next((name for name, value in options.items() if value), None)
    if stray and not given:
        raise LatentensError(f"--{stray} needs {owner}")


def fits_at_a_time(wanted: int | None, votes: Iterable[Votes], large: int = 200_000) -> int:
    """The number of parallel fits; by default one per core, or one for many items, where each fit uses all cores."""
    return wanted or (1 if any(each.num_items > large for each in votes) else available_cores())


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler at an address; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise LatentensError("--scheduler needs Dask: pip install 'latentens[distributed]'") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise LatentensError(f"no Dask scheduler answers at {address} ({error})") from None
    with client:
        yield client


def check_outputs(*files: Path | None, inputs: Iterable[Path | None]) -> None:
    """Refuse CSV files that could not be written, or that are files which the command reads or writes already.

    Args:
        files: The files that the command is to write.
        inputs: The files that it reads.
    """
    taken = {path.resolve(): "read" for path in inputs if path}
    for out in filter(None, files):
        check_file(out)
        if (place := out.resolve()) in taken:
            raise LatentensError(f"{out} is also a file that this command {taken[place]}s; choose another output file")
        taken[place] = "write"


def check_file(out: Path) -> None:
    """Refuse a CSV file that could not be written."""
    if out.suffix != ".csv":
        raise LatentensError(f"{out} does not end in .csv")
    if out.is_dir():
        raise LatentensError(f"{out} is a folder; choose a file in it, for example {out / 'result.csv'}")
    if out.exists() and not os.access(out, os.W_OK):
        raise LatentensError(f"{out} is not writable; choose another file")
    check_folder(out.parent)


def check_report(folder: Path | None) -> None:
    """Refuse a folder for a comparison and its report, as `check_folder` does, or if libraries for them are missing."""
    check_folder(folder)
    if folder is not None:
        require("--out", "arviz_plots", "h5netcdf", "h5py", "jinja2", "matplotlib", "PIL")


def check_folder(folder: Path | None) -> None:
    """Refuse a folder that could not be made or written to; nothing is left behind."""
    if folder is None:
        return
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        shown = existing.relative_to(Path.cwd()) if existing.is_relative_to(Path.cwd()) else existing
        raise LatentensError(f"{shown} is a file, not a folder; choose another folder")
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise LatentensError(f"{folder} is not writable ({error.strerror}); choose another folder") from None


def write_files(files: Mapping[Path | None, pd.DataFrame | Callable[[Path], object]]) -> None:
    """Write each file under another name first, so that it is whole or not there.

    A file that cannot be written after all goes to a temporary folder instead, so that no result is lost; the error
    says where it is.

    Args:
        files: For each path a table, written without its index, or a function that writes to the path it is given;
            None stands for a file that was not asked for.
    """
    problems = []
    for out, content in files.items():
        if out is None:
            continue
        write = partial(content.to_csv, index=False) if isinstance(content, pd.DataFrame) else content
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(out) as part:
                write(part)
        except (OSError, RuntimeError) as error:  # HDF5 has errors of its own for a full disk
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            saved = Path(tempfile.mkdtemp(prefix="latentens-")) / out.name
            try:
                write(saved)
                problems.append(f"{out} could not be written ({reason}); the result is in {saved}")
            except (OSError, RuntimeError):
                problems.append(f"neither {out} nor {saved} could be written ({reason}); free some space and repeat")
    if problems:
        raise LatentensError("; ".join(problems))


def write_table(out: Path | None, table: pd.DataFrame, what: str) -> None:
    """Write a table if a file was asked for, and say so."""
    if out:
        write_files({out: table})
        tell(f"{what} written to {out}")


def write_simulation(dataset: Dataset, out: Path) -> tuple[Path, Path]:
    """Write simulated votes, the truth with the exact posterior, and the parameters; returns the last two paths."""
    exact, params = dataset.bayes_posterior(), dataset.params
    assert exact is not None, "simulated data come with their model"
    assert params is not None
    truth = pd.DataFrame(exact, columns=[f"bayes_prob_{k}" for k in range(exact.shape[1])])
    truth.insert(0, "truth", dataset.labels)
    values = {name: np.asarray(value).tolist() for name, value in params.items()}
    about = json.dumps({"model": repr(dataset.model), "params": values}, indent=1) + "\n"
    beside = out.with_suffix(".truth.csv"), out.with_suffix(".params.json")
    writers = dataset.votes.to_frame().to_csv, truth.rename_axis("item").to_csv, lambda path: path.write_text(about)
    write_files(dict(zip((out, *beside), writers, strict=True)))
    return beside
