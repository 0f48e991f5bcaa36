"""Twins drawn from fitted worlds, and the methods run on them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import numpy as np

from latentens.comparison.cell import Cell, Outcome
from latentens.comparison.data_tree import Address
from latentens.comparison.sweep import MethodFactory, cells_of
from latentens.datasets.dataset import Dataset, simulate_like
from latentens.errors import LatentensError
from latentens.methods.base import Method, Posterior
from latentens.programs.tables import bayes_posterior
from latentens.recommendation.expected_scores import Twin, TwinScores
from latentens.recommendation.worlds import FittedWorld, world_of
from latentens.votes import Votes

REFIT = "the world's own program"
"""What the fit of a world to its own twin is called among the methods."""


def draw_twins(world: FittedWorld, like: Dataset, key: jax.Array, number: int) -> list[Dataset]:
    """Data drawn from a world, with the items, voters, pattern of who voted on what, and items with gold labels."""
    key = jax.random.fold_in(key, zlib.crc32(world.name.encode()))
    drawn = [
        simulate_like(world.model, like.votes, key=jax.random.fold_in(key, twin), params=world.params)
        for twin in range(number)
    ]
    named = [replace(dataset, name=f"{world.name}, twin {twin}") for twin, dataset in enumerate(drawn)]
    known = like.gold
    return named if known is None else [replace(twin, gold=np.where(known >= 0, twin.labels, -1)) for twin in named]


def without_gold(dataset: Dataset) -> Dataset:
    """The same data set without gold labels, under a name of its own if there were any."""
    return dataset if dataset.gold is None else replace(dataset, name=f"{dataset.name}, no gold labels", gold=None)


def twin_cells(
    world: FittedWorld, twins: Sequence[Dataset], methods: Mapping[str, Method | MethodFactory], key: jax.Array
) -> list[Cell]:
    """Every method on every twin, and the world's own program, which knows no gold label."""
    cells = [cell for twin in twins for cell in cells_of(twin, methods, key)]
    return cells + [cell for twin in twins for cell in cells_of(without_gold(twin), {REFIT: world.refit}, key)]


def scored_twins(
    world: FittedWorld,
    twins: Sequence[Dataset],
    methods: Sequence[str],
    outcomes: Mapping[Address, Outcome],
    key: jax.Array,
) -> TwinScores:
    """What came of the cells of a world's twins."""
    scored = []
    for number, twin in enumerate(twins):
        exact = twin.bayes_posterior()
        assert exact is not None, "twins come with their program"
        told = np.zeros(len(exact), bool) if twin.gold is None else twin.gold >= 0
        found = {name: outcomes[twin.name, 0, name].label_probs for name in methods}
        posteriors = {name: probs[~told] for name, probs in found.items() if probs is not None}
        own = outcomes[without_gold(twin).name, 0, REFIT]
        refitted = _refitted(world, twin.votes, own, jax.random.fold_in(key, number))
        kept = None if refitted is None else refitted[~told]
        scored.append(Twin(twin.labels[~told], exact[~told], posteriors, kept))
    return TwinScores(world.name, scored)


def _refitted(world: FittedWorld, pattern: Votes, outcome: Outcome, key: jax.Array) -> Posterior | None:
    """The exact posterior of a twin of a twin."""
    try:
        model, params = world_of(world.refit, outcome)
    except LatentensError:
        return None
    drawn = simulate_like(model, pattern, key=key, params=params)
    return bayes_posterior(model, params, drawn.votes)
