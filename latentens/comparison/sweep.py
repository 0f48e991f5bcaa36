"""Methods × data sets × repetitions: each cell is run once, kept on disk when done, and joined into one tree."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from latentens.checks import signal_summary
from latentens.comparison.cell import GOLD_FOLDS, Cell, Outcome, describe, run, score
from latentens.comparison.data_tree import EXACT, Address, assemble
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.methods.base import Method, Posterior
from latentens.runtime.parallel import completed
from latentens.runtime.progress import track_late
from latentens.runtime.store import Store
from latentens.votes import Votes

if TYPE_CHECKING:
    from distributed import Client


MethodFactory = Callable[[Votes], Method]
Progress = Callable[[int, int], None]

OUTSIDE_KEY = ("name", "repetition")
"""Fields of a cell that its outcome does not depend on: what the method is called, and the number of the repetition, of
which only the random key is used. Every other field, also one that is added later, is part of the store's key."""

TRUTH_OUTSIDE_KEY: Mapping[str, Any] = {"name": "", "model": None, "params": None}
"""The same for data sets: the outcome depends on model and parameters only through the exact posterior."""


def compare(
    datasets: Dataset | Iterable[Dataset],
    methods: Iterable[Method] | Mapping[str, Method | MethodFactory],
    *,
    key: jax.Array,
    repetitions: int = 1,
    folder: str | Path | None = None,
    resamples: int = 1000,
    folds: int = 0,
    checks: bool = False,
    gold_folds: int = GOLD_FOLDS,
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> xr.DataTree:
    """Fit every method to every data set and lay all posteriors next to the exact one.

    `latentens.comparison.data_tree` says how the result is laid out. A method that fails is recorded with its error.

    Args:
        datasets: One data set or several, with different names.
        methods: Methods, or methods by the names they get in tables; by default their class and changed settings.
            In place of a method a function may stand that makes one for the votes of each data set, such as one with
            a model of as many voters.
        key: Random key; the same key gives the same tree but for seconds and memory.
        repetitions: How often each method is fitted to each data set, with another key each time.
        folder: Where finished fits are kept, made if need be. With the same folder, an interrupted comparison resumes
            where it stopped, and one with more methods or data sets fits only what is new. Fits are told apart by the
            content of votes, settings and code (`latentens.runtime.store`); those that failed are tried again.
        resamples: Bootstrap samples behind the intervals of the scores.
        folds: Parts of the items that point estimates predict from the others, to see which model predicts votes best;
            this fits each method as many times more. By default that is judged by AIC.
        checks: Whether to ask of each fitted model if it reproduces the votes (`check_fit`).
        gold_folds: Parts into which the gold labels of a data set without other labels are split. Each part is
            predicted by a fit that has seen the other parts only, and the scores come from these predictions; fits
            themselves use all gold labels.
        client: A Dask client on whose workers the cells are run; by default they run here.
        workers: How many cells run here at a time. With more than one, seconds are those of fits that share the cores,
            and what memory a fit takes is not known.
        on_progress: Called with the number of fits that are finished, without those that failed, and of all: at the
            beginning, and after each.
    """
    sets = [datasets] if isinstance(datasets, Dataset) else list(datasets)
    named = named_methods(methods)
    _check(sets, named, repetitions)
    asked = (repetitions, resamples, folds, checks, gold_folds)
    cells = [cell for dataset in sets for cell in cells_of(dataset, named, key, *asked)]
    outcomes: dict[Address, Outcome] = {}
    for cell in cells:
        if cell.exact is not None and (cell.dataset.name, 0, EXACT) not in outcomes:
            ours = _exact_outcome(cell.dataset, cell.exact, resamples, key=_cell_key(key, cell.dataset.name, 0))
            outcomes |= {(cell.dataset.name, repetition, EXACT): ours for repetition in range(repetitions)}
    outcomes |= run_cells(cells, folder, client, workers, on_progress)
    signals = {dataset.name: signal_summary(dataset.votes, key=key) for dataset in sets}
    return assemble(sets, outcomes, key_data(key), signals)


def cells_of(
    dataset: Dataset,
    methods: Mapping[str, Method | MethodFactory],
    key: jax.Array,
    repetitions: int = 1,
    resamples: int = 0,
    folds: int | None = None,
    checks: bool = False,
    gold_folds: int = GOLD_FOLDS,
) -> list[Cell]:
    """The cells of one data set; the arguments are those of `compare`.

    Without resamples there are no intervals, and without folds nothing is asked about the votes themselves.
    """
    exact, made = dataset.bayes_posterior(), _made_for(dataset.votes, methods)
    keys = [key_data(_cell_key(key, dataset.name, repetition)) for repetition in range(repetitions)]
    return [
        Cell(dataset, exact, name, method, repetition, keys[repetition], resamples, folds, checks, gold_folds)
        for repetition in range(repetitions)
        for name, method in made.items()
    ]


def named_methods(
    methods: Iterable[Method] | Mapping[str, Method | MethodFactory],
) -> Mapping[str, Method | MethodFactory]:
    """Methods by the names they get in tables: their class and changed settings, unless names are given."""
    if isinstance(methods, Mapping):
        return methods
    named: dict[str, Method] = {}
    for method in methods:
        if describe(method) in named:
            raise LatentensError(f"{describe(method)} is asked for twice; give names as a dict to have it so")
        named[describe(method)] = method
    return named


def _made_for(votes: Votes, methods: Mapping[str, Method | MethodFactory]) -> dict[str, Method]:
    return {name: method if isinstance(method, Method) else method(votes) for name, method in methods.items()}


def _check(datasets: Sequence[Dataset], methods: Mapping[str, Any], repetitions: int) -> None:
    names = [dataset.name for dataset in datasets]
    if not names or not methods or repetitions < 1:
        raise LatentensError("a comparison needs at least one data set, one method and one repetition")
    for name in names:
        if names.count(name) > 1:
            raise LatentensError(f"two data sets are called {name!r}; give them different names")
    if EXACT in methods:
        raise LatentensError(f"{EXACT!r} cannot be the name of a method: the exact posterior has it; take another")


def _exact_outcome(dataset: Dataset, probs: Posterior, resamples: int, *, key: jax.Array) -> Outcome:
    """The exact posterior as if a method had found it."""
    scored = score(dataset, probs, probs, resamples, key=key)
    return Outcome(repr(dataset.model), np.nan, np.nan, label_probs=probs, **scored)


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path | None = None,
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> dict[Address, Outcome]:
    """The outcome of every cell: from the store if it is there, else run and, unless it failed, put there.

    The arguments are those of `compare`.
    """
    store = Store(folder)
    keys = _work_keys(cells, store)
    found = {cell.address: store.get(keys[cell.address]) for cell in cells}
    done = {address: Outcome.from_record(record) for address, record in found.items() if record is not None}
    left = [cell for cell in cells if cell.address not in done]
    tell = on_progress or (lambda *_: None)
    kept = len(done)
    tell(kept, len(cells))
    for address, outcome in _here(left, workers) if client is None else _on_workers(left, client):
        if not outcome.error:
            store.put(keys[address], outcome.to_record())
            kept += 1
        done[address] = outcome
        tell(kept, len(cells))
    return {cell.address: done[cell.address] for cell in cells}


def _work_keys(cells: Sequence[Cell], store: Store) -> dict[Address, str]:
    """What each cell depends on: every field of it but those that `OUTSIDE_KEY` names, and this package's source."""
    data_keys, keys = {}, {}
    for cell in cells:
        name = cell.dataset.name
        if name not in data_keys:  # the votes are read once, however many methods are fitted to them
            data_keys[name] = store.key(replace(cell.dataset, **TRUTH_OUTSIDE_KEY), cell.exact)
        about = {field: value for field, value in _without_data(cell).items() if field not in OUTSIDE_KEY}
        try:
            keys[cell.address] = store.key(data_keys[name], about)
        except LatentensError as error:
            raise LatentensError(f"fits of {cell.name} cannot be kept in {store.folder}: {error}") from None
    return keys


def _here(cells: Sequence[Cell], workers: int) -> Iterator[tuple[Address, Outcome]]:
    """Outcomes of cells that run in this process, one by one or several at a time."""
    if workers == 1:
        for cell in track_late(cells, lambda cell: f"{cell.name} on {cell.dataset.name}"):
            yield cell.address, run(cell)
        return
    side_by_side = completed(partial(run, alone=False), cells, workers=workers)
    for number, outcome in track_late(side_by_side, "Comparing", total=len(cells)):
        yield cells[number].address, outcome


def _on_workers(cells: Sequence[Cell], client: "Client") -> Iterator[tuple[Address, Outcome]]:
    """Outcomes in the order in which workers finish; the cells of a worker that is lost are run by others."""
    from distributed import as_completed

    # a data set is sent once, by a task that is simply repeated if the worker that holds it is lost
    sets = {cell.dataset.name: (cell.dataset, cell.exact) for cell in cells}
    sent = {name: client.submit(_same, data, pure=False) for name, data in sets.items()}
    left = {client.submit(_run_on, sent[cell.dataset.name], _without_data(cell), pure=False): cell for cell in cells}
    # results are fetched while others are waited for: to ask for one at a time takes longer than a small cell
    ended = as_completed(list(left), with_results=True, raise_errors=False)
    for future, found in track_late(ended, "Comparing", total=len(cells)):
        cell = left.pop(future)  # which lets the worker forget what it found
        if not isinstance(found, Outcome):  # one worker after another was lost with this cell
            error = found[1] if isinstance(found, tuple) else found
            found = Outcome(repr(cell.method), np.nan, np.nan, repr(error))
        yield cell.address, found


Data = tuple[Dataset, Posterior | None]


def _same(data: Data) -> Data:
    return data


def _without_data(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in vars(cell).items() if name not in ("dataset", "exact")}


def _run_on(data: Data, rest: dict[str, Any]) -> Outcome:
    return run(Cell(*data, **rest))


def _cell_key(key: jax.Array, name: str, repetition: int) -> jax.Array:
    """Depends on the data set's name and not on its place, so that a larger sweep repeats a smaller one."""
    return jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(name.encode())), repetition)


def key_data(key: jax.Array) -> np.ndarray:
    """The data of a key, which can be sent and kept."""
    return np.asarray(jax.random.key_data(key))
