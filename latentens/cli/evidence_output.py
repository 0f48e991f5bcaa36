"""What the commands print that needs no label: which model predicts votes best, and what voters are worth."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from latentens.cli.terminal import messages, status, tell
from latentens.comparison import add_worth, data_trees
from latentens.comparison.dependence import WORTH
from latentens.datasets import Dataset
from latentens.errors import LatentensError, VotesError
from latentens.evaluation.effective_voters import effective_voters
from latentens.evaluation.signal import check_signal
from latentens.reporting.prediction_part import WARNING, ranking_frame
from latentens.reporting.view import views
from latentens.votes import Votes

RESAMPLES = 20
"""Bootstrap samples behind the interval that the command prints."""


def prediction_tables(tree: Any) -> Iterator[RenderableType]:
    """For each data set the models in the order of how well they predict its votes, and once what that means."""
    frames = {view.name: frame for view in views(tree) if (frame := ranking_frame(view)) is not None}
    for name, frame in frames.items():
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"Which model predicts the votes of {name} best?")
        table.add_column("model", overflow="fold")
        for heading in ("log predictive\ndensity", "behind\nthe best", "standard\nerror"):
            table.add_column(heading, justify="right")
        table.add_column("judged by")
        for model, row in frame.iterrows():
            figures = (f"{value:,.1f}" for value in (row["elpd"], abs(row["difference"]), row["difference_error"]))
            table.add_row(str(model), *figures, str(row["by"]))
        yield table
    if frames:
        yield WARNING


def worth_words(votes: Votes, seed: int) -> str:
    """How many independent voters these are worth, in a sentence."""
    try:
        return effective_voters(votes, key=jax.random.key(seed), resamples=RESAMPLES).summary
    except LatentensError as error:
        return f"What the voters are worth cannot be told: {error}."


def record_worth(tree: Any, datasets: Iterable[Dataset], key: jax.Array) -> None:
    """Put into a comparison how many independent voters those of unknown origin are worth, and print it."""
    real = [dataset for dataset in datasets if dataset.model is None]
    with status("Asking what the voters are worth"):
        add_worth(tree, real, key=key, resamples=RESAMPLES)
    nodes = data_trees(tree)
    for dataset in real:
        tell(f"{dataset.name}: {nodes[dataset.name][WORTH].attrs['summary']}")


def signal_words(votes: Votes, seed: int) -> str:
    """Whether voters agree more than by chance, in one sentence or two."""
    try:
        return check_signal(votes, key=jax.random.key(seed)).summary
    except VotesError as error:  # nobody can agree with anybody
        return f"Whether there is a signal cannot be told: {error}."


def tell_signals(datasets: Iterable[Dataset], seed: int) -> None:
    """Say on standard error of each data set whether its voters agree more than by chance."""
    for dataset in datasets:
        messages.print(f"{dataset.name}: {signal_words(dataset.votes, seed)}")
