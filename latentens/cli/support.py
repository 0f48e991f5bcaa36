"""What the commands read, simulate, write and print; imported only when a command runs."""

import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.checks.signal import signal_summary
from latentens.cli.outputs import write_whole
from latentens.cli.reading_options import as_options
from latentens.cli.terminal import end_if_elsewhere, messages, say, tell
from latentens.datasets import (
    Dataset,
    from_files,
    load,
    read_labels,
    read_votes,
    simulate,
)
from latentens.errors import LatentensError
from latentens.methods.base import Fit
from latentens.programs.model import GenerativeModel
from latentens.runtime.parallel import available_cores
from latentens.votes import Votes
from latentens.votes.labels import TableOptions, listed
from latentens.votes.matching import gold_codes
from latentens.votes.tables import naming

LARGE_ITEMS = 200_000
"""With more items fits run one by one: each keeps all cores busy, and memory is for one of them."""

MISSING_CODES = frozenset({"na", "n/a", "nan", "null", "none", "?", "-", "."})
"""What often means a missing vote, in small letters."""


def fits_at_a_time(wanted: int | None, votes: Iterable[Votes]) -> int:
    """As many as the user wants; by default one for each core, or one where votes are many."""
    return wanted or (1 if any(each.num_items > LARGE_ITEMS for each in votes) else available_cores())


def named_datasets(names: list[str], root: Path | None, reading: TableOptions) -> list[Dataset]:
    """Data sets by name."""
    return [load(name, root, **reading) for name in names]


def users_dataset(
    votes: Path, truth: Path | None, gold: Path | None, anchor: Collection[str], reading: TableOptions
) -> Dataset:
    """A data set from a user's files, with voters that are trusted to be better than chance."""
    dataset = from_files(votes, truth, **reading)
    _check_usable(dataset.votes, votes)
    dataset = replace(dataset, votes=dataset.votes.anchored(anchor))
    return replace(dataset, gold=known_labels(dataset.votes, gold, reading)) if gold else dataset


def known_labels(votes: Votes, path: Path, reading: TableOptions) -> Int[np.ndarray, " item"]:
    """The codes of the labels in a user's file, −1 for items that are not in it."""
    labels = read_labels(path, item=reading.get("item"), missing=reading.get("missing", ()))
    with naming(path):
        codes = gold_codes(votes, labels)
    found, number = np.unique(codes[codes >= 0]), int(np.sum(codes >= 0))
    if len(found) == 1 < min(number, votes.num_classes):
        label = listed([votes.class_names[found[0]]])
        say(f"all {number:,} gold labels are {label}: they cannot tell how voters vote on items of other classes")
    return codes


def by_name(votes: Votes, codes: Int[np.ndarray, " item"]) -> dict[Hashable, Hashable]:
    """Known labels by name: as codes they might be taken for classes that are called by numbers."""
    return {votes.item_names[place]: votes.class_names[codes[place]] for place in np.flatnonzero(codes >= 0).tolist()}


def users_votes(path: Path, reading: TableOptions, anchor: Collection[str] = ()) -> Votes:
    """Votes from a user's file, with voters that are trusted to be better than chance."""
    votes = read_votes(path, **reading)
    _check_usable(votes, path)
    return votes.anchored(anchor)


def understood(source: str | Path, votes: Votes, labels: Int[np.ndarray, " item"] | None = None) -> str:
    """One line on what was read: items, voters, classes, what is missing and how many true labels are known."""
    known = f", {np.sum(labels >= 0):,} true labels" if labels is not None and (labels >= 0).any() else ""
    codes = [str(name) for name in votes.class_names if str(name).casefold() in MISSING_CODES]
    doubt = f" (if {codes[0]!r} is no class, say missing={tuple(codes)})" if codes else ""
    return as_options(f"{source}: {votes.summary}{known}{doubt}")


def simulated(name: str, model: GenerativeModel, items: int, seed: int) -> Dataset:
    """Items of a model, with the example's parameters where the model has one, else a draw from the priors."""
    params_key, items_key = jax.random.split(jax.random.key(seed))
    params = model.example_params(params_key)
    return replace(simulate(model, items, key=items_key, params=params), name=name)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler there; without an address none."""
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


def write_frame(frame: pd.DataFrame, out: Path) -> Path:
    """Write a table; the result says where it is."""
    return write_whole(out, partial(frame.to_csv, index=False))


def hand_over_fit(fitted: Fit, votes: Votes, seed: int, out: Path, voters: Path | None) -> None:
    """Write what a fit found, and say how it went."""
    place = write_frame(fitted.to_frame(), out)
    messages.print(signal_summary(votes, key=jax.random.key(seed)))
    for name in ("log_likelihood", "iterations", "converged", "fallback", "seconds"):
        if (value := fitted.diagnostics.get(name)) is not None:
            tell(f"{name.replace('_', ' ')}: {f'{value:,.2f}' if isinstance(value, float) else value}")
    for kind, said in (("warning", fitted.diagnostics.all_warnings), ("note", fitted.diagnostics.notes)):
        for words in said:
            tell(f"{kind}: {words}")
    for words in flagged(fitted.voters):
        tell(words)
    tell(f"labels written to {place}")
    if voters:
        beside = write_frame(fitted.voters, voters)
        tell(f"voters written to {beside}")
        end_if_elsewhere(beside, voters)
    end_if_elsewhere(place, out)


def flagged(voters: pd.DataFrame) -> list[str]:
    """A sentence for each kind of voter that a user should know of."""
    flags = dict.fromkeys(str(flag) for flag in voters["flag"] if flag)
    return [f"{flag[0].upper()}{flag[1:]}: {listed(voters['voter'][voters['flag'] == flag])}" for flag in flags]


def write_simulation(dataset: Dataset, out: Path) -> tuple[Path, Path, Path]:
    """Votes, truth with the exact posterior, and parameters; the result says where they are."""
    exact, params = dataset.bayes_posterior(), dataset.params
    assert exact is not None, "simulated data come with their model"
    assert params is not None
    truth = pd.DataFrame(exact, columns=[f"bayes_prob_{k}" for k in range(exact.shape[1])])
    truth.insert(0, "truth", dataset.labels)
    values = {name: np.asarray(value).tolist() for name, value in params.items()}
    about = json.dumps({"model": repr(dataset.model), "params": values}, indent=1) + "\n"
    return (
        write_whole(out, dataset.votes.to_frame().to_csv),
        write_whole(out.with_suffix(".truth.csv"), truth.rename_axis("item").to_csv),
        write_whole(out.with_suffix(".params.json"), lambda path: path.write_text(about)),
    )


def _check_usable(votes: Votes, path: Path) -> None:
    """One item or one voter can be read, but says nothing about who errs."""
    for number, what in ((votes.num_items, "item"), (votes.num_voters, "voter")):
        if number < 2:
            raise LatentensError(f"{path} has votes of only one {what}; at least two are needed")


def refuse_strays(options: Mapping[str, Any], owner: str, given: Any) -> None:
    """Refuse an option that belongs to another one that was not given."""
    strays = [name for name, value in options.items() if value]
    if strays and not given:
        raise LatentensError(f"--{strays[0]} belongs to {owner}, and there is none")
