"""The command `latentens`; each command imports what it needs when it runs, so that help appears at once."""

import shlex
import sys
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from latentens.cli import options as shared
from latentens.cli.estimate_command import estimate, next_command
from latentens.cli.options import as_option, reads_votes
from latentens.cli.terminal import console, messages, report_fits_on_interrupt, say, status, tell, warnings_as_sentences
from latentens.errors import Keyword, LatentensError, in_one_line, users_place
from latentens.runtime.compiled_cache import keep_compiled

if TYPE_CHECKING:
    from xarray import DataTree

    from latentens.datasets import Dataset
    from latentens.programs.model import GenerativeModel
    from latentens.votes.labels import FileOptions

app = typer.Typer(
    help="Unsupervised ensemble learning: compare methods that infer labels from votes, next to the exact posterior.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def run() -> None:
    """Run the command; invalid input prints a one-line message and exits with code 2."""
    with warnings_as_sentences():
        try:
            app()
        except LatentensError as error:
            say(error)
            sys.exit(2)
        except OSError as error:
            say(f"{error.filename}: {error.strerror}" if error.filename else error)
            sys.exit(2)
        except Exception as error:
            if not users_place(error):
                raise
            say(in_one_line(error))
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
            help="Folder in which compiled programs are kept for later runs (default: the user's cache; off: none).",
        ),
    ] = None,
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options common to all commands."""
    del version  # handled by its callback
    keep_compiled(cache)


@app.command()
@reads_votes
def compare(
    votes: Annotated[Path | None, Option(help="CSV or Parquet file of your votes.")] = None,
    truth: Annotated[Path | None, Option(help="CSV or Parquet file of true labels (item, truth) for --votes.")] = None,
    gold: shared.GoldFile = None,
    anchor: shared.Anchor = None,
    data: Annotated[list[str] | None, Option(help="A named data set: Tree/1, S1, …. May be repeated.")] = None,
    root: Annotated[Path | None, Option(help="Folder with the files of named data sets.")] = None,
    model: Annotated[list[str] | None, Option(help="A model to simulate data from. May be repeated.")] = None,
    methods: shared.MethodNames = None,
    items: shared.Items = 10_000,
    seed: shared.Seed = 1,
    repetitions: Annotated[int, Option(min=1, help="Number of fits of each method, each with its own seed.")] = 1,
    folds: Annotated[
        int, Option(min=0, help="Number of cross-validation folds to rank models by held-out votes (0: use AIC).")
    ] = 0,
    checks: Annotated[
        bool, Option("--checks", help="Run predictive checks and estimate the effective number of voters.")
    ] = False,
    gold_folds: Annotated[int, Option(min=2, help="Number of cross-validation folds of the gold labels.")] = 5,
    out: Annotated[Path | None, Option(help="Folder for tree.nc, the report and finished fits.")] = None,
    scheduler: shared.Scheduler = None,
    workers: shared.Workers = None,
    *,
    reading: "FileOptions",
) -> None:
    """Compare methods with each other, with the truth, and with the exact posterior where it is known.

    Every method uses the gold labels. Without --truth they also score the methods: each gold label is predicted by a
    fit that has not seen it. With --truth, the other items are scored.

    Without data, the paper's four simulated sets are compared, with results in latentens-results unless --out is given.
    With --out, an interrupted comparison resumes where it stopped. The exit code is 1 if a method failed.

    Examples:
        latentens compare

        latentens compare --votes my.csv --truth labels.csv -m DawidSkeneEM -m 'Nuts(DawidSkene)'

        latentens compare --votes my.csv --gold known.csv -m DawidSkeneEM -m RBMStack

        latentens compare --model Tree --model my_model.py:MyModel --items 5000
    """
    showcase = not (votes or data or model)
    out = Path("latentens-results") if showcase and out is None else out
    progress = report_fits_on_interrupt(out)
    import jax

    from latentens.checks import signal_summary
    from latentens.cli import io, printing
    from latentens.cli.methods import default_methods, find_methods, find_model
    from latentens.comparison import compare
    from latentens.datasets import PAPER_MODELS, load, simulate_paper

    chosen, models = find_methods(methods or []), [find_model(text) for text in model or []]
    io.check_report(out)
    io.refuse_without("--votes", votes, {"truth": truth, "gold": gold, "anchor": anchor})
    io.refuse_without("--votes", votes, {"from": reading.get("tool"), "only": reading.get("only")})
    io.refuse_without("--votes or --data", votes or data, reading)
    options: Any = {name: value for name, value in reading.items() if name not in ("tool", "only")}
    datasets = [load(name, root, **options) for name in data or []]
    datasets += [io.read_users_dataset(votes, truth, gold, anchor, reading)] if votes else []
    for dataset in datasets:
        tell(io.described(dataset.name, dataset.votes, dataset.labels))
        messages.print(f"{dataset.name}: {signal_summary(dataset.votes, key=jax.random.key(seed))}")
    datasets += [_simulated(*named, items, seed) for named in models]
    datasets = datasets or [simulate_paper(family, seed, items) for family in PAPER_MODELS]
    key = jax.random.key(seed)
    with io.connected(scheduler) as client:
        tree = compare(
            datasets,
            chosen or default_methods(datasets, showcase),
            key=key,
            repetitions=repetitions,
            folds=folds,
            checks=checks,
            gold_folds=gold_folds,
            folder=out / "cells" if out else None,
            client=client,
            workers=io.fits_at_a_time(workers, (dataset.votes for dataset in datasets)),
            on_progress=progress,
        )
    printing.add_evidence(tree, datasets, key, independence=out is not None, worth=checks)
    failures = printing.print_comparison(tree)
    _save(tree, out, "comparison")
    if failures:
        raise typer.Exit(1)


def _simulated(name: str, model: "GenerativeModel", items: int, seed: int) -> "Dataset":
    """Items of a model, with its example parameters if it has some, else with a draw from its priors."""
    import jax

    from latentens.datasets import simulate

    params_key, items_key = jax.random.split(jax.random.key(seed))
    params = model.example_params(params_key)
    return replace(simulate(model, items, key=items_key, params=params), name=name)


def _save(tree: "DataTree", out: Path | None, what: str) -> None:
    """Write a comparison and its report into a folder, if there is one."""
    from latentens.cli.io import write_files
    from latentens.comparison import save_comparison

    if out:
        from latentens.reporting import report

        write_files({out / "tree.nc": partial(save_comparison, tree)})
        tell(f"The {what} is in {out / 'tree.nc'}, the report in {report(tree, out)}")


class FitCommand(TyperCommand):
    """The command whose first argument may be left out, as its usage says."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the name of the command."""
        options, *_ = super().collect_usage_pieces(ctx)
        return [options, "[METHOD]", "VOTES"]


