"""What the commands print that needs no label: which model predicts votes best, and what voters are worth."""

from collections.abc import Iterator
from typing import Any

import jax
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from latentens.errors import LatentensError
from latentens.evaluation.effective_voters import effective_voters
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
