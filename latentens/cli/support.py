"""What the commands read, simulate, write and print; imported only when a command runs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Int
from rich.box import SIMPLE_HEAD
from rich.table import Table

from latentens import methods
from latentens.cli.evidence_output import signal_words
from latentens.cli.method_names import METHOD_NAMES, find_methods
from latentens.cli.outputs import write_whole
from latentens.cli.reading_options import as_options
from latentens.cli.terminal import end_if_elsewhere, messages, status, tell
from latentens.comparison import add_independence
from latentens.comparison.own_program import OWN_PROGRAM, own_program
from latentens.comparison.sweep import MethodFactory
from latentens.datasets import (
    PAPER_MODELS,
    Dataset,
    from_files,
    load,
    read_labels,
    read_votes,
    simulate,
    simulate_paper,
)
from latentens.errors import LatentensError
from latentens.evaluation import scores as evaluation
from latentens.evaluation.independence import ModelCheck
from latentens.methods.base import Fit, GoldMethod, Method, fit_known
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes
from latentens.votes.files import naming
from latentens.votes.matching import gold_codes
from latentens.votes.names import listed
from latentens.votes.reading import TableOptions

TEMPERED = "Tempered(DawidSkeneEM)"
TWO_CLASS_METHODS = ("MajorityVote", "SpectralMetaLearner", "DawidSkeneEM", TEMPERED, "LatentSpectral", "RBMStack")
MANY_CLASS_METHODS = ("MajorityVote", "DawidSkeneEM", TEMPERED, "Glad", "Ebcc")

PAIRS_SHOWN = 10
"""So many dependent pairs of voters are printed."""


MISSING_CODES = frozenset({"na", "n/a", "nan", "null", "none", "?", "-", "."})
"""What often means a missing vote, in small letters."""


def named_datasets(names: list[str], root: Path | None, reading: TableOptions) -> list[Dataset]:
    """Data sets by name."""
    return [load(name, root, **reading) for name in names]


def paper_datasets(items: int, seed: int) -> list[Dataset]:
    """The paper's four simulated sets."""
    return [simulate_paper(family, seed, items) for family in PAPER_MODELS]


def default_methods(datasets: Sequence[Dataset], showcase: bool) -> dict[str, MethodFactory]:
    """Methods for those who name none; on the paper's sets also the best that knows no label, and what knows the model.

    Args:
        datasets: The data sets.
        showcase: Whether these are the paper's simulated sets.
    """
    if any(dataset.votes.num_classes > 2 for dataset in datasets):
        return {**find_methods(MANY_CLASS_METHODS)}
    chosen = find_methods(TWO_CLASS_METHODS)
    return {**chosen, **find_methods(["TopDownMLE"]), OWN_PROGRAM: own_program(datasets)} if showcase else {**chosen}


def users_dataset(votes: Path, truth: Path | None, gold: Path | None, reading: TableOptions) -> Dataset:
    """A data set from a user's files."""
    dataset = from_files(votes, truth, **reading)
    _check_usable(dataset.votes, votes)
    return replace(dataset, gold=known_labels(dataset.votes, gold, reading)) if gold else dataset


def known_labels(votes: Votes, path: Path, reading: TableOptions) -> Int[np.ndarray, " item"]:
    """The codes of the labels in a user's file, −1 for items that are not in it."""
    labels = read_labels(path, item=reading.get("item"), missing=reading.get("missing", ()))
    with naming(path):
        return gold_codes(votes, labels)


def fit_votes(method: Method, votes: Votes, gold: Int[np.ndarray, " item"] | None, seed: int) -> Fit:
    """Fit, with known labels if there are any."""
    if gold is not None and not isinstance(method, GoldMethod):
        able = [name for name in METHOD_NAMES if issubclass(getattr(methods, name), GoldMethod)]
        raise LatentensError(f"{type(method).__name__} cannot use gold labels; {', '.join(able)} can")
    return fit_known(method, votes, jax.random.key(seed), gold)


def users_votes(path: Path, reading: TableOptions) -> Votes:
    """Votes from a user's file."""
    votes = read_votes(path, **reading)
    _check_usable(votes, path)
    return votes


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


def record_independence(tree: Any, datasets: Iterable[Dataset], key: jax.Array) -> None:
    """Put into a comparison whether the voters of data whose origin is unknown err independently."""
    real = [dataset for dataset in datasets if dataset.model is None]
    if real:
        with status("Checking whether voters err independently"):
            add_independence(tree, real, key=key)


def hand_over_fit(fitted: Fit, votes: Votes, seed: int, out: Path, voters: Path | None) -> None:
    """Write what a fit found, and say how it went."""
    place = write_frame(fitted.to_frame(), out)
    messages.print(signal_words(votes, seed))
    for name in ("log_likelihood", "iterations", "converged", "fallback", "warnings", "notes", "seconds"):
        if fitted.diagnostics.get(name) not in (None, []):
            value = fitted.diagnostics[name]
            tell(f"{name.replace('_', ' ')}: {f'{value:,.2f}' if isinstance(value, float) else value}")
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


def score_table(tree: Any) -> Table:
    """The main scores of a comparison, means over repetitions."""
    means = tree["scores"].to_dataset().drop_vars("error").mean("repetition").to_dataframe()
    shown = [
        score
        for score in evaluation.SCORES
        if score.heading and score.name in means and means[score.name].notna().any()
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("data set")
    table.add_column("method", overflow="fold")
    for score in shown:
        table.add_column(score.heading, justify="right")
    for dataset, rows in means.groupby(level="dataset", sort=False):
        label = str(dataset)
        for method, row in rows.droplevel("dataset").dropna(how="all").iterrows():
            figures = (score.text(row[score.name]) if np.isfinite(row[score.name]) else "" for score in shown)
            table.add_row(label, str(method), *figures)
            label = ""
        table.add_section()
    return table


def pair_frame(check: ModelCheck) -> pd.DataFrame:
    """Every pair of voters that was checked, the strongest residual first."""
    first, second = np.nonzero(np.triu(check.checked, k=1))
    names = np.asarray(check.voter_names)
    frame = pd.DataFrame(
        {
            "voter": names[first],
            "other": names[second],
            "residual_correlation": check.residual[first, second],
            "standard_error": check.standard_error[first, second],
            "p_value": check.pair_p_values[first, second],
            "adjusted_p_value": check.adjusted_p_values[first, second],
        }
    )
    return frame.sort_values("residual_correlation", key=lambda values: -values.abs(), kind="stable")


def pair_table(check: ModelCheck) -> Table:
    """The pairs of voters that stand out most."""
    table = Table(title=f"The strongest of {len(check.dependent_pairs)} pairs that stand out")
    for heading in ("voter", "other", "residual\ncorrelation", "p, for all\npairs together"):
        table.add_column(heading, justify="left" if heading in ("voter", "other") else "right")
    frame = pair_frame(check)
    for pair in frame[frame["adjusted_p_value"] <= check.level].head(PAIRS_SHOWN).itertuples():
        p_value = f"{pair.adjusted_p_value:.3f}"
        table.add_row(str(pair.voter), str(pair.other), f"{pair.residual_correlation:+.3f}", p_value)
    return table


def failures(tree: Any) -> list[str]:
    """A sentence for each fit that failed."""
    cells = tree["scores/error"].to_dataframe().reset_index()
    failed = cells[cells["error"] != ""]
    return [f"{cell.estimator} failed on {cell.dataset}: {cell.error}" for cell in failed.itertuples()]


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
