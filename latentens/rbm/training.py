"""Training, one interface: exact or sampled, chosen by size."""

import jax

from latentens.precision import double_precision
from latentens.rbm.exact import ExactTraining
from latentens.rbm.rows import Rows, rows_from_votes
from latentens.rbm.sampled import SampledTraining
from latentens.rbm.trained import Trained
from latentens.votes import Votes

Training = ExactTraining | SampledTraining

LARGEST_EXACT = 14
"""Training is exact if the smaller layer has at most this many units …"""

LARGEST_EXACT_WITH_GAPS = 10
"""… and the hidden layer at most this many where votes are missing."""


def choose_training(
    rows: Rows, num_hidden: int, *, exact: ExactTraining | None = None, sampled: SampledTraining | None = None
) -> Training:
    """Exact training where the states of one layer can be enumerated in reasonable time, sampled training above.

    Args:
        rows: What is to be trained on.
        num_hidden: Number of hidden units.
        exact: Options of exact training.
        sampled: Options of sampled training.
    """
    if rows.observed is None:
        small = min(rows.visible.shape[1], num_hidden) <= LARGEST_EXACT
    else:
        small = num_hidden <= LARGEST_EXACT_WITH_GAPS
    return (exact or ExactTraining()) if small else (sampled or SampledTraining())


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
