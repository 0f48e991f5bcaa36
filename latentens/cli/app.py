"""The command `latentens`; what a command needs is imported when it runs, so that help comes at once."""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from latentens.cli.interrupts import tell_of_fits
from latentens.cli.reading_options import as_options, reads_votes
from latentens.errors import LatentensError, LatentensWarning

if TYPE_CHECKING:
    from latentens.votes.reading import TableOptions

app = typer.Typer(
    help="Unsupervised ensemble learning: many voters, no labels, every method next to the exact Bayes posterior.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console()
messages = Console(stderr=True, soft_wrap=True, highlight=False)

SIMULATED_ITEMS = 10_000
TWO_CLASS_METHODS = ("MajorityVote", "SpectralMetaLearner", "DawidSkeneEM", "LatentSpectral", "RBMStack")
MANY_CLASS_METHODS = ("MajorityVote", "DawidSkeneEM", "Glad", "Ebcc")

Items = Annotated[int, Option(min=1, help="Number of items of each simulated set.")]
Seed = Annotated[int, Option(min=0, help="Seed; the same seed gives the same result.")]
VotesFile = Annotated[Path, Argument(help="CSV or Parquet file: columns item, voter, vote, or one column per voter.")]
GoldFile = Annotated[Path | None, Option(help="CSV or Parquet file of known labels (item, gold) for methods to use.")]
MethodNames = Annotated[
    list[str] | None,
    Option("--methods", "-m", help="Such as 'RBMStack(hidden=(3, 1))' or 'short=Nuts(Tree)'. May be repeated."),
]


def run() -> None:
    """Run the command that was typed; a user's error ends it with one sentence and exit code 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LatentensWarning)
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        try:
            app()
        except LatentensError as error:
            _say(error)
            sys.exit(2)


def _tell(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _say(sentence: object) -> None:
    messages.print(f"latentens: {as_options(str(sentence))}", markup=False)


def _show_warning(otherwise: Callable[..., None], message: Warning | str, *where: Any, **more: Any) -> None:
    """Show a warning of ours as a sentence, and any other as Python does."""
    if isinstance(message, LatentensWarning):
        _say(message)
    else:
        otherwise(message, *where, **more)


@app.callback()
def options(
    cache: Annotated[
        Path | None, Option(envvar="LATENTENS_CACHE", help="Folder in which compiled programs are kept for later runs.")
    ] = None,
) -> None:
    """What holds for every command."""
    if cache:
        from latentens.runtime.devices import keep_compiled

        keep_compiled(cache)


@app.command()
@reads_votes
def compare(
    votes: Annotated[Path | None, Option(help="CSV or Parquet file of your votes.")] = None,
    truth: Annotated[Path | None, Option(help="CSV or Parquet file of true labels (item, truth) for --votes.")] = None,
    gold: GoldFile = None,
    data: Annotated[list[str] | None, Option(help="A named set: Tree/1, S1, …. May be repeated.")] = None,
    root: Annotated[Path | None, Option(help="Folder of the named sets' files.")] = None,
    model: Annotated[list[str] | None, Option(help="A model to simulate from. May be repeated.")] = None,
    methods: MethodNames = None,
    items: Items = SIMULATED_ITEMS,
    seed: Seed = 1,
    repetitions: Annotated[int, Option(min=1, help="Fits of each method, with other keys.")] = 1,
    out: Annotated[Path | None, Option(help="Folder for tree.nc, the report and finished cells.")] = None,
    scheduler: Annotated[str | None, Option(help="Dask scheduler, such as tcp://host:8786.")] = None,
    *,
    reading: "TableOptions",
) -> None:
    """Compare methods with each other, with the truth, and with the exact Bayes posterior where it is known.

    Without data of yours: the paper's four simulated sets. With --out, an interrupted comparison goes on where it
    stopped. Exit code 1 says that some method failed; the others are there.

    Examples:
        latentens compare --out results

        latentens compare --votes my.csv --truth labels.csv -m DawidSkeneEM -m 'Nuts(DawidSkene)'

        latentens compare --model Tree --model my_model.py:MyModel --items 5000
    """
    progress = tell_of_fits(out)
    import jax

    from latentens.cli import support
    from latentens.cli.method_names import find_methods, find_model
    from latentens.comparison import compare, save
    from latentens.reporting import report

    chosen, models = find_methods(methods or []), [find_model(text) for text in model or []]
    _refuse_strays({"truth": truth, "gold": gold}, "--votes", votes)
    _refuse_strays(reading, "--votes or --data", votes or data)
    datasets = support.named_datasets(data or [], root, reading)
    datasets += [support.users_dataset(votes, truth, gold, reading)] if votes else []
    for dataset in datasets:
        _tell(support.understood(dataset.name, dataset.votes, dataset.labels))
    datasets += [support.simulated(*named, items, seed) for named in models]
    datasets = datasets or support.paper_datasets(items, seed)
    binary = all(dataset.votes.num_classes == 2 for dataset in datasets)
    chosen = chosen or find_methods(TWO_CLASS_METHODS if binary else MANY_CLASS_METHODS)
    key, cells = jax.random.key(seed), out / "cells" if out else None
    with support.connected(scheduler) as client:
        tree = compare(
            datasets, chosen, key=key, repetitions=repetitions, folder=cells, client=client, on_progress=progress
        )
    console.print(support.score_table(tree))
    if out:
        save(tree, out / "tree.nc")
        console.print(f"The comparison is in {out / 'tree.nc'}, the report in {report(tree, out)}", highlight=False)
    if failed := support.failures(tree):
        messages.print("\n".join(failed), markup=False)
        raise typer.Exit(1)


def _refuse_strays(options: Mapping[str, Any], owner: str, given: Any) -> None:
    """Refuse an option that belongs to another one that was not given."""
    strays = [name for name, value in options.items() if value]
    if strays and not given:
        raise LatentensError(f"--{strays[0]} belongs to {owner}, and there is none")


@app.command()
@reads_votes
def fit(
    method: Annotated[str, Argument(help="A method's name, perhaps with settings (see `latentens methods`).")],
    votes: VotesFile,
    out: Annotated[Path, Option(help="CSV file for the posterior of each item's label.")],
    gold: GoldFile = None,
    seed: Seed = 1,
    *,
    reading: "TableOptions",
) -> None:
    """Estimate the labels behind a file of votes.

    Examples:
        latentens fit DawidSkeneEM votes.csv --out posterior.csv

        latentens fit 'RBMStack(hidden=(3, 1))' votes.csv --out posterior.csv
    """
    from latentens.cli import support
    from latentens.cli.method_names import find_methods

    support.check_output(out)
    ((name, chosen),) = find_methods([method]).items()
    read = support.users_votes(votes, reading)
    _tell(support.understood(votes, read))
    known = support.known_labels(read, gold, reading) if gold else None
    with messages.status(f"Fitting {name}"):
        fitted = support.fit_votes(chosen(read), read, known, seed)
    support.write_posterior(fitted, read, out)
    for name in ("log_likelihood", "iterations", "converged", "warnings", "seconds"):
        if fitted.diagnostics.get(name) not in (None, []):
            console.print(f"{name.replace('_', ' ')}: {fitted.diagnostics[name]}", highlight=False, markup=False)
    console.print(f"posterior written to {out}", highlight=False)


@app.command()
@reads_votes
def check(
    votes: VotesFile,
    out: Annotated[Path | None, Option(help="CSV file for the p-value of every pair of voters.")] = None,
    level: Annotated[float, Option(min=0.0, max=1.0, help="Share of false alarms to be accepted.")] = 0.05,
    seed: Seed = 1,
    *,
    reading: "TableOptions",
) -> None:
    """Check, without any label, whether voters err independently given the label, and name those who do not.

    Example: latentens check votes.csv --out pairs.csv
    """
    import jax

    from latentens.cli import support
    from latentens.evaluation.independence import check_independence

    if out:
        support.check_output(out)
    read = support.users_votes(votes, reading)
    _tell(support.understood(votes, read))
    with messages.status("Checking whether voters err independently"):
        found = check_independence(read, key=jax.random.key(seed), level=level)
    console.print(found.summary, highlight=False, markup=False)
    if found.rejected:
        console.print(support.pair_table(found))
    if out:
        support.pair_frame(found).to_csv(out, index=False)
        console.print(f"{found.num_pairs} pairs of voters written to {out}", highlight=False)


@app.command()
def report(
    tree: Annotated[Path, Argument(help="A comparison that `latentens compare --out` has saved.")],
    out: Annotated[Path | None, Option(help="Folder for the report; by default the file's own.")] = None,
) -> None:
    """Write the report of a saved comparison: one HTML page, figures and tables. Nothing is fitted again.

    Example: latentens report results/tree.nc --out page
    """
    from latentens.comparison import load
    from latentens.reporting import report

    page = report(load(tree), out or tree.parent)
    console.print(f"The report is in {page}", highlight=False)


@app.command("simulate")
def simulate_command(
    model: Annotated[str, Argument(help="A model's name (see `latentens models`), or FILE.py:NAME.")],
    out: Annotated[Path, Option(help="CSV file for the votes.")],
    items: Items = SIMULATED_ITEMS,
    seed: Seed = 1,
) -> None:
    """Simulate votes, and write the truth and the exact posterior beside them.

    Parameters are those of the paper's experiment where the model has them, else a draw from the priors.

    Example: latentens simulate Tree --items 5000 --seed 3 --out tree.csv
    """
    from latentens.cli import support
    from latentens.cli.method_names import find_model

    support.check_output(out)
    name, found = find_model(model)
    with messages.status(f"Simulating {items:,} items of {name}"):
        words = support.write_simulation(support.simulated(name, found, items, seed), out)
    console.print(words)


@app.command("models")
def list_models() -> None:
    """List the generative models."""
    from latentens import models
    from latentens.datasets import PAPER_MODELS

    table = Table("model", "in the paper", "what it says", show_lines=True)
    paper_names = {type(model).__name__: name for name, model in PAPER_MODELS.items()}
    for name in models.__all__:
        table.add_row(name, paper_names.get(name, ""), (getattr(models, name).__doc__ or "").split("\n\n")[0])
    console.print(table)


@app.command("methods")
def list_methods() -> None:
    """List the methods and their settings."""
    from latentens import methods
    from latentens.cli.method_names import METHOD_NAMES

    table = Table("method", "settings", "what it is", show_lines=True)
    for name in METHOD_NAMES:
        found = getattr(methods, name)
        table.add_row(name, ", ".join(s.name for s in fields(found)), (found.__doc__ or "").split("\n\n")[0])
    console.print(table)