@app.command(cls=FitCommand)
@reads_votes
def fit(
    method: Annotated[
        str,
        Argument(
            metavar="METHOD",
            show_default=False,
            help="A method, optionally with settings (see `latentens methods`); by default Consensus, or for ordered "
            "votes MaximumLikelihood(GradedResponse).",
        ),
    ] = "",
    votes: Annotated[
        Path | None,
        Argument(metavar="VOTES", help="CSV or Parquet file: columns item, voter, vote, or one column per voter."),
    ] = None,
    *,
    out: Annotated[Path, Option(help="CSV file for the label of each item, its confidence and all probabilities.")],
    gold: shared.GoldFile = None,
    anchor: shared.Anchor = None,
    voters: Annotated[Path | None, Option(help="CSV file for the quality of each voter, with intervals.")] = None,
    seed: shared.Seed = 1,
    reading: "FileOptions",
) -> None:
    """Estimate the labels behind a file of votes.

    Examples:
        latentens fit votes.csv --out labels.csv

        latentens fit DawidSkeneEM votes.csv --out labels.csv --voters voters.csv

        latentens fit 'RBMStack(hidden=(3, 1))' votes.csv --out labels.csv
    """
    import jax

    from latentens.checks import signal_summary
    from latentens.cli import io, methods
    from latentens.votes.labels import listed

    if not method:
        raise LatentensError("fit needs a file of votes")
    if votes is None:  # the only argument is the file
        method, votes = methods.GRADED if reading.get("ordered") else "Consensus", Path(method)
    io.check_outputs(out, voters, inputs=(votes, gold))
    ((name, chosen),) = methods.find_methods([method]).items()
    read, known = io.read_files(votes, reading, gold, anchor)
    with status(f"Fitting {name}"):
        fitted = chosen(read).fit(read, key=jax.random.key(seed), gold=known)
        quality = fitted.voters
    io.write_files({out: fitted.to_frame(), voters: quality})
    messages.print(signal_summary(read, key=jax.random.key(seed)))
    tell(f"method: {name}")
    found = fitted.diagnostics
    for key in ("log_likelihood", "iterations", "converged", "fallback"):
        if (value := found.get(key)) is not None:
            tell(f"{key.replace('_', ' ')}: {f'{value:,.2f}' if isinstance(value, float) else value}")
    if (seconds := found.seconds) is not None:
        tell(f"fitted in {seconds:,.1f} s" if seconds >= 0.05 else "fitted in less than 0.1 s")
    for kind, sentences in (("warning", found.all_warnings), ("note", found.notes)):
        for words in sentences:
            tell(f"{kind}: {words}")
    for flag in dict.fromkeys(str(flag) for flag in quality["flag"] if flag):
        tell(f"{flag[0].upper()}{flag[1:]}: {listed(quality['voter'][quality['flag'] == flag])}")
    tell(f"labels written to {out}")
    if voters:
        tell(f"voters written to {voters}")


