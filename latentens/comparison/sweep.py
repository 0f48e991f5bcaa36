"""Methods × data sets × repetitions: each cell is run once, kept on disk when done, and put into one tree."""

import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from latentens.checks import check_independence, effective_voters, signal_summary
from latentens.comparison.cell import GOLD_FOLDS, Cell, describe, from_record, run, score, to_record
from latentens.comparison.data_tree import Address, collect, data_trees, independence_group, to_tree
from latentens.comparison.result import EXACT, Independence, Outcome
from latentens.datasets.dataset import Dataset
from latentens.errors import FailedFitWarning, LatentensError, LatentensWarning, VotesError, in_one_line
from latentens.methods.base import Method, Posterior
from latentens.runtime.numerics import check_key
from latentens.runtime.parallel import completed
from latentens.runtime.progress import track_late
from latentens.runtime.store import Store
from latentens.scores.scores import SCORES, Score, check_scores
from latentens.votes import Votes

if TYPE_CHECKING:
    from distributed import Client


MethodFactory = Callable[[Votes], Method]
Progress = Callable[[int, int], None]

OUTSIDE_KEY = ("name", "repetition")
"""Fields of a cell that its outcome does not depend on: the name of the method, and the number of the repetition, of
which only the random key is used. Every other field, also one that is added later, is part of the store's key."""

TRUTH_OUTSIDE_KEY: Mapping[str, Any] = {"name": "", "model": None, "params": None}
"""The same for data sets: the outcome depends on model and parameters only through the exact posterior."""


