"""What the commands print about votes alone: signal, pairs of voters that stand out, and what voters are worth."""

from collections.abc import Iterable

import jax
import numpy as np
import pandas as pd
from rich.table import Table

from latentens.cli.terminal import messages
from latentens.datasets import Dataset
from latentens.errors import LatentensError
from latentens.evaluation.effective_voters import effective_voters
from latentens.evaluation.independence import ModelCheck
from latentens.evaluation.signal import signal_summary
from latentens.votes import Votes

PAIRS_SHOWN = 10
"""So many dependent pairs of voters are printed."""

RESAMPLES = 20
"""Bootstrap samples behind the interval that the command prints."""


def tell_signals(datasets: Iterable[Dataset], seed: int) -> None:
    """Say on standard error of each data set whether its voters agree more than by chance.

    By the key of the comparison, which records the same sentence for the page.
    """
    for dataset in datasets:
        messages.print(f"{dataset.name}: {signal_summary(dataset.votes, key=jax.random.key(seed))}")


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
    number = len(check.dependent_pairs)
    title = "Pairs that stand out" if number <= PAIRS_SHOWN else f"The strongest of {number:,} pairs that stand out"
    note = "against a fit of independent voters, which may have taken what a pair shares for the label"
    table = Table(title=title, caption=note if check.stories else None)
    for heading in ("voter", "other", "residual\ncorrelation", "p, for all\npairs together"):
        table.add_column(heading, justify="left" if heading in ("voter", "other") else "right")
    frame = pair_frame(check)
    for pair in frame[frame["adjusted_p_value"] <= check.level].head(PAIRS_SHOWN).itertuples():
        p_value = f"{pair.adjusted_p_value:.3f}"
        table.add_row(str(pair.voter), str(pair.other), f"{pair.residual_correlation:+.3f}", p_value)
    return table


def worth_words(votes: Votes, seed: int) -> str:
    """How many independent voters these are worth, in a sentence."""
    try:
        return effective_voters(votes, key=jax.random.key(seed), resamples=RESAMPLES).summary
    except LatentensError as error:
        return f"What the voters are worth cannot be told: {error}."
