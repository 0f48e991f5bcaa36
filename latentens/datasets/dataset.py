"""Simulation: votes whose labels, and perhaps whose parameters, are known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int
from numpyro import handlers

from latentens.errors import VotesError
from latentens.programs.contract import RUN_ALONE, structure_of
from latentens.programs.likelihood import bayes_posterior
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import draw_params, unflatten
from latentens.programs.tables import check_form, checked_tables
from latentens.runtime.compilation import compile_quickly
from latentens.runtime.numerics import check_key, double_precision, numpy_generator
from latentens.votes import Triplets, Votes
from latentens.votes.labels import MISSING, code_type
from latentens.votes.matching import certain_where_known, check_votes, checked_codes, gold_codes, positions

ITEMS_PER_KEY = 2**16
"""Items that are drawn with one random key, which limits the memory. The draws of a key depend on it."""

Drawn = tuple[dict[str, Array], Int[Array, "item voter"]]
"""The hidden sites of items, and their votes."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Votes with the labels, model and parameters that are known, to score a comparison on.

    Attributes:
        name: The name of the data in tables.
        votes: The votes.
        labels: The true label of each item: its code, −1 if it is not known; an array or a sequence in the order of
            the items, or a Series by their names. By default none is known.
        model: The model that the votes come from, if known.
        params: Its true parameters, if known.
        gold: True labels that methods may use: in any form that `Method.fit` takes, kept as codes, −1 for the other
            items. Where no other label is known, methods are scored on these, each predicted by a fit that has not
            seen it; else they are not scored.
    """

    name: str
    votes: Votes
    labels: Int[np.ndarray, " item"] = None  # type: ignore[assignment]  # never None afterwards
    model: GenerativeModel | None = None
    params: Mapping[str, Float[np.ndarray, "..."]] | None = None
    gold: Int[np.ndarray, " item"] | None = None

    def __post_init__(self) -> None:
        check_votes(self.votes, "a data set")
        labels, gold = cast("Any", self.labels), cast("Any", self.gold)  # looser than the types of the fields
        shape = self.votes.num_items, self.votes.num_classes
        if labels is None:
            labels = np.full(self.votes.num_items, MISSING)
        try:
            if isinstance(labels, pd.Series):
                labels = _in_order(labels, self.votes)
            if gold is not None and not (isinstance(gold, np.ndarray) and gold.dtype.kind in "iu"):
                gold = gold_codes(self.votes, gold)
            object.__setattr__(self, "labels", checked_codes(labels, shape))
            object.__setattr__(self, "gold", None if gold is None else checked_codes(gold, shape))
        except VotesError as error:
            raise error.about(self.name) from None

    @property
    def scored_labels(self) -> Int[np.ndarray, " item"]:
        """The true label of each item that methods are scored on, −1 for the others."""
        if self.gold is None:
            return self.labels
        return self.gold if self.is_scored_by_gold else np.where(self.gold >= 0, -1, self.labels)

    @property
    def is_scored_by_gold(self) -> bool:
        """Whether gold labels are the only ones known, so that scores come from folds of them."""
        return self.gold is not None and bool((self.gold >= 0).any()) and not (self.labels[self.gold < 0] >= 0).any()

    def bayes_posterior(self) -> Float[np.ndarray, "item label"] | None:
        """The exact posterior of the labels, where model and parameters are known."""
        if self.model is None or self.params is None:
            return None
        probs = bayes_posterior(self.model, self.params, self.votes)
        return probs if self.gold is None or self.is_scored_by_gold else certain_where_known(probs, self.gold)


def _in_order(labels: pd.Series, votes: Votes) -> np.ndarray:
    """Labels by the names of the items in the order of the items."""
    places = positions(votes.item_names, labels.index.to_numpy())
    if len(labels) != votes.num_items or (places < 0).any():
        raise VotesError("the index of the labels does not name the items: pass their values in the order of the items")
    return labels.to_numpy()[places]


def simulate(model: GenerativeModel, num_items: int, *, key: jax.Array, params: Params | None = None) -> Dataset:
    """Draw labels and votes from a program; every voter votes once on every item.

    Args:
        model: The generative model.
        num_items: Number of items.
        key: Random key; the same key gives the same data.
        params: A value for each parameter; by default a draw from the priors.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> data.votes.shape, data.labels[:5]
        ((200, 6), array([0, 1, 0, 1, 0], dtype=int8))
        >>> data.bayes_posterior()[:2].round(3)
        array([[0.997, 0.003],
               [0.038, 0.962]])
    """
    if num_items < 1:
        raise VotesError(f"{num_items} items cannot be simulated; ask for at least one")
    structure = structure_of(model)
    complete = np.broadcast_to(np.int8(0), (num_items, structure.num_voters))
    labels, categories = structure.num_labels, range(structure.num_vote_classes)
    if model.ordered_votes:
        pattern = Votes(complete, num_items, structure.num_voters, labels, grade_names=categories)
    else:  # votes beyond the labels are other categories
        classes = min(labels, len(categories))
        pattern = Votes(complete, num_items, structure.num_voters, classes, other_names=categories[classes:])
    return simulate_like(model, pattern, key=key, params=params)


@double_precision
def simulate_like(
    model: GenerativeModel,
    pattern: Votes,
    *,
    key: jax.Array,
    params: Params | None = None,
    items_per_key: int = ITEMS_PER_KEY,
    votes_per_key: int = 2**22,
) -> Dataset:
    """Draw labels and votes from a program, with the pattern of present and repeated votes of other votes.

    A voter's repeated votes on an item are independent of each other given the item's label and hidden units.

    Args:
        model: The generative model.
        pattern: Votes of which only the pattern is used; the result has their items, voters and classes.
        key: Random key; the same key gives the same data.
        params: A value for each parameter; by default a draw from the priors.
        items_per_key: The most items that are drawn at a time, which bounds the memory; another number, other data.
        votes_per_key: The most votes that are drawn at a time; another number, other data.
    """
    check_key(key)
    structure, pattern = check_form(model, pattern), pattern.to_hard()
    if pattern.num_categories < structure.num_vote_classes:
        raise VotesError(
            f"the pattern has {pattern.num_categories} classes, but votes of {model} have "
            f"{structure.num_vote_classes}: name all of them when the votes are made"
        )
    params_key, items_key = jax.random.split(key)
    if params is None:
        params = unflatten(draw_params(model, numpy_generator(params_key)), structure.parameter_shapes)
    checked_tables(model, params)
    params = {name: np.asarray(value, dtype=np.float64) for name, value in params.items()}
    size = min(pattern.num_items, items_per_key, max(1, votes_per_key // pattern.num_voters))
    starts = range(0, pattern.num_items, size)
    parts = [pattern.between(start, min(start + size, pattern.num_items)) for start in starts]
    keys = jax.random.split(items_key, len(parts))
    draw = partial(_draw_items_once if len(parts) == 1 else _draw_items, model, size)
    drawn = [_draw_part(draw, params, part, key) for part, key in zip(parts, keys, strict=True)]
    labels, votes = (np.concatenate(columns) for columns in zip(*drawn, strict=True))
    storage = votes if isinstance(pattern.storage, np.ndarray) else pattern.storage._replace(vote=votes)
    return Dataset(str(model), replace(pattern, storage=storage), labels, model, params)


def _draw_part(
    draw: Callable[[dict[str, Any], Array], Drawn], params: dict[str, np.ndarray], pattern: Votes, key: Array
) -> tuple[Int[np.ndarray, " item"], Int[np.ndarray, "item voter"] | Int[np.ndarray, " entry"]]:
    """Labels and votes of the pattern's items, of which `draw` may draw more: all parts share one compiled program."""
    hidden, votes = draw(params, key)
    labels, matrix = np.asarray(hidden["label"])[: pattern.num_items], np.asarray(votes)
    labels = labels.astype(code_type(int(labels.max(initial=0)) + 1))
    if isinstance(pattern.storage, np.ndarray):
        return labels, np.where(pattern.storage == MISSING, np.int8(MISSING), matrix[: pattern.num_items])
    item, voter, turn = pattern.storage.item, pattern.storage.voter, pattern.storage.turn
    drawn = matrix[item, voter]
    for again in range(1, turn.max(initial=0) + 1):
        _, votes = draw({**params, **hidden}, jax.random.fold_in(key, again))
        drawn = np.where(turn == again, np.asarray(votes)[item, voter], drawn)
    return labels, Triplets(item, voter, drawn).in_order().vote


def _items(model: GenerativeModel, num_items: int, known: dict[str, Any], key: Array) -> Drawn:
    """The hidden sites of items, and their votes; `known` are the parameters and perhaps the hidden sites."""
    with RUN_ALONE, handlers.trace() as trace, handlers.seed(rng_seed=key), handlers.substitute(data=known):
        model.program(num_items)
    hidden = {name: trace[name]["value"] for name in structure_of(model).hidden}
    return hidden, trace["vote"]["value"].astype(code_type(structure_of(model).num_vote_classes))


_draw_items = jax.jit(_items, static_argnums=(0, 1))
_draw_items_once = compile_quickly(_items, static_argnums=(0, 1))
