"""Which programs do the votes leave possible? Each is fitted to them, and judged by votes that its fit has not seen."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float

from latentens.checks.fit_check import check_fit
from latentens.comparison.cell import Cell, Outcome
from latentens.comparison.sweep import cells_of
from latentens.datasets.dataset import Dataset
from latentens.errors import LatentensError
from latentens.inference.orient import orientation
from latentens.methods import DawidSkeneEM, MaximumLikelihood, TopDownMLE
from latentens.methods.base import Arrays, Estimate, Fit, Method, Posterior, model_params
from latentens.models import DawidSkene
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import bayes_posterior, pointwise_log_likelihood
from latentens.recommendation.catalogue import World
from latentens.runtime.numerics import double_precision, numpy_generator
from latentens.votes import Votes

FOLDS = 5
LEAST_TESTED = 1000
"""Folds are held out one after the other until so many items have been."""

MISFIT = 0.01
"""A program is contradicted by the votes if its predictive check has a p-value up to this."""

MOST_CHANGED = 0.05
"""A fit leaves its label open if more labels than this change at another optimum that fits about as well."""

REFIT_SLOPE = 1e-5
"""Largest entry of the gradient per item at which a refit has converged."""

PerItem = Float[np.ndarray, " item"]


@dataclass(frozen=True, eq=False)
class FittedWorld:
    """A program fitted to the votes.

    Attributes:
        name: What the world is called.
        method_name: The method that fitted it, as the command line takes it.
        method: That method.
        model: The program.
        params: Its parameters.
        posterior: What it says about the labels of the votes.
        open_label: Why the votes leave its label open; empty where they do not.
        held_out: The log-likelihood of the items that were held out.
        check_p_value: Probability under the program of votes as strange as these; nan where they cannot be checked.
        check_words: What the check found.
    """

    name: str
    method_name: str
    method: Method
    model: GenerativeModel
    params: Arrays
    posterior: Posterior
    open_label: str = ""
    held_out: PerItem | None = None
    check_p_value: float = np.nan
    check_words: str = ""

    @property
    def num_parameters(self) -> int:
        """How many parameters the program has."""
        return sum(np.size(value) for value in self.params.values())

    @property
    def contradicted(self) -> bool:
        """Whether the votes contradict the program."""
        return self.check_p_value <= MISFIT

    @property
    def refit(self) -> Method:
        """What fits the same program, its groups or hidden units included, to other votes: from its parameters here."""
        if isinstance(self.method, DawidSkeneEM):
            return self.method
        own = MaximumLikelihood(self.model, use_prior=isinstance(self.method, TopDownMLE))
        base = self.method if isinstance(self.method, MaximumLikelihood) else own
        return replace(base, starts=0, warm=(), initial=(self.params,), tolerance=base.tolerance or REFIT_SLOPE)


def fit_cells(dataset: Dataset, worlds: Mapping[str, World], key: jax.Array) -> list[Cell]:
    """The fit of each world to all votes."""
    return cells_of(dataset, {world.method_name: world.make for world in worlds.values()}, key)


@double_precision
def fitted_worlds(
    votes: Votes, worlds: Mapping[str, World], cells: Sequence[Cell], outcomes: Sequence[Outcome]
) -> tuple[list[FittedWorld], dict[str, str]]:
    """The worlds whose fits went well, and why others have none.

    Args:
        votes: The votes.
        worlds: The worlds by name.
        cells: Those of `fit_cells`.
        outcomes: What came of them.
    """
    fitted, absent = list[FittedWorld](), dict[str, str]()
    by_method = {cell.name: (cell.method, outcome) for cell, outcome in zip(cells, outcomes, strict=True)}
    for name, world in worlds.items():
        try:
            made = _fitted(name, world.method_name, *by_method[world.method_name], votes)
            if type(made.model) is DawidSkene and any(type(other.model) is DawidSkene for other in fitted):
                notes = json.loads(by_method[world.method_name][1].diagnostics).get("notes")
                reason = notes[0] if notes else "its fit came to voters who err independently, as in another world"
                raise LatentensError(reason)
            fitted.append(made)
        except LatentensError as error:
            absent[name] = str(error)
    return fitted, absent


def _fitted(name: str, method_name: str, method: Method, outcome: Outcome, votes: Votes) -> FittedWorld:
    model, params = world_of(method, outcome)
    probs = bayes_posterior(model, params, votes)
    if not np.array_equal(orientation(probs, votes), np.arange(probs.shape[1])):
        raise LatentensError("the order of its labels does not follow the votes")
    return FittedWorld(name, method_name, method, model, params, probs, open_label(outcome))


def open_label(outcome: Outcome) -> str:
    """Why the label of a fit is not identified, as the fit says; empty where it is."""
    diagnostics = json.loads(outcome.diagnostics)
    if diagnostics.get("identified") is False:
        said = [str(words) for words in diagnostics.get("warnings", ()) if "not identified" in words]
        return said[0] if said else "the label is not identified"
    change = diagnostics.get("label_change") or 0.0
    if change > MOST_CHANGED:
        return f"{100 * change:.0f}\u00a0% of its labels change at another optimum that fits about as well"
    return ""


def world_of(method: Method, outcome: Outcome) -> tuple[GenerativeModel, Arrays]:
    """The program of a fit and its parameters."""
    if outcome.error:
        raise LatentensError(f"its fit failed: {outcome.error}")
    estimate = Estimate(outcome.params)
    model = method.fitted_model(estimate)
    if model is None or outcome.draws:
        raise LatentensError(f"{method} is no point estimate of a generative model, from which twins could be drawn")
    return model, model_params(model, estimate)


def held_out_cells(dataset: Dataset, worlds: Sequence[FittedWorld], key: jax.Array) -> list[Cell]:
    """The fits of the worlds without each of the folds that are held out."""
    methods, cells = {world.name: world.refit for world in worlds}, []
    for number, (seen, _) in enumerate(_folds(dataset.votes, key)):
        part = Dataset(f"{dataset.name}, fold {number}", dataset.votes.take(seen), dataset.labels[seen])
        cells += cells_of(part, methods, key)
    return cells


@double_precision
def with_held_out(
    worlds: Sequence[FittedWorld], votes: Votes, cells: Sequence[Cell], outcomes: Sequence[Outcome], key: jax.Array
) -> list[FittedWorld]:
    """The worlds with the log-likelihood of what was held out; the arguments are those of `held_out_cells`."""
    folds, values = _folds(votes, key), {world.name: list[PerItem]() for world in worlds}
    for number, (cell, outcome) in enumerate(zip(cells, outcomes, strict=True)):
        _, unseen = folds[number // len(worlds)]
        model, params = world_of(cell.method, outcome)
        values[cell.name].append(pointwise_log_likelihood(model, params, votes.take(unseen)))
    return [replace(world, held_out=np.concatenate(values[world.name])) for world in worlds]


def _folds(votes: Votes, key: jax.Array) -> list[tuple[np.ndarray, np.ndarray]]:
    """Items seen and not seen, for as many folds as have items enough."""
    folds = min(FOLDS, votes.num_items)
    fold = numpy_generator(key).permutation(votes.num_items) % folds
    number = min(folds, -(-LEAST_TESTED * folds // votes.num_items))
    return [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(number)]


def checked(world: FittedWorld, votes: Votes, key: jax.Array) -> FittedWorld:
    """The world with the result of its predictive check, where there is one."""
    try:
        check = check_fit(_as_fit(world, votes), votes, key=key)
    except LatentensError as error:
        return replace(world, check_words=str(error))
    return replace(world, check_p_value=check.p_value, check_words=check.summary)


def _as_fit(world: FittedWorld, votes: Votes) -> Fit:
    return Fit(
        world.params,
        label_probs=world.posterior,
        method=MaximumLikelihood(world.model),
        item_names=votes.item_names,
        voter_names=votes.voter_names,
        class_names=votes.class_names,
        source=votes,
    )