def compare(
    datasets: Dataset | Iterable[Dataset],
    methods: Method | Iterable[Method] | Mapping[str, Method | MethodFactory],
    *,
    key: jax.Array,
    repetitions: int = 1,
    folder: str | Path | None = None,
    resamples: int = 1000,
    folds: int = 0,
    checks: bool = False,
    gold_folds: int = GOLD_FOLDS,
    scores: Iterable[Score] = (),
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> xr.DataTree:
    """Fit every method to every data set and score all posteriors beside the exact one.

    `latentens.comparison.data_tree` documents the layout of the result, and its function `from_tree` reads it into
    typed records. A method that fails is recorded with its error.

    Args:
        datasets: One data set or several, with different names.
        methods: A method, several, or methods by name; the default name is the class and the changed settings. A
            function of the votes that returns a method may take the place of a method, such as one whose model needs
            the number of voters.
        key: Random key; the same key gives the same tree except for seconds and memory.
        repetitions: Number of fits of each method to each data set, each with its own key.
        folder: Folder for finished fits, created if necessary. With the same folder, an interrupted comparison
            resumes where it stopped, and one with more methods or data sets fits only what is new. Fits are
            identified by the content of votes, settings and code (`latentens.runtime.store`); failed ones are tried
            again.
        resamples: Number of bootstrap samples behind the intervals of the scores.
        folds: Number of cross-validation folds by which point estimates are judged on held-out votes, each an
            additional fit; with 0, the default, they are judged by AIC.
        checks: Whether to check if each fitted model reproduces the votes (`check_fit`).
        gold_folds: Number of cross-validation folds of the gold labels, for data sets without other labels. Scores
            come from the held-out predictions; the fits themselves use all gold labels.
        scores: Scores of your own, computed beside the built-in ones; each is first tried on a few made-up items.
        client: A Dask client on whose workers the cells are run; by default they run in this process.
        workers: Number of cells that run at the same time in this process. With more than one, fits share the cores,
            so that seconds are longer, and their memory is not measured.
        on_progress: Called with the number of finished fits, failed ones excluded, and the number of all fits: at the
            beginning and after each fit.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> methods = [le.methods.MajorityVote(), le.methods.DawidSkeneEM()]
        >>> tree = le.compare(data, methods, key=jax.random.key(1), resamples=50)
        >>> tree["scores"]["accuracy"].squeeze().to_series().round(2)
        estimator
        exact Bayes     0.93
        MajorityVote    0.89
        DawidSkeneEM    0.92
        Name: accuracy, dtype: float64
    """
    if isinstance(datasets, Votes):
        raise LatentensError(
            "compare takes data sets: Dataset(name, votes), with labels or gold labels if some are known"
        )
    check_key(key)
    sets = [datasets] if isinstance(datasets, Dataset) else list(datasets)
    named, extra = named_methods(methods), tuple(scores)
    _check(sets, named, repetitions, extra)
    asked = {"resamples": resamples, "folds": folds, "checks": checks, "gold_folds": gold_folds}
    cells = [cell for dataset in sets for cell in cells_of(dataset, named, key, repetitions, **asked)]
    outcomes: dict[Address, Outcome] = {}
    for cell in cells:
        if cell.exact is not None and (cell.dataset.name, 0, EXACT) not in outcomes:
            first = _cell_key(key, cell.dataset.name, 0)
            scored = score(cell.dataset, cell.exact, cell.exact, resamples, key=first)
            ours = Outcome(label_probs=cell.exact, **scored)
            outcomes |= {(cell.dataset.name, repetition, EXACT): ours for repetition in range(repetitions)}
    outcomes |= run_cells(cells, folder, client, workers, on_progress)
    failed = {(name, data): outcome.error for (data, _, name), outcome in outcomes.items() if outcome.error}
    for (name, data), error in failed.items():
        warnings.warn(f"{name} failed on {data}: {error}", FailedFitWarning, stacklevel=2)
    if extra:
        of_set = {cell.dataset.name: cell for cell in cells}
        outcomes = {
            address: _with_scores(outcome, address, of_set[address[0]], key, extra)
            for address, outcome in outcomes.items()
        }
    signals = {dataset.name: signal_summary(dataset.votes, key=key) for dataset in sets}
    return to_tree(collect(sets, outcomes, key_data(key), signals, (*SCORES, *extra)))


def cells_of(
    dataset: Dataset,
    methods: Mapping[str, Method | MethodFactory],
    key: jax.Array,
    repetitions: int = 1,
    **asked: Any,
) -> list[Cell]:
    """The cells of one data set.

    Args:
        dataset: The data set.
        methods: Methods by name, as in `compare`.
        key: Random key, as in `compare`.
        repetitions: Number of fits of each method.
        asked: Further fields of `Cell`; by default only labels are estimated and scored.
    """
    exact, votes = dataset.bayes_posterior(), dataset.votes
    made = {name: method if isinstance(method, Method) else method(votes) for name, method in methods.items()}
    keys = [key_data(_cell_key(key, dataset.name, repetition)) for repetition in range(repetitions)]
    return [
        Cell(dataset, exact, name, method, repetition, keys[repetition], **asked)
        for repetition in range(repetitions)
        for name, method in made.items()
    ]


def _with_scores(outcome: Outcome, address: Address, cell: Cell, key: jax.Array, scores: Sequence[Score]) -> Outcome:
    """An outcome with scores of a user's own, which are not stored with fits, so that new ones need no new fit.

    Args:
        outcome: The outcome.
        address: Its address.
        cell: Any cell of the same data set.
        key: The key of the comparison.
        scores: The scores.
    """
    name, repetition, method = address
    probs = outcome.scored_probs(cell.dataset)
    if probs is None:
        return outcome
    key = _cell_key(key, name, 0 if method == EXACT else repetition)
    for own in scores:
        try:
            found = score(cell.dataset, probs, cell.exact, cell.resamples, key=key, scores=(own,))
        except Exception as error:  # of a user's function
            words = f"score {own.name!r} of {method} on {name} failed: {in_one_line(error)}"
            warnings.warn(words, LatentensWarning, stacklevel=3)
            found = {"scores": {own.name: np.nan}, "intervals": {}}
        joined: dict[str, Any] = {name: {**getattr(outcome, name), **values} for name, values in found.items()}
        outcome = replace(outcome, **joined)
    return outcome


def named_methods(
    methods: Method | Iterable[Method] | Mapping[str, Method | MethodFactory],
) -> Mapping[str, Method | MethodFactory]:
    """Methods by name: their class and changed settings, unless names are given."""
    if isinstance(methods, Mapping):
        return methods
    methods = [methods] if isinstance(methods, Method) else methods
    named: dict[str, Method] = {}
    for method in methods:
        if not isinstance(method, Method):
            raise LatentensError(f"{method!r} is not a method: pass an instance, such as DawidSkeneEM()")
        if describe(method) in named:
            raise LatentensError(f"{describe(method)} appears twice; pass a dict to give the copies different names")
        named[describe(method)] = method
    return named


def _check(datasets: Sequence[Dataset], methods: Mapping[str, Any], repetitions: int, scores: Sequence[Score]) -> None:
    names = [dataset.name for dataset in datasets]
    if not names or not methods or repetitions < 1:
        raise LatentensError("a comparison needs at least one data set, one method and one repetition")
    for name in names:
        if names.count(name) > 1:
            raise LatentensError(f"two data sets are called {name!r}; give them different names")
    if EXACT in methods:
        raise LatentensError(f"{EXACT!r} is reserved for the exact posterior; give the method another name")
    taken = [built_in.name for built_in in SCORES]
    for own in scores:
        if not isinstance(own, Score):
            raise LatentensError(f"{own!r} is not a score: pass a latentens.scores.Score with your function")
        if own.name in taken:
            raise LatentensError(f"there is already a score named {own.name!r}; give yours another name")
        taken.append(own.name)
    for dataset in datasets:
        has_exact = dataset.model is not None and dataset.params is not None
        check_scores(scores, dataset.votes.num_classes, has_exact)


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path | None = None,
    client: "Client | None" = None,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> dict[Address, Outcome]:
    """The outcome of every cell, from the store if it is there; otherwise it is run and, unless it failed, stored.

    The arguments are those of `compare`.
    """
    store = Store(folder)
    keys = _work_keys(cells, store)
    found = {cell.address: store.get(keys[cell.address]) for cell in cells}
    done = {address: from_record(record) for address, record in found.items() if record is not None}
    left = [cell for cell in cells if cell.address not in done]
    tell = on_progress or (lambda *_: None)
    kept = len(done)
    tell(kept, len(cells))
    for address, outcome in _here(left, workers) if client is None else _on_workers(left, client):
        if not outcome.error:
            store.put(keys[address], to_record(outcome))
            kept += 1
        done[address] = outcome
        tell(kept, len(cells))
    return {cell.address: done[cell.address] for cell in cells}


def _work_keys(cells: Sequence[Cell], store: Store) -> dict[Address, str]:
    """The store's key of each cell: all its fields except those in `OUTSIDE_KEY`, and the source of this package."""
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
    sent = {name: client.submit(tuple, data, pure=False) for name, data in sets.items()}
    left = {client.submit(_run_on, sent[cell.dataset.name], _without_data(cell), pure=False): cell for cell in cells}
    # results are fetched while others are waited for: to ask for one at a time takes longer than a small cell
    ended = as_completed(list(left), with_results=True, raise_errors=False)
    for future, found in track_late(ended, "Comparing", total=len(cells)):
        cell = left.pop(future)  # which lets the worker release its result
        if not isinstance(found, Outcome):  # one worker after another was lost with this cell
            error = found[1] if isinstance(found, tuple) else found
            found = Outcome(error=repr(error), kind=describe(cell.method, settings=False))
        yield cell.address, found


def _without_data(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in vars(cell).items() if name not in ("dataset", "exact")}


def _run_on(data: tuple[Dataset, Posterior | None], rest: dict[str, Any]) -> Outcome:
    return run(Cell(*data, **rest))


def _cell_key(key: jax.Array, name: str, repetition: int) -> jax.Array:
    """Depends on the data set's name and not on its place, so that a larger sweep repeats a smaller one."""
    return jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(name.encode())), repetition)


