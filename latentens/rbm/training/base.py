"""Training, one interface: exact or sampled, chosen by what exact training would cost."""

import jax

from latentens.rbm.machine import MAX_ENUMERATED
from latentens.rbm.rows import Rows, rows_from_votes
from latentens.rbm.training.cost import WORTH_TELLING, announce, exact_cost
from latentens.rbm.training.exact import ExactTraining
from latentens.rbm.training.sampled import SampledTraining
from latentens.rbm.training.trained import Trained
from latentens.runtime.precision import double_precision
from latentens.votes import Votes

Training = ExactTraining | SampledTraining

LONGEST_EXACT = 300.0
"""Training is exact if it is estimated to take at most this many seconds."""


def choose_training(
    rows: Rows, num_hidden: int, *, exact: ExactTraining | None = None, sampled: SampledTraining | None = None
) -> Training:
    """Exact training where its estimated cost is reasonable, sampled training elsewhere; the estimate is told.

    Args:
        rows: What is to be trained on.
        num_hidden: Number of hidden units.
        exact: Options of exact training.
        sampled: Options of sampled training.
    """
    cost = exact_cost(rows, num_hidden)
    reasonable = cost.seconds <= LONGEST_EXACT and cost.states <= 2**MAX_ENUMERATED
    announce(
        f"machine with {rows.visible.shape[1]} × {num_hidden} units, {len(rows.weight):,} rows: "
        f"{'exact' if reasonable else 'sampled'} training (exact: {cost}; the limit is {LONGEST_EXACT:.0f} s)",
        loudly=not reasonable or cost.seconds > WORTH_TELLING,
    )
    return (exact or ExactTraining()) if reasonable else (sampled or SampledTraining())


@double_precision
def train_machine(votes: Votes, num_hidden: int, *, key: jax.Array, training: Training | None = None) -> Trained:
    """Train one machine on votes.

    Args:
        votes: Binary votes, some of which may be missing.
        num_hidden: Number of hidden units.
        key: Random key.
        training: How; by default exactly where the size allows, by sampling elsewhere.
    """
    rows = rows_from_votes(votes)
    return (training or choose_training(rows, num_hidden)).train(rows, num_hidden, key=key)