@app.command()
@reads_votes
def check(
    votes: shared.VotesFile,
    out: Annotated[Path | None, Option(help="CSV file for the p-value of every pair of voters.")] = None,
    level: Annotated[float, Option(min=0.0, max=1.0, help="Significance level.")] = 0.05,
    worth: Annotated[bool, Option("--worth", help="Estimate the effective number of independent voters.")] = False,
    gold: Annotated[
        Path | None,
        Option(help="CSV or Parquet file of gold labels (item, gold), to measure each voter's contribution."),
    ] = None,
    voters: Annotated[
        Path | None, Option(help="CSV file for the contribution of each voter, measured with --gold.")
    ] = None,
    seed: shared.Seed = 1,
    *,
    reading: "FileOptions",
) -> None:
    """Check, without labels, whether voters err independently given the label, and list the pairs that do not.

    With gold labels, also estimate the effective number of independent voters and the contribution of each voter.

    Examples:
        latentens check votes.csv --worth --out pairs.csv

        latentens check votes.csv --gold gold.csv --voters worth.csv
    """
    import jax

    from latentens.checks import agreement, check_absence, check_independence, effective_voters, signal_summary
    from latentens.cli import io, printing

    io.check_outputs(out, voters, inputs=(votes, gold))
    io.refuse_without("--gold", gold, {"voters": voters})
    key, (read, known) = jax.random.key(seed), io.read_files(votes, reading, gold)
    with status("Checking whether voters err independently"):
        found = check_independence(read, key=key, level=level)
    console.print(signal_summary(read, key=key))
    console.print(printing.agreement_table(agreement(read, key=key, max_paired=0)))
    console.print(found.summary)
    if found.rejected:
        console.print(printing.pair_table(found))
    if (absence := check_absence(read, level=level)) is not None:
        console.print(absence.summary)
    if worth:
        with status("Estimating the effective number of voters"):
            try:
                words = effective_voters(read, key=key, resamples=20).summary
            except LatentensError as error:
                words = f"The effective number of voters could not be estimated: {error}."
        console.print(words)
    if known is not None:
        from latentens.estimation import effective_judges, judge_worth

        with status("Fitting the votes without each voter"):
            panel, each = effective_judges(read, known, key=key), judge_worth(read, known, key=key)
        console.print(panel.summary)
        console.print(printing.worth_table(each))
        io.write_table(voters, each, f"contributions of {len(each)} voters")
    io.write_table(out, printing.pair_frame(found), f"{found.num_pairs} pairs of voters")


