"""The command `latentens recommend`: which method to trust on votes without labels."""

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from typer import Option

from latentens.cli.option_types import Anchor, GoldFile, MethodNames, Seed, VotesFile, Workers
from latentens.cli.outputs import check_folder, write_whole
from latentens.cli.reading_options import written_options
from latentens.cli.terminal import console, end_if_elsewhere, tell, tell_of_fits
from latentens.errors import LatentensError

if TYPE_CHECKING:
    from xarray import DataTree

    from latentens.votes.labels import TableOptions


def recommend(
    votes: VotesFile,
    out: Annotated[Path | None, Option(help="Folder for tree.nc, the report and finished fits.")] = None,
    gold: GoldFile = None,
    anchor: Anchor = None,
    quick: Annotated[bool, Option("--quick", help="One twin, fewer items, cheap programs and methods.")] = False,
    twins: Annotated[int, Option(min=1, help="Twins of each plausible model.")] = 5,
    methods: MethodNames = None,
    seed: Seed = 1,
    scheduler: Annotated[str | None, Option(help="Dask scheduler, such as tcp://host:8786.")] = None,
    workers: Workers = None,
    *,
    reading: "TableOptions",
) -> None:
    """Say which method to trust on votes without labels, and what to expect of it.

    Programs of how votes come about are fitted to the votes. From those that the votes do not rule out, twins of the
    data are drawn, whose labels are known, and every method is scored on them. Gold labels come first: methods use
    them, and each is predicted by a fit that has not seen it. Where no program describes the votes and there are no
    gold labels, no accuracy is stated.

    Examples:
        latentens recommend votes.csv --out results

        latentens recommend votes.csv --gold gold.csv --quick
    """
    progress = tell_of_fits(out)
    import jax

    from latentens.cli import support
    from latentens.cli.methods import find_methods
    from latentens.comparison import save
    from latentens.recommendation import recommend
    from latentens.reporting import report

    chosen = find_methods(methods or [])
    if out:
        check_folder(out)
    read = support.users_votes(votes, reading, anchor or ())
    tell(support.understood(votes, read))
    known = support.by_name(read, support.known_labels(read, gold, reading)) if gold else None
    with support.connected(scheduler) as client:
        kept = {"folder": out / "cells" if out else None, "client": client, "on_progress": progress}
        kept["workers"] = support.fits_at_a_time(workers, [read])
        key = jax.random.key(seed)
        tree = recommend(read, chosen or None, key=key, twins=twins, gold=known, quick=quick, **kept)
    _print(tree)
    _tell_next(tree.attrs["recommended"], votes, gold, reading)
    if out:
        place = write_whole(out / "tree.nc", partial(save, tree))
        tell(f"The recommendation is in {place}, the report in {report(tree, place.parent)}")
        end_if_elsewhere(place, out / "tree.nc")


def _print(tree: "DataTree") -> None:
    """The answer, tables of the methods on gold labels and under each model, and the reasons."""
    from latentens.cli.printing import gold_tables
    from latentens.recommendation.recommend import plausible_models
    from latentens.reporting.recommendation_part import briefly
    from latentens.reporting.view import with_short_names

    found = tree["votes/recommendation"].to_dataset()
    answer, *reasons = json.loads(found.attrs["sentences"])
    short: dict[str, str] = {}
    if "model" in found.dims:
        found, short = briefly(found)
    tell(f"\n{with_short_names(answer, short)}")
    for table in gold_tables(tree, short, found.attrs["recommended"]):
        console.print(table)
    if "model" in found.dims and plausible_models(found):
        console.print(_table(found))
    for words in reasons:
        tell(f"• {with_short_names(words, short)}")


def _tell_next(method: str, votes: Path, gold: Path | None, reading: "TableOptions") -> None:
    """The command that labels the votes with the recommended method, where it can be written down."""
    from latentens.cli.methods import find_method

    try:
        find_method(method)
    except LatentensError:  # nothing is recommended, or it goes by a name that the user made up
        return
    known = ["--gold", shlex.quote(str(gold))] if gold else []
    words = ["latentens fit", shlex.quote(method), shlex.quote(str(votes)), *written_options(reading), *known]
    tell(f"\nTo label the votes with it:\n{' '.join(words)} --out labels.csv")


def _table(found: Any) -> Table:
    """Expected balanced accuracy with its interval, and log score, of each method in each plausible model."""
    from latentens.recommendation.recommend import method_rows, plausible_models

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="expected balanced accuracy in % (90 % interval), log score")
    table.add_column("method", overflow="fold")
    for model in plausible_models(found):
        table.add_column(f"if {model}", justify="right")
    for method, cells in method_rows(found):
        marked = f"{method} ←" if method == found.attrs["recommended"] else method
        table.add_row(marked, *(f"{cell.accuracy} ({cell.interval}), {cell.log_score}" for cell in cells))
    return table
