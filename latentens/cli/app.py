"""The command `latentens`; what a command needs is imported when it runs, so that help comes at once."""

import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from latentens.cli.option_types import Anchor, GoldFile, Items, MethodNames, Seed, VotesFile, Workers
from latentens.cli.outputs import check_file, check_folder, write_whole
from latentens.cli.reading_options import reads_votes
from latentens.cli.recommend_command import recommend
from latentens.cli.terminal import (
    console,
    end_if_elsewhere,
    messages,
    say,
    status,
    tell,
    tell_of_fits,
    warnings_as_sentences,
)
from latentens.errors import LatentensError
from latentens.runtime.compiled_cache import keep_compiled

if TYPE_CHECKING:
    from xarray import DataTree

    from latentens.votes.labels import TableOptions

app = typer.Typer(
    help="Unsupervised ensemble learning: many voters, no labels, every method next to the exact Bayes posterior.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

SIMULATED_ITEMS = 10_000
SHOWCASE = Path("latentens-results")


def run() -> None:
    """Run the command that was typed; a user's error ends it with one sentence and exit code 2."""
    with warnings_as_sentences():
        try:
            app()
        except LatentensError as error:
            say(error)
            sys.exit(2)
        except OSError as error:
            say(f"{error.filename}: {error.strerror}" if error.filename else error)
            sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"latentens {metadata.version('latentens')}")
        raise typer.Exit


