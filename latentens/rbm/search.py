"""Random search of training options (Bergstra & Bengio 2012), scored by held-out likelihood and by no label."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from latentens.errors import LatentensError
from latentens.rbm.rows import VisibleRows, rows_from_votes
from latentens.rbm.scoring import mean_log_likelihood
from latentens.rbm.training.interface import Training
from latentens.rbm.training.sampled import SampledTraining
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.runtime.progress import track_late
from latentens.runtime.store import Record, Store
from latentens.votes import Votes

Space = Mapping[str, Sequence[Any] | Callable[[np.random.Generator], Any]]
"""For each option a list of values to draw from, or a function that draws one."""


@double_precision
def random_search(
    votes: Votes,
    space: Space,
    *,
    key: jax.Array,
    num_trials: int = 20,
    base: Training | None = None,
    held_out: float = 0.2,
    folder: str | Path | None = None,
) -> pd.DataFrame:
    """Train machines with random options and score each by the likelihood of items it was not trained on.

    Args:
        votes: The votes.
        space: What to draw; fields of `base` and `num_hidden` (1 if it is not drawn).
        key: Random key; trial i is the same whatever the number of trials.
        num_trials: Number of trials.
        base: Options that are not drawn; by default sampled training.
        held_out: Share of the items to score on.
        folder: Where finished trials are kept, so that an interrupted search resumes where it stopped.

    Returns:
        One row per trial, best first: its number, options, mean held-out log-likelihood, standard error of that by
        annealing (0 where exact), and the reason where a trial failed.
    """
    base = base or SampledTraining()
    unknown = set(space) - set(base.__dataclass_fields__) - {"num_hidden"}
    if unknown:
        raise LatentensError(f"{type(base).__name__} has no option {min(unknown)!r}; draw one that it has")
    split_key, trial_key = jax.random.split(key)
    training, scoring = _split(votes, held_out, split_key)
    store = Store(folder)
    work = store.key("random search", votes, held_out, split_key, base)
    trials = []
    for number in track_late(range(num_trials), "Searching"):
        options_key, train_key, score_key = jax.random.split(jax.random.fold_in(trial_key, number), 3)
        options = {"num_hidden": 1, **draw_options(space, options_key)}
        score = partial(_score, training, scoring, base, options, train_key, score_key)
        trials.append({"trial": number, **options, **store.recall(store.key(work, options, train_key), score).about})
    table = pd.DataFrame(trials)
    return table.sort_values("log_likelihood", ascending=False, na_position="last", ignore_index=True)


def draw_options(space: Space, key: jax.Array) -> dict[str, Any]:
    """Draw one value of each option."""
    generator = numpy_generator(key)
    draw = {
        name: choices(generator) if callable(choices) else choices[int(generator.integers(len(choices)))]
        for name, choices in space.items()
    }
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in draw.items()}


def _split(votes: Votes, held_out: float, key: jax.Array) -> tuple[VisibleRows, VisibleRows]:
    size = round(held_out * votes.num_items)
    if not 0 < size < votes.num_items:
        raise LatentensError(f"held_out={held_out} of {votes.num_items} items leaves nothing to train or score on")
    order = numpy_generator(key).permutation(votes.num_items)
    return rows_from_votes(votes.take(order[size:])), rows_from_votes(votes.take(order[:size]))


def _score(
    training: VisibleRows,
    scoring: VisibleRows,
    base: Training,
    options: Mapping[str, Any],
    train_key: jax.Array,
    score_key: jax.Array,
) -> Record:
    """The score of one trial, or why it failed."""
    chosen = {name: value for name, value in options.items() if name != "num_hidden"}
    try:
        trained = replace(base, **chosen).train(training, options["num_hidden"], key=train_key)
        score, error = mean_log_likelihood(trained.machine, scoring, key=score_key)
    except LatentensError as error_met:
        return Record({"log_likelihood": None, "standard_error": None, "failure": str(error_met)})
    failure = None if np.isfinite(score) else "too large a machine to be scored on votes with gaps"
    return Record({"log_likelihood": float(score), "standard_error": float(error), "failure": failure})
