"""Simulation-based calibration of posterior draws."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtr, bdtrc

from latentens.datasets import simulate
from latentens.errors import LatentensError
from latentens.inference.orient import orientation
from latentens.methods.base import Method
from latentens.methods.nuts import Nuts
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import bayes_posterior
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.progress import track_late
from latentens.runtime.store import Record, Store
from latentens.scores.reliability import upper_tail
from latentens.votes import Votes

Sampler = Callable[[Votes, jax.Array], Mapping[str, np.ndarray]]


class SimulationRanks(NamedTuple):
    """Ranks of the true parameters among posterior draws; uniform if the draws are right.

    Attributes:
        names: The parameters, element by element.
        ranks: Number of draws below the truth; ties are broken at random.
        num_draws: Number of draws, the largest possible rank.
        uniforms: The ranks made continuous, uniform on [0, 1] if the draws are right.
        p_values: For each element, the probability that the empirical distribution function of as many uniform numbers
            leaves the band around the diagonal that this one just touches (Säilynoja et al. 2022).
    """

    names: tuple[str, ...]
    ranks: Int[np.ndarray, "simulation element"]
    num_draws: int
    uniforms: Float[np.ndarray, "simulation element"]
    p_values: Float[np.ndarray, " element"]

    @property
    def p_value(self) -> float:
        """The smallest p-value, corrected for the number of elements (Bonferroni)."""
        return min(1.0, float(self.p_values.min()) * len(self.p_values))


def simulation_based_calibration(
    model: GenerativeModel,
    method: Method | Sampler | None = None,
    *,
    num_simulations: int,
    num_items: int,
    key: jax.Array,
    num_draws: int = 99,
    folder: str | Path | None = None,
) -> SimulationRanks:
    """Rank true parameters among posterior draws, over parameters and votes drawn from the model (Talts et al. 2018).

    Labels can switch: the draws of a fit are oriented by the votes. What is ranked is therefore a function of
    parameters and votes, which is valid (Modrák et al. 2023) as long as it is the same for draws and truth; so the
    truth is oriented by the same rule.

    Args:
        model: The generative model.
        method: The sampler: a method whose fits have draws, or a function of votes and a random key that returns draws
            by name, oriented as those of a fit, with draws on the first axis. By default `Nuts(model)`.
        num_simulations: Number of data sets.
        num_items: Number of items of each.
        key: Random key; the same key gives the same ranks.
        num_draws: Draws kept of each fit, evenly spaced, so that they are nearly independent.
        folder: Where finished simulations are kept, so that an interrupted run resumes where it stopped.
    """
    if num_simulations < 2:
        raise LatentensError("num_simulations must be at least 2: fewer say nothing about a distribution")
    method = Nuts(model) if method is None else method
    sampler, store = _sampler(method), Store(folder)
    work = store.key("simulation-based calibration", model, method, num_items, num_draws)
    simulation_key, uniform_key = jax.random.split(key)
    rows = []
    for index in track_late(range(num_simulations), "Simulation-based calibration"):
        own_key = jax.random.fold_in(simulation_key, index)
        simulated = partial(_simulated_ranks, model, sampler, num_items, num_draws, own_key)
        rows.append(store.recall(store.key(work, own_key), simulated).arrays["ranks"])
    ranks = np.stack(rows)
    generator = numpy_generator(uniform_key)
    uniforms = (ranks + generator.random(ranks.shape)) / (num_draws + 1)
    return SimulationRanks(_element_names(model), ranks, num_draws, uniforms, uniformity(uniforms, generator))


def uniformity(
    values: Float[np.ndarray, "simulation element"], generator: np.random.Generator, simulations: int = 2000
) -> Float[np.ndarray, " element"]:
    """The p-value of each column being uniform on [0, 1], by the simultaneous band of its distribution function.

    The null distribution is found by simulating uniform samples.
    """
    by_chance = -_least_tails(generator.random((len(values), simulations)))
    return np.array([upper_tail(-tail, by_chance) for tail in _least_tails(values)])


def _least_tails(values: Float[np.ndarray, "simulation element"]) -> Float[np.ndarray, " element"]:
    """The smallest binomial tail probability of the number of values up to i/n, over i from 1 to n − 1."""
    size, elements = values.shape
    cells = np.clip(np.ceil(values * size).astype(int), 1, size) - 1
    counts = np.bincount((cells + size * np.arange(elements)).ravel(), minlength=size * elements)
    below = np.cumsum(counts.reshape(elements, size), axis=1)[:, :-1].astype(np.float64)
    expected = np.arange(1, size) / size
    return np.minimum(bdtr(below, size, expected), bdtrc(below - 1, size, expected)).min(axis=1)


def _sampler(method: Method | Sampler) -> Sampler:
    if not isinstance(method, Method):
        return method

    def draw(votes: Votes, key: jax.Array) -> Mapping[str, np.ndarray]:
        draws = method.fit(votes, key=key).draws
        if draws is None:
            raise LatentensError(f"{type(method).__name__} has no posterior draws; use Nuts")
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}

    return draw


def _simulated_ranks(
    model: GenerativeModel, sampler: Sampler, num_items: int, num_draws: int, key: jax.Array
) -> Record:
    data_key, sample_key, tie_key = jax.random.split(key, 3)
    dataset = simulate(model, num_items, key=data_key)
    assert dataset.params is not None, "simulated data come with their parameters"
    truth = _oriented(model, dataset.params, dataset.votes)
    draws = sampler(dataset.votes, sample_key)
    available = min(len(draws[name]) for name in truth)
    if available < num_draws:
        raise LatentensError(f"{available} draws are fewer than num_draws={num_draws}; draw more, or lower num_draws")
    kept = np.linspace(0, available - 1, num_draws).round().astype(int)
    columns = np.concatenate([np.asarray(draws[name])[kept].reshape(num_draws, -1) for name in truth], axis=1)
    values = np.concatenate([np.ravel(value) for value in truth.values()])
    ties = (columns == values).sum(axis=0)
    return Record({}, {"ranks": (columns < values).sum(axis=0) + numpy_generator(tie_key).integers(ties + 1)})


def _oriented(model: GenerativeModel, params: Params, votes: Votes) -> dict[str, np.ndarray]:
    """The parameters with labels oriented by the votes, if the model can relabel them."""
    relabelled = None
    if not model.anchored:
        relabelled = model.relabel(params, orientation(bayes_posterior(model, params, votes), votes))
    return {name: (relabelled or params)[name] for name in structure_of(model).parameter_shapes}


def _element_names(model: GenerativeModel) -> tuple[str, ...]:
    shapes = structure_of(model).parameter_shapes.items()
    indexed = ((name, index) for name, shape in shapes for index in np.ndindex(*shape))
    return tuple(f"{name}[{', '.join(map(str, index))}]" if index else name for name, index in indexed)
