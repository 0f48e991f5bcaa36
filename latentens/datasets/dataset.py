"""Simulation: votes whose labels, and perhaps whose parameters, are known."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro import handlers

from latentens.errors import VotesError
from latentens.programs.contract import inspect
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import bayes_posterior, checked_tables
from latentens.runtime.precision import double_precision
from latentens.votes import Votes

BLOCK_ITEMS = 2**16
"""Items are simulated in blocks of this size, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Votes with what is known of the truth: what a comparison is scored on.

    Attributes:
        name: What the data are called in tables.
        votes: The votes.
        labels: The true label of each item, −1 where it is not known.
        model: The model that the votes come from, where known.
        params: Its true parameters, where known.
        gold: True labels that methods may use, −1 for the other items. Nothing is scored on these items.
    """

    name: str
    votes: Votes
    labels: Int[np.ndarray, " item"]
    model: GenerativeModel | None = None
    params: Mapping[str, Float[np.ndarray, "..."]] | None = None
    gold: Int[np.ndarray, " item"] | None = None

    def __post_init__(self) -> None:
        for labels in (self.labels, self.gold):
            if labels is not None and labels.shape != (self.votes.num_items,):
                raise VotesError(f"{self.name}: labels of shape {labels.shape} for {self.votes.num_items} items")

    @property
    def scored_labels(self) -> Int[np.ndarray, " item"]:
        """The true label of each item that methods have not been told, −1 for the others."""
        return self.labels if self.gold is None else np.where(self.gold >= 0, -1, self.labels)

    def bayes_posterior(self) -> Float[np.ndarray, "item label"] | None:
        """The exact posterior of the labels, where model and parameters are known."""
        if self.model is None or self.params is None:
            return None
        probs = bayes_posterior(self.model, self.params, self.votes)
        return probs if self.gold is None else certain_where_known(probs, self.gold)


def certain_where_known(
    probs: Float[np.ndarray, "item label"], gold: Int[np.ndarray, " item"]
) -> Float[np.ndarray, "item label"]:
    """The posterior of labels once some of them, those that are not −1, are known."""
    return np.where(gold[:, None] >= 0, gold[:, None] == np.arange(probs.shape[1]), probs)


@double_precision
def simulate(model: GenerativeModel, num_items: int, *, key: jax.Array, params: Params | None = None) -> Dataset:
    """Draw labels and votes from a program.

    Args:
        model: The generative model.
        num_items: Number of items.
        key: Random key; the same key gives the same data.
        params: A value for each parameter; by default a draw from the priors.
    """
    if num_items < 1:
        raise VotesError(f"{num_items} items cannot be simulated; ask for at least one")
    params_key, items_key = jax.random.split(key)
    if params is None:
        params = _draw_params(model, params_key)
    checked_tables(model, params)
    params = {name: np.asarray(value, dtype=np.float64) for name, value in params.items()}
    block = min(num_items, BLOCK_ITEMS)
    keys = jax.random.split(items_key, -(-num_items // block))
    drawn = [jax.device_get(_draw_items(model, block, params, block_key)) for block_key in keys]
    labels, votes = (np.concatenate(parts)[:num_items] for parts in zip(*drawn, strict=True))
    matrix = Votes.from_matrix(votes, num_classes=inspect(model).num_vote_classes)
    return Dataset(str(model), matrix, labels, model, params)


@partial(jax.jit, static_argnums=0)
def _draw_params(model: GenerativeModel, key: Array) -> dict[str, Float[Array, "..."]]:
    with handlers.trace() as trace, handlers.seed(rng_seed=key):
        model.program(1)
    return {name: trace[name]["value"] for name in inspect(model).parameter_shapes}


@partial(jax.jit, static_argnums=(0, 1))
def _draw_items(model: GenerativeModel, num_items: int, params: dict[str, Any], key: Array) -> tuple[Array, Array]:
    with handlers.trace() as trace, handlers.seed(rng_seed=key), handlers.substitute(data=params):
        model.program(num_items)
    return trace["label"]["value"].astype("int8"), trace["vote"]["value"].astype("int8")