def key_data(key: jax.Array) -> np.ndarray:
    """The data of a key, which can be sent and kept."""
    return np.asarray(jax.random.key_data(key))


def add_independence(tree: xr.DataTree, datasets: Iterable[Dataset], *, key: jax.Array) -> None:
    """Check whether the voters of some data sets err independently, and add the result to the tree.

    Votes that cannot be checked, such as those of hundreds of voters or of too few, are skipped.

    Args:
        tree: The result of `latentens.compare`; it is changed.
        datasets: Data sets of the comparison.
        key: Random key; the same key gives the same result.
    """
    nodes = data_trees(tree)
    for dataset in datasets:
        try:
            check = check_independence(dataset.votes, key=key)
        except VotesError:
            continue
        group = np.full(len(check.voter_names), -1)
        for number, members in enumerate(check.groups):
            group[list(members)] = number
        about = check.p_value, check.level, check.summary
        found = Independence(check.residual, check.adjusted_p_values, group, *about)
        nodes[dataset.name]["independence"] = xr.DataTree(independence_group(found, dataset.votes))


def add_worth(tree: xr.DataTree, datasets: Iterable[Dataset], *, key: jax.Array, resamples: int = 20) -> None:
    """Estimate the effective number of voters of some data sets, and add the result to the tree.

    Args:
        tree: The result of `latentens.compare`; it is changed.
        datasets: Data sets of the comparison.
        key: Random key; the same key gives the same result.
        resamples: Number of bootstrap resamples behind the interval.
    """
    nodes = data_trees(tree)
    for dataset in datasets:
        try:
            found = effective_voters(dataset.votes, key=key, resamples=resamples)
            ends = {"low": found.low, "high": found.high, "level": found.level, "model": repr(found.model)}
            about: dict[str, Any] = {"summary": found.summary, **found.number._asdict(), **ends}
        except LatentensError as error:
            about = {"summary": f"The effective number of voters could not be estimated: {error}."}
        nodes[dataset.name]["worth"] = xr.DataTree(xr.Dataset(attrs=about))