@app.callback()
def options(
    cache: Annotated[
        Path | None,
        Option(
            envvar="LATENTENS_CACHE",
            help="Folder in which compiled programs are kept for later runs, by default the user's; off keeps none.",
        ),
    ] = None,
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What holds for every command."""
    del version  # its callback has done everything
    keep_compiled(cache)


@app.command()
@reads_votes
def compare(
    votes: Annotated[Path | None, Option(help="CSV or Parquet file of your votes.")] = None,
    truth: Annotated[Path | None, Option(help="CSV or Parquet file of true labels (item, truth) for --votes.")] = None,
    gold: GoldFile = None,
    anchor: Anchor = None,
    data: Annotated[list[str] | None, Option(help="A named set: Tree/1, S1, …. May be repeated.")] = None,
    root: Annotated[Path | None, Option(help="Folder of the named sets' files.")] = None,
    model: Annotated[list[str] | None, Option(help="A model to simulate from. May be repeated.")] = None,
    methods: MethodNames = None,
    items: Items = SIMULATED_ITEMS,
    seed: Seed = 1,
    repetitions: Annotated[int, Option(min=1, help="Fits of each method, with other keys.")] = 1,
    folds: Annotated[int, Option(min=0, help="Parts of the items to predict from the others, in as many fits.")] = 0,
    checks: Annotated[
        bool, Option("--checks", help="Ask if models reproduce the votes, and what voters are worth.")
    ] = False,
    gold_folds: Annotated[
        int, Option(min=2, help="Parts of the gold labels; each is predicted by a fit that has seen the others only.")
    ] = 5,
    out: Annotated[Path | None, Option(help="Folder for tree.nc, the report and finished cells.")] = None,
    scheduler: Annotated[str | None, Option(help="Dask scheduler, such as tcp://host:8786.")] = None,
    workers: Workers = None,
    *,
    reading: "TableOptions",
) -> None:
    """Compare methods with each other, with the truth, and with the exact Bayes posterior where it is known.

    Gold labels are used by every method. Without --truth they also score the methods: each gold label is predicted by a
    fit that has seen the others only. With --truth, the other items are scored.

    Without data of yours: the paper's four simulated sets, with results in latentens-results unless --out says else.
    With --out, an interrupted comparison resumes where it stopped. Exit code 1 says that some method failed; the others
    are there.

    Examples:
        latentens compare

        latentens compare --votes my.csv --truth labels.csv -m DawidSkeneEM -m 'Nuts(DawidSkene)'

        latentens compare --votes my.csv --gold known.csv -m DawidSkeneEM -m RBMStack

        latentens compare --model Tree --model my_model.py:MyModel --items 5000
    """
    showcase = not (votes or data or model)
    out = SHOWCASE if showcase and out is None else out
    progress = tell_of_fits(out)
    import jax

    from latentens.cli import printing as comparison_output
    from latentens.cli import printing as evidence_output
    from latentens.cli import support
    from latentens.cli.methods import find_methods, find_model
    from latentens.comparison import compare

    chosen, models = find_methods(methods or []), [find_model(text) for text in model or []]
    if out:
        check_folder(out)
    support.refuse_strays({"truth": truth, "gold": gold, "anchor": anchor}, "--votes", votes)
    support.refuse_strays(reading, "--votes or --data", votes or data)
    datasets = support.named_datasets(data or [], root, reading)
    datasets += [support.users_dataset(votes, truth, gold, anchor or (), reading)] if votes else []
    for dataset in datasets:
        tell(support.understood(dataset.name, dataset.votes, dataset.labels))
    evidence_output.tell_signals(datasets, seed)
    datasets += [support.simulated(*named, items, seed) for named in models]
    datasets = datasets or comparison_output.paper_datasets(items, seed)
    chosen = chosen or comparison_output.default_methods(datasets, showcase)
    key, cells = jax.random.key(seed), out / "cells" if out else None
    workers = support.fits_at_a_time(workers, (dataset.votes for dataset in datasets))
    started = partial(compare, datasets, chosen, key=key, repetitions=repetitions, folds=folds, checks=checks)
    started = partial(started, gold_folds=gold_folds)
    with support.connected(scheduler) as client:
        tree = started(folder=cells, client=client, workers=workers, on_progress=progress)
    comparison_output.record_independence(tree, datasets if out else [], key)
    comparison_output.record_worth(tree, datasets if checks else [], key)
    _hand_over(tree, out)


def _hand_over(tree: "DataTree", out: Path | None) -> None:
    """Print a comparison's scores and failures, write it and its report, and exit with 1 where a method failed."""
    from latentens.cli.printing import failures, gold_tables, label_doubts, prediction_tables, score_table
    from latentens.comparison import save
    from latentens.reporting import report

    for printed in (score_table(tree), *gold_tables(tree), *prediction_tables(tree)):
        if printed is not None:
            console.print(printed)
    failed = failures(tree)
    for words in (*label_doubts(tree), *failed):
        messages.print(words)
    if out:
        place = write_whole(out / "tree.nc", partial(save, tree))
        tell(f"The comparison is in {place}, the report in {report(tree, place.parent)}")
        end_if_elsewhere(place, out / "tree.nc")
    if failed:
        raise typer.Exit(1)


@app.command()
@reads_votes
def fit(
    method: Annotated[
        str,
        Argument(
            metavar="[METHOD]",
            help="A method's name, perhaps with settings (see `latentens methods`); Consensus if there is none.",
        ),
    ],
    votes: Annotated[
        Path | None,
        Argument(metavar="VOTES", help="CSV or Parquet file: columns item, voter, vote, or one column per voter."),
    ] = None,
    *,
    out: Annotated[Path, Option(help="CSV file for each item's label, its confidence and all probabilities.")],
    gold: GoldFile = None,
    anchor: Anchor = None,
    voters: Annotated[Path | None, Option(help="CSV file for the quality of each voter, with intervals.")] = None,
    seed: Seed = 1,
    reading: "TableOptions",
) -> None:
    """Estimate the labels behind a file of votes.

    Examples:
        latentens fit votes.csv --out labels.csv

        latentens fit DawidSkeneEM votes.csv --out labels.csv --voters voters.csv

        latentens fit 'RBMStack(hidden=(3, 1))' votes.csv --out labels.csv
    """
    import jax

    from latentens.cli import support
    from latentens.cli.methods import find_methods
    from latentens.methods.base import fit_known

    if votes is None:  # the only argument is the file
        method, votes = "Consensus", Path(method)
    for file in filter(None, (out, voters)):
        check_file(file)
    ((name, chosen),) = find_methods([method]).items()
    read = support.users_votes(votes, reading, anchor or ())
    tell(support.understood(votes, read))
    known = support.known_labels(read, gold, reading) if gold else None
    with status(f"Fitting {name}"):
        fitted = fit_known(chosen(read), read, jax.random.key(seed), known)
    support.hand_over_fit(fitted, read, seed, out, voters)


@app.command()
@reads_votes
def check(
    votes: VotesFile,
    out: Annotated[Path | None, Option(help="CSV file for the p-value of every pair of voters.")] = None,
    level: Annotated[float, Option(min=0.0, max=1.0, help="Share of false alarms to be accepted.")] = 0.05,
    worth: Annotated[bool, Option("--worth", help="Say how many independent voters these are worth.")] = False,
    seed: Seed = 1,
    *,
    reading: "TableOptions",
) -> None:
    """Check, without any label, whether voters err independently given the label, and name those who do not.

    Example: latentens check votes.csv --worth --out pairs.csv
    """
    import jax

    from latentens.checks.independence import check_independence
    from latentens.checks.signal import signal_summary
    from latentens.cli import printing as evidence_output
    from latentens.cli import support

    if out:
        check_file(out)
    read = support.users_votes(votes, reading)
    tell(support.understood(votes, read))
    with status("Checking whether voters err independently"):
        found = check_independence(read, key=jax.random.key(seed), level=level)
    for words in (signal_summary(read, key=jax.random.key(seed)), found.summary):
        console.print(words)
    if found.rejected:
        console.print(evidence_output.pair_table(found))
    if worth:
        with status("Asking what the voters are worth"):
            console.print(evidence_output.worth_words(read, seed))
    if out:
        place = support.write_frame(evidence_output.pair_frame(found), out)
        tell(f"{found.num_pairs} pairs of voters written to {place}")
        end_if_elsewhere(place, out)


app.command()(reads_votes(recommend))


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

    folder = out or tree.parent
    loaded = load(tree)
    check_folder(folder)
    tell(f"The report is in {report(loaded, folder)}")


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
    from latentens.cli.methods import find_model

    check_file(out)
    name, found = find_model(model)
    with status(f"Simulating {items:,} items of {name}"):
        dataset = support.simulated(name, found, items, seed)
    place, truth, params = support.write_simulation(dataset, out)
    tell(f"{dataset.votes}\nwritten to {place}, the truth to {truth}, the parameters to {params}")
    end_if_elsewhere(place, out)


@app.command("models")
def list_models() -> None:
    """List the generative models."""
    from latentens.cli.methods import model_table

    console.print(model_table())


@app.command("methods")
def list_methods() -> None:
    """List the methods and their settings."""
    from latentens.cli.methods import method_table

    console.print(method_table())
