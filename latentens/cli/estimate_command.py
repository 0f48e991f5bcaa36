"""The commands `latentens estimate` and `latentens next`: estimates from gold labels, and the items to label next."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from latentens.cli.options import Anchor, GoldFile, Seed, VotesFile
from latentens.cli.terminal import console, status, tell
from latentens.errors import LatentensError

if TYPE_CHECKING:
    from latentens.votes.labels import FileOptions

LEAST_WIDTH = 100
"""Columns of a terminal from which on the table of estimates has room for all its numbers next to the names."""

MethodName = Annotated[str, Option("--method", "-m", help="The method whose posterior predicts labels.")]


def estimate(
    votes: VotesFile,
    gold: Annotated[Path, Option(help="CSV or Parquet file of gold labels (item, gold) of a random sample of items.")],
    by: Annotated[str | None, Option(help="Column of segments, in the file of gold labels or in --about.")] = None,
    compare: Annotated[
        tuple[str, str] | None, Option(help="Two voters (difference of accuracies) or two classes (win rate).")
    ] = None,
    cluster: Annotated[str | None, Option(help="Column of clusters, such as the prompt of an item.")] = None,
    weights: Annotated[
        str | None, Option(help="Column of weights in the file of gold labels, one over the sampling probability.")
    ] = None,
    about: Annotated[
        Path | None, Option(help="CSV file with a row per item, which has the columns of --by and --cluster.")
    ] = None,
    method: MethodName = "DawidSkeneEM",
    folds: Annotated[int, Option(min=0, help="Folds of the gold labels if the method uses them (0: it does not).")] = 0,
    level: Annotated[float, Option(min=0.0, max=1.0, help="Coverage of the intervals.")] = 0.95,
    beyond: Annotated[bool, Option("--beyond", help="Estimate for a population of items like these.")] = False,
    half_width: Annotated[float | None, Option(help="Also print the number of labels for this half-width.")] = None,
    out: Annotated[Path | None, Option(help="CSV file for the table.")] = None,
    seed: Seed = 1,
    *,
    reading: "FileOptions",
) -> None:
    """Estimate prevalences, accuracies of voters and differences, with intervals that hold if the model is wrong.

    Gold labels of a random sample of the items are combined with the votes on all items. The intervals are valid
    however wrong the votes are, as long as the sample is random.

    Examples:
        latentens estimate votes.csv --gold gold.csv

        latentens estimate votes.csv --gold gold.csv --compare judge_a judge_b --by segment --about items.csv
    """
    import math

    import jax

    from latentens.cli import io, methods, printing
    from latentens.estimation import estimate, explain, labels_needed

    io.check_outputs(out, inputs=(votes, gold, about))
    (chosen,) = methods.find_methods([method]).values()
    read, known = io.read_files(votes, reading, gold)
    assert known is not None, "the option is required"
    item = reading.get("item")
    with status("Estimating"):
        table = estimate(
            read,
            known,
            key=jax.random.key(seed),
            method=chosen(read),
            folds=folds,
            compare=compare,
            level=level,
            population=math.inf if beyond else None,
            by=_column("by", by, about or gold, item),
            cluster=_column("cluster", cluster, about or gold, item),
            weights=_column("weights", weights, gold, item),
        )
    if half_width is not None:
        table["labels_needed"] = labels_needed(table, half_width, None if beyond else read.num_items)
    is_wide = console.width >= LEAST_WIDTH
    for shown in printing.estimates_tables(table, level, with_gold_only=is_wide):
        console.print(shown)
    for words in explain(table):
        tell(f"• {words}")
    if not is_wide:
        tell(
            f"• Estimates by gold labels alone are shown in terminals of at least {LEAST_WIDTH} columns, and in --out."
        )
    io.write_table(out, table, "estimates")


def next_command(
    votes: VotesFile,
    budget: Annotated[int, Option(min=1, help="Number of labels, or of votes, to ask for.")],
    out: Annotated[Path, Option(help="CSV file for the items to label, with their sampling probabilities.")],
    purpose: Annotated[
        Literal["prevalence", "accuracy", "labels", "orientation", "votes"],
        Option("--for", help="Purpose of the labels; votes: which voter to ask about which item."),
    ] = "prevalence",
    gold: GoldFile = None,
    anchor: Anchor = None,
    method: MethodName = "DawidSkeneEM",
    floor: Annotated[
        float, Option(min=0.0, max=1.0, help="Share of the probability that is spread evenly; 1: simple random sample.")
    ] = 0.5,
    seed: Seed = 1,
    *,
    reading: "FileOptions",
) -> None:
    """Choose which items to label next, or whom to ask for another vote.

    Items with an uncertain label are drawn with a larger probability, which is written with them: label them, and pass
    the column `weight` to `latentens estimate --weights weight`.

    Examples:
        latentens next votes.csv --budget 50 --out ask.csv

        latentens next votes.csv --budget 200 --for votes --out ask.csv
    """
    import jax

    from latentens.cli import io, methods
    from latentens.estimation import next_labels, next_votes

    io.check_outputs(out, inputs=(votes, gold))
    (chosen,) = methods.find_methods([method]).values()
    read, known = io.read_files(votes, reading, gold, anchor)
    with status("Choosing"):
        fit = chosen(read).fit(read, key=jax.random.key(seed))
        if purpose == "votes":
            table = next_votes(fit, budget)
            words = f"{len(table)} votes to ask for"
        else:
            table = next_labels(fit, budget, key=jax.random.key(seed + 1), for_=purpose, gold=known, floor=floor)
            worth = table.attrs["worth"]
            words = f"{budget} items to label, worth {worth:.0f} labels of random items if the posterior is right,"
    io.write_table(out, table, words)


def _column(name: str, column: str | None, path: Path, item: str | None) -> Mapping[Any, Any] | None:
    """A column of a file by the name of the item; None if the option was not given."""
    from latentens.votes.labels import Reading
    from latentens.votes.tables import naming, open_table

    if column is None:
        return None
    table = open_table(path)
    item = item or next(found for found in ("item", "id", *table.names) if found in table.names)
    for wanted in (column, item):
        if wanted not in table.names:
            listed = ", ".join(table.names)
            raise LatentensError(f"{path} has no column {wanted!r}, which --{name} needs; it has {listed}")
    with naming(path):
        items, values = table.columns([item, column], Reading())
    found: dict[Any, Any] = {}
    for place, value in zip(items.codes.tolist(), values.codes.tolist(), strict=True):
        if min(place, value) >= 0 and found.setdefault(items.names[place], values.names[value]) != values.names[value]:
            raise LatentensError(f"item {items.names[place]} has more than one {column} in {path}")
    return found