@app.command()
@reads_votes
def recommend(
    votes: shared.VotesFile,
    out: Annotated[Path | None, Option(help="Folder for tree.nc, the report and finished fits.")] = None,
    gold: shared.GoldFile = None,
    anchor: shared.Anchor = None,
    quick: Annotated[bool, Option("--quick", help="One twin, fewer items, cheap models and methods only.")] = False,
    twins: Annotated[int, Option(min=1, help="Number of simulated twins of each plausible model.")] = 5,
    methods: shared.MethodNames = None,
    seed: shared.Seed = 1,
    scheduler: shared.Scheduler = None,
    workers: shared.Workers = None,
    *,
    reading: "FileOptions",
) -> None:
    """Recommend a method for votes without labels, and say what to expect of it.

    Candidate models are fitted to the votes. From those that the votes do not rule out, twins of the data are
    simulated, whose labels are known, and every method is scored on them. Gold labels come first: methods use them, and
    each is predicted by a fit that has not seen it. If no model describes the votes and there are no gold labels, no
    accuracy is stated.

    Examples:
        latentens recommend votes.csv --out results

        latentens recommend votes.csv --gold gold.csv --quick
    """
    progress = report_fits_on_interrupt(out)
    import jax

    from latentens.cli import io, printing
    from latentens.cli.methods import find_methods
    from latentens.recommendation import recommend

    chosen = find_methods(methods or [])
    io.check_report(out)
    read, known = io.read_files(votes, reading, gold, anchor)
    with io.connected(scheduler) as client:
        tree = recommend(
            read,
            chosen or None,
            key=jax.random.key(seed),
            twins=twins,
            gold=known,
            quick=quick,
            folder=out / "cells" if out else None,
            client=client,
            workers=io.fits_at_a_time(workers, [read]),
            on_progress=progress,
        )
    printing.print_recommendation(tree)
    if quick and known is not None and not chosen and tree.attrs["recommended"]:
        tell("• Not tried: Consensus, whose fits to folds of the gold labels are slow; omit --quick to try it.")
    print_next_command(tree.attrs["recommended"], votes, gold, reading)
    _save(tree, out, "recommendation")


def print_next_command(method: str, votes: Path, gold: Path | None, reading: "FileOptions") -> None:
    """Print the command that labels the votes with the recommended method, if the method can be written down."""
    from latentens.cli.methods import find_methods

    try:
        find_methods([method])
    except LatentensError:  # nothing is recommended, or the user made up the name
        return
    options = [as_option(Keyword(name, value)) for name, value in reading.items()]
    known = ["--gold", shlex.quote(str(gold))] if gold else []
    words = ["latentens fit", shlex.quote(method), shlex.quote(str(votes)), *options, *known]
    tell(f"\nTo label the votes with it:\n{' '.join(words)} --out labels.csv")


app.command()(reads_votes(estimate))
app.command("next")(reads_votes(next_command))


@app.command()
def report(
    tree: Annotated[Path, Argument(help="A comparison saved by `latentens compare --out`.")],
    out: Annotated[Path | None, Option(help="Folder for the report (default: the folder of the file).")] = None,
) -> None:
    """Write the report of a saved comparison: one HTML page, figures and tables. Its fits are not repeated.

    Example: latentens report results/tree.nc --out page
    """
    from latentens.cli.io import check_folder
    from latentens.comparison import load_comparison
    from latentens.reporting import report

    folder = out or tree.parent
    loaded = load_comparison(tree)
    check_folder(folder)
    tell(f"The report is in {report(loaded, folder)}")


@app.command("simulate")
def simulate_command(
    model: Annotated[str, Argument(help="A model's name (see `latentens models`), or FILE.py:NAME.")],
    out: Annotated[Path, Option(help="CSV file for the votes.")],
    items: shared.Items = 10_000,
    seed: shared.Seed = 1,
) -> None:
    """Simulate votes, and write the truth and the exact posterior next to them.

    Parameters are those of the paper's experiment if the model has them, else a draw from the priors.

    Example: latentens simulate Tree --items 5000 --seed 3 --out tree.csv
    """
    from latentens.cli import io, methods

    io.check_outputs(out, inputs=())
    name, found = methods.find_model(model)
    with status(f"Simulating {items:,} items of {name}"):
        dataset = _simulated(name, found, items, seed)
    truth, params = io.write_simulation(dataset, out)
    tell(f"{dataset.votes}\nwritten to {out}, the truth to {truth}, the parameters to {params}")


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
