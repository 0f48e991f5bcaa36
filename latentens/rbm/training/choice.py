"""The choice between exact and sampled training, by what exact training would cost."""

import logging
from functools import lru_cache

import jax
from rich.console import Console

from latentens.rbm.enumeration import LONGEST_EVALUATION, enumeration_cost
from latentens.rbm.rows import VisibleRows, rows_from_votes
from latentens.rbm.training.exact import EVALUATIONS, ExactTraining
from latentens.rbm.training.interface import Trained, Training
from latentens.rbm.training.sampled import SampledTraining
from latentens.votes import Votes

WORTH_TELLING = 10.0
"""Exact training that is estimated to take longer than this many seconds is announced, not only logged."""


def choose_training(
    rows: VisibleRows, num_hidden: int, *, exact: Training | None = None, sampled: Training | None = None
) -> Training:
    """Exact training where the machine can be enumerated, sampled training elsewhere; a costly choice is announced.

    Args:
        rows: What is to be trained on.
        num_hidden: Number of hidden units.
        exact: Exact training, by default with its default settings.
        sampled: Sampled training, likewise.
    """
    cost = enumeration_cost(rows, num_hidden)
    seconds, longest = EVALUATIONS * cost.seconds, EVALUATIONS * LONGEST_EVALUATION
    announce(
        f"machine with {rows.num_units} × {num_hidden} units{_of_states(rows)}, {len(rows.weight):,} rows: "
        f"{'exact' if cost.affordable else 'sampled'} training "
        f"(exact: {cost.states:,} states, about {seconds:,.1f} s; the limit is {longest:.0f} s)",
        loudly=not cost.affordable or seconds > WORTH_TELLING,
    )
    return (exact or ExactTraining()) if cost.affordable else (sampled or SampledTraining())


def _of_states(rows: VisibleRows) -> str:
    return "" if rows.units.num_states == 2 else f" of {rows.units.num_states} states"


@lru_cache(maxsize=256)
def announce(message: str, *, loudly: bool) -> None:
    """Say something once: to the log and, if it matters, on standard error."""
    logging.getLogger("latentens").info(message)
    if loudly:
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
