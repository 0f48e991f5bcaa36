"""The choice between exact and sampled training, by the number of states."""

import logging
from functools import lru_cache

import jax
from rich.console import Console

from latentens.rbm.enumeration import MOST_ENTRIES, can_enumerate, enumerated_entries
from latentens.rbm.rows import VisibleRows, rows_from_votes
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.training.sampled import SampledTraining
from latentens.votes import Votes


def choose_training(
    rows: VisibleRows, num_hidden: int, *, exact: Training | None = None, sampled: Training | None = None
) -> Training:
    """Exact training where the machine can be enumerated, sampled training elsewhere, which is announced.

    Args:
        rows: What is to be trained on.
        num_hidden: Number of hidden units.
        exact: Exact training, by default with its default settings.
        sampled: Sampled training, likewise.
    """
    if can_enumerate(rows, num_hidden):
        return exact or ExactTraining()
    announce(
        f"machine with {rows.num_units} × {num_hidden} units of {rows.units.num_states} states, "
        f"{len(rows.weight):,} rows: sampled training (exact training would go through "
        f"{enumerated_entries(rows, num_hidden):,.0f} entries for each step; the limit is {MOST_ENTRIES:,})"
    )
    return sampled or SampledTraining()


@lru_cache(maxsize=256)
def announce(message: str) -> None:
    """Say something once, to the log and on standard error."""
    logging.getLogger("latentens").info(message)
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)


def train_machine(votes: Votes, num_hidden: int, *, key: jax.Array, training: Training | None = None) -> Trained:
    """Train one machine on votes.

    Args:
        votes: Votes, some of which may be missing.
        num_hidden: Number of hidden units.
        key: Random key.
        training: How; by default exactly where the size allows, by sampling elsewhere.
    """
    rows = rows_from_votes(votes)
    return (training or choose_training(rows, num_hidden)).train(rows, num_hidden, key=key)
