"""Simulation-based calibration of posterior draws."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtr, bdtrc

from latentens.datasets import Dataset, simulate, simulate_like
from latentens.errors import LatentensError
from latentens.inference.density import label_posteriors
from latentens.inference.orient import orientation
from latentens.methods.base import Method
from latentens.methods.sampled import Nuts
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import bayes_posterior
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.rows import Rows
from latentens.runtime.numerics import double_precision, numpy_generator, safe_log
from latentens.runtime.progress import track_late
from latentens.runtime.store import Record, Store
from latentens.scores.reliability import upper_tail
from latentens.votes import Triplets, Votes

Sampler = Callable[[Votes, jax.Array], Mapping[str, np.ndarray]]
LABEL_ORDERS = "label orders"
"""Under this name, draws of a model that cannot be relabelled bring the order of each draw's labels."""


class SimulationRanks(NamedTuple):
    """Ranks of the true parameters, and labels, among posterior draws; uniform if the draws are right.

    Attributes:
        names: The parameters, element by element, and the quantities of the labels if they were asked for.
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

    def coverage(self, levels: Float[np.ndarray, " level"]) -> Float[np.ndarray, "level element"]:
        """The share of simulations in which the central interval of each level has the truth; expected is the level."""
        distance = np.abs(2 * self.uniforms - 1)
        return np.stack([(distance <= level).mean(axis=0) for level in np.asarray(levels)])


def simulation_based_calibration(
    model: GenerativeModel,
    method: Method | Sampler | None = None,
    *,
    num_simulations: int,
    num_items: int,
    key: jax.Array,
    num_draws: int = 99,
    labels: bool = False,
    folder: str | Path | None = None,
) -> SimulationRanks:
    """Rank true parameters among posterior draws, over parameters and votes drawn from the model (Talts et al. 2018).

    Labels can switch: the draws of a fit are oriented by the votes. The ranked quantity is therefore a function of
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
        labels: Whether to rank labels, too, among labels drawn from their posterior at each draw: that of the first
            item, with ties broken at random, the number of items of each class but the first, and the log posterior
            probability of all labels.
        folder: Where finished simulations are kept, so that an interrupted run resumes where it stopped.
    """
    method = Nuts(model) if method is None else method

    def simulated(index: int, key: jax.Array) -> tuple[Dataset, Votes]:
        del index
        dataset = simulate(model, num_items, key=key)
        return dataset, dataset.votes

    store = Store(folder)
    work = store.key("simulation-based calibration", model, method, num_items, num_draws, labels)
    return _calibrate(model, _sampler(method), simulated, num_simulations, num_draws, labels, store, work, key)


def posterior_sbc(
    model: GenerativeModel,
    votes: Votes,
    method: Method | Sampler | None = None,
    *,
    num_simulations: int,
    key: jax.Array,
    num_draws: int = 99,
    labels: bool = False,
    folder: str | Path | None = None,
) -> SimulationRanks:
    """Simulation-based calibration given your own votes: are draws right where your posterior is?

    Parameters are drawn from the posterior given the votes instead of the prior, new votes in the same pattern are
    simulated from them, and the parameters are ranked among draws of the posterior given both the votes and the new
    ones (Säilynoja et al. 2025). Ranks are uniform if the method is right for votes like these, whatever it does
    elsewhere under the prior.

    Args:
        model: The generative model.
        votes: Your votes.
        method: As in `simulation_based_calibration`.
        num_simulations: Number of parameters drawn and of data sets.
        key: Random key; the same key gives the same ranks.
        num_draws: Draws kept of each fit, evenly spaced, so that they are nearly independent.
        labels: Whether to rank the labels of the new items, too.
        folder: Where finished simulations are kept, so that an interrupted run resumes where it stopped.
    """
    method = Nuts(model) if method is None else method
    sampler, store = _sampler(method), Store(folder)
    first_key, key = jax.random.split(key)
    settings = ("posterior calibration", model, votes, method, num_simulations, num_draws, labels)
    first = store.recall(store.key(*settings, first_key), lambda: Record({}, {**sampler(votes, first_key)})).arrays
    chosen = _evenly(len(next(iter(first.values()))), num_simulations, "num_simulations")

    def simulated(index: int, key: jax.Array) -> tuple[Dataset, Votes]:
        params = {name: first[name][chosen[index]] for name in structure_of(model).parameter_shapes}
        dataset = simulate_like(model, votes, key=key, params=params)
        return dataset, _joined(votes, dataset.votes)

    work = store.key(*settings)
    return _calibrate(model, sampler, simulated, num_simulations, num_draws, labels, store, work, key)


def _calibrate(
    model: GenerativeModel,
    sampler: Sampler,
    simulated: Callable[[int, jax.Array], tuple[Dataset, Votes]],
    num_simulations: int,
    num_draws: int,
    labels: bool,
    store: Store,
    work: str,
    key: jax.Array,
) -> SimulationRanks:
    """The ranks of all simulations, those in the store taken from there, and whether they are uniform.

    Args:
        model: The generative model.
        sampler: The sampler.
        simulated: From the number of a simulation and a key to a data set, and the votes that draws are given.
        num_simulations: Number of simulations.
        num_draws: Number of draws that are kept of each fit.
        labels: Whether to rank labels, too.
        store: The store.
        work: The store's key of all simulations together.
        key: Random key.
    """
    if num_simulations < 2:
        raise LatentensError("num_simulations must be at least 2")

    def ranked(index: int, key: jax.Array) -> Record:
        data_key, sample_key, tie_key = jax.random.split(key, 3)
        dataset, votes = simulated(index, data_key)
        assert dataset.params is not None, "simulated data come with their parameters"
        generator = numpy_generator(tie_key)
        truth = _oriented(model, dataset.params, votes)
        draws = sampler(votes, sample_key)
        kept = _evenly(min(len(draws[name]) for name in truth), num_draws, "num_draws")
        chosen = {name: np.asarray(value)[kept] for name, value in draws.items()}
        columns = np.concatenate([chosen[name].reshape(num_draws, -1) for name in truth], axis=1)
        values = np.concatenate([np.ravel(value) for value in truth.values()])
        if labels:
            drawn, true = _label_quantities(model, dataset, votes, truth, chosen, generator)
            columns, values = np.concatenate([columns, drawn], axis=1), np.concatenate([values, true])
        ties = (columns == values).sum(axis=0)
        return Record({}, {"ranks": (columns < values).sum(axis=0) + generator.integers(ties + 1)})

    simulation_key, uniform_key = jax.random.split(key)
    rows = []
    for index in track_late(range(num_simulations), "Simulation-based calibration"):
        own_key = jax.random.fold_in(simulation_key, index)
        rows.append(store.recall(store.key(work, own_key), partial(ranked, index, own_key)).arrays["ranks"])
    ranks, generator = np.stack(rows), numpy_generator(uniform_key)
    uniforms = (ranks + generator.random(ranks.shape)) / (num_draws + 1)
    return SimulationRanks(_names(model, labels), ranks, num_draws, uniforms, uniformity(uniforms, generator))


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
        fit = method.fit(votes, key=key)
        if fit.draws is None:
            raise LatentensError(f"{type(method).__name__} has no posterior draws; use Nuts, Laplace or Variational")
        draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in fit.draws.items()}
        return {**draws, LABEL_ORDERS: fit.state["label_orders"]} if "label_orders" in fit.state else draws

    return draw


def _evenly(available: int, wanted: int, name: str) -> Int[np.ndarray, " chosen"]:
    if available < wanted:
        raise LatentensError(f"{available} draws are fewer than {name}={wanted}; draw more, or lower {name}")
    return np.linspace(0, available - 1, wanted).round().astype(int)


@double_precision
def _label_quantities(
    model: GenerativeModel,
    dataset: Dataset,
    votes: Votes,
    truth: Params,
    draws: Mapping[str, np.ndarray],
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, "draw quantity"], Float[np.ndarray, " quantity"]]:
    """Functions of labels drawn from their posterior at each draw, and of the true labels; labels in order."""
    exact = bayes_posterior(model, dataset.params or {}, dataset.votes)
    order = np.arange(exact.shape[1])
    if not model.anchored:
        order = orientation(bayes_posterior(model, dataset.params or {}, votes), votes)
    rows = Rows.of(model, dataset.votes)
    drawn = label_posteriors(model, {name: draws[name] for name in truth}, rows)
    probs = np.stack(list(drawn))[:, :, rows.inverse]  # draw, label, item
    if LABEL_ORDERS in draws:
        probs = np.take_along_axis(probs, draws[LABEL_ORDERS][:, :, None], axis=1)
    below = np.cumsum(probs, axis=1)
    codes = (generator.random(probs[:, :1].shape) * below[:, -1:] > below).sum(axis=1)
    true = np.argsort(order)[dataset.labels]

    def quantities(labels: np.ndarray, probs: np.ndarray) -> np.ndarray:
        numbers = [(labels == label).sum() for label in range(1, len(probs))]
        log_probability = safe_log(probs[labels, np.arange(len(labels))]).sum()
        return np.array([labels[0], *numbers, log_probability], dtype=float)

    found = np.stack([quantities(*pair) for pair in zip(codes, probs, strict=True)])
    return found, quantities(true, exact[:, order].T)


def _joined(votes: Votes, more: Votes) -> Votes:
    """Votes on some items and on as many others in the same pattern."""
    if isinstance(votes.storage, np.ndarray):
        storage: Any = np.concatenate([votes.storage, np.asarray(more.storage)])
    else:
        (item, *rest), (other, *others) = votes.triplets, more.triplets
        columns = [np.concatenate(pair) for pair in zip(rest, others, strict=True)]
        storage = Triplets(np.concatenate([item, other + item.dtype.type(votes.num_items)]), *columns)
    return replace(votes, storage=storage, num_items=2 * votes.num_items, item_names=())


def _oriented(model: GenerativeModel, params: Params, votes: Votes) -> dict[str, np.ndarray]:
    """The parameters with labels oriented by the votes, if the model can relabel them."""
    relabelled = None
    if not model.anchored:
        relabelled = model.relabel(params, orientation(bayes_posterior(model, params, votes), votes))
    return {name: (relabelled or params)[name] for name in structure_of(model).parameter_shapes}


def _names(model: GenerativeModel, labels: bool) -> tuple[str, ...]:
    """The names of the ranked quantities: elements of the parameters and, if asked for, quantities of the labels."""
    structure, found = structure_of(model), []
    for name, shape in structure.parameter_shapes.items():
        found += [f"{name}[{', '.join(map(str, index))}]" if index else name for index in np.ndindex(*shape)]
    if labels:
        numbers = (f"number of label {label}" for label in range(1, structure.num_labels))
        found += ["label of the first item", *numbers, "log probability of all labels"]
    return tuple(found)
