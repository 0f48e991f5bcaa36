"""A program run on its hidden configurations instead of on items.

The run gives two tables, `log p(label, state)` and `log p(vote_i = v | state)`, where a state is a joint value of the
hidden sites on which the votes depend directly. The log-joint of every distinct row of votes is then one matrix
product and one log-sum over states, and everything else follows from it.
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Int
from numpyro import handlers

from latentens.errors import ContractError, ParameterError, VotesError
from latentens.programs.contract import RUN_ALONE, Structure, improper, refuse_too_many, structure_of
from latentens.programs.distributions import is_proper, log_probabilities
from latentens.programs.model import GenerativeModel, Params
from latentens.runtime.blocks import fetch
from latentens.runtime.compilation import compile_quickly
from latentens.votes import Votes
from latentens.votes.matching import check_votes

LOG_ZERO = float(np.log(np.finfo(np.float64).tiny))
"""Stands for the logarithm of probability zero, so that 0 · log 0 is 0 and gradients stay finite."""


class Tables(NamedTuple):
    """A program at given parameters, in JAX or NumPy; also counts or derivatives in the places of its elements.

    `parent` is the label if votes depend on it directly, else of size one.
    """

    log_prior: Float[Any, "label state"]
    log_emission: Float[Any, "parent state voter vote"]


class LaidOut(NamedTuple):
    """A program evaluated at some parameters.

    Attributes:
        tables: The tables.
        log_prior: The log density of the parameters' priors, factors included.
        in_range: For each parameter, whether it is in the support of its prior.
        proper: For each site inside the plate, whether its probabilities are proper.
    """

    tables: Tables
    log_prior: Float[Array, ""]
    in_range: dict[str, Bool[Array, ""]]
    proper: dict[str, Bool[Array, ""]]


def build_tables(model: GenerativeModel, params: Params) -> Tables:
    """Run the program on its configurations. Can be traced and differentiated in the parameters."""
    return lay_out(model, params).tables


def lay_out(model: GenerativeModel, params: Params) -> LaidOut:
    """Run the program on its configurations; unused parts of the result are not computed when compiled."""
    structure = structure_of(model)
    # log p(label, state): one factor per hidden site, multiplied and summed over barren sites
    factors = {name: _log_factor(model, structure, params, name) for name in structure.hidden}
    log_prior = _eliminate(model, structure, [log_factor for log_factor, _ in factors.values()])
    # log p(vote | state): one run with the joint states of the votes' parents as items; the label's axis comes first
    family = _in_order(structure, structure.vote_parents)
    trace = _run(model, structure, params, family)
    votes = trace["vote"]["fn"]
    log_emission = log_probabilities(votes.base_dist, structure.num_vote_classes)
    sizes = [len(structure.hidden[name].support) for name in family]
    log_emission = log_emission.reshape(*sizes, *log_emission.shape[1:])
    if "label" in family:
        log_emission = jnp.moveaxis(log_emission, family.index("label"), 0)
    parents = structure.num_labels if "label" in family else 1
    log_emission = log_emission.reshape(parents, -1, *log_emission.shape[-2:])
    proper = {name: holds for name, (_, holds) in factors.items()} | {"vote": is_proper(votes)}
    in_range = {name: jnp.all(trace[name]["fn"].support(params[name])) for name in structure.parameter_shapes}
    tables = Tables(jnp.maximum(log_prior, LOG_ZERO), jnp.maximum(log_emission, LOG_ZERO))
    return LaidOut(tables, prior_density(trace, structure.parameter_shapes), in_range, proper)


def prior_density(trace: Mapping[str, Any], names: Iterable[str]) -> Float[Array, ""]:
    """The log density of the parameters in a trace of a program, and of its factors."""
    factors = (site for site in trace.values() if site["type"] == "sample" and site["is_observed"])
    sites = [*(trace[name] for name in names), *factors]
    return sum((jnp.sum(site["fn"].log_prob(site["value"])) for site in sites), jnp.array(0.0))


def _log_factor(
    model: GenerativeModel, structure: Structure, params: Params, name: str
) -> tuple[Float[Array, "..."], Bool[Array, ""]]:
    """`log p(site | parents)` with one axis for each hidden site of the program, of size one where it plays no part.

    Also returns whether the probabilities of the site are proper.
    """
    site, proper = structure.hidden[name], jnp.array(True)
    if site.log_weights is not None:
        family, log_factor = [name], jnp.asarray(site.log_weights)
    else:
        family = _in_order(structure, site.parents | {name})
        drawn = _run(model, structure, params, family)[name]
        log_factor, proper = drawn["fn"].log_prob(drawn["value"]), is_proper(drawn["fn"])
    sizes = [len(hidden.support) if hidden.name in family else 1 for hidden in structure.hidden.values()]
    return log_factor.reshape(sizes), proper


def _eliminate(
    model: GenerativeModel, structure: Structure, factors: list[Float[Array, "..."]]
) -> Float[Array, "label state"]:
    """Sum out, last sites first, every hidden site that is neither the label nor a parent of the votes."""
    names = list(structure.hidden)
    kept = structure.vote_parents | {"label"}
    for axis, name in reversed(list(enumerate(names))):
        if name not in kept and len(structure.hidden[name].support) > 1:
            touching = [factor for factor in factors if factor.shape[axis] > 1]
            factors = [factor for factor in factors if factor.shape[axis] == 1]
            factors.append(logsumexp(_product(model, names, touching), axis=axis, keepdims=True))
    joint = _product(model, names, factors)
    return jnp.moveaxis(joint, names.index("label"), 0).reshape(structure.num_labels, -1)


def _product(model: GenerativeModel, names: list[str], factors: list[Float[Array, "..."]]) -> Float[Array, "..."]:
    shape = np.broadcast_shapes(*(factor.shape for factor in factors))
    refuse_too_many(model, {name: size for name, size in zip(names, shape, strict=True) if size > 1})
    return sum(factors[1:], start=factors[0])


def _in_order(structure: Structure, names: frozenset[str]) -> list[str]:
    return [name for name in structure.hidden if name in names]


def _run(model: GenerativeModel, structure: Structure, params: Params, family: list[str]) -> dict[str, dict[str, Any]]:
    """Trace the program with the joint configurations of `family` as its items, other hidden sites held fixed."""
    sizes = {name: len(structure.hidden[name].support) for name in family}
    refuse_too_many(model, sizes)
    index = dict(zip(family, np.indices([*sizes.values()]).reshape(len(family), -1), strict=True))
    num_items = prod(sizes.values())
    fixed = np.zeros(num_items, dtype=int)
    values = {name: jnp.asarray(site.support[index.get(name, fixed)]) for name, site in structure.hidden.items()}
    votes = jnp.zeros((num_items, structure.num_voters), dtype=int)
    with RUN_ALONE, handlers.trace() as trace, handlers.substitute(data={**params, **values, "vote": votes}):
        model.program(num_items)
    return trace


def emits_other_votes(model: GenerativeModel) -> bool:
    """Whether votes of the model can be for categories that are not labels."""
    structure = structure_of(model)
    return hasattr(model, "num_categories") or structure.num_vote_classes > structure.num_labels


def check_form(model: GenerativeModel, votes: Votes) -> Structure:
    """Raise `VotesError` unless the votes are of the form that the program makes."""
    check_votes(votes, str(model))
    structure = structure_of(model)
    if votes.num_voters != structure.num_voters:
        raise VotesError(f"the votes have {votes.num_voters} voters, but {model} has {structure.num_voters}")
    if model.ordered_votes and len(votes.other_names):
        raise VotesError(f"{model} takes grades in order: read the votes with ordered=True")
    form = structure.num_labels, structure.num_vote_classes
    if votes.is_ordered and (votes.num_classes, votes.num_categories) != form:
        raise VotesError(
            f"the votes have {votes.num_categories} grades for {votes.num_classes} classes, but {model} has {form[1]} "
            f"for {form[0]}: give num_classes={votes.num_classes} and num_grades={votes.num_categories}"
        )
    if votes.num_categories > structure.num_vote_classes:
        kind = "categories (classes and other votes)" if len(votes.other_names) else "classes"
        raise VotesError(
            f"the votes have {votes.num_categories} {kind}, but votes of {model} have {structure.num_vote_classes}"
            + (f": give num_categories={votes.num_categories}" if len(votes.other_names) else "")
        )
    if len(votes.other_names) and votes.num_classes != structure.num_labels:
        raise VotesError(
            f"the votes have {votes.num_classes} classes and {len(votes.other_names)} other categories, but {model} "
            f"has {structure.num_labels} labels: give num_classes={votes.num_classes} and "
            f"num_categories={votes.num_categories}"
        )
    return structure


def checked_tables(model: GenerativeModel, params: Params) -> Tables:
    """The tables at the given parameters, which are checked for name, shape and range."""
    tables, _, in_range, proper = _laid_out(model, checked_params(model, params))
    for name, inside in in_range.items():
        if not inside:
            raise ParameterError(f"parameter {name!r} of {model} is out of range")
    for site, holds in proper.items():
        if not holds:
            raise improper(model, site)
    if any(np.isnan(fetch(table)).any() for table in tables):
        raise ParameterError(f"{model} gives a probability of NaN at these parameters")
    return tables


def checked_params(model: GenerativeModel, params: Params) -> dict[str, Float[np.ndarray, "..."]]:
    """The parameters as arrays, if their names and shapes are those of the program."""
    shapes = structure_of(model).parameter_shapes
    for name in [*(shapes.keys() - params.keys()), *(params.keys() - shapes.keys())]:
        fault = "is missing" if name in shapes else "is unknown"
        raise ParameterError(f"parameter {name!r} of {model} {fault}; its parameters are {', '.join(shapes)}")
    arrays = {name: np.asarray(params[name], dtype=np.float64) for name in shapes}
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise ParameterError(f"parameter {name!r} of {model} has shape {array.shape}, expected {shapes[name]}")
    return arrays


_laid_out = compile_quickly(lay_out, static_argnums=0)


class LabelledRows(NamedTuple):
    """Distinct rows of votes, those with different known labels apart.

    Attributes:
        votes: One item per row.
        counts: Number of items of each row.
        inverse: The row of each item.
        gold: The known label of each row, −1 where it is unknown.
        num_labels: Number of labels.
    """

    votes: Votes
    counts: Int[np.ndarray, " row"]
    inverse: Int[np.ndarray, " item"]
    gold: Int[np.ndarray, " row"]
    num_labels: int

    @property
    def allowed(self) -> Bool[np.ndarray, "row label"]:
        """The labels that a row may have."""
        return (self.gold[:, None] < 0) | (self.gold[:, None] == np.arange(self.num_labels))

    @property
    def log_allowed(self) -> Float[np.ndarray, "row label"]:
        """Zero where a row may have a label, −∞ where a known label rules it out."""
        return np.where(self.allowed, 0.0, -np.inf)


def labelled_rows(votes: Votes, gold: Int[np.ndarray, " item"] | None, num_labels: int | None = None) -> LabelledRows:
    """The distinct rows of votes, those with a known label apart from those without.

    Args:
        votes: The votes.
        gold: The code of each item's true label, −1 where it is unknown; None if none is known.
        num_labels: Number of labels, by default that of the classes.
    """
    rows, counts, inverse = votes.patterns
    num_labels = num_labels or votes.num_classes
    if gold is None:
        return LabelledRows(rows, counts, inverse, np.full(len(counts), -1), num_labels)
    pair = inverse.astype(np.int64) * (num_labels + 1) + gold + 1
    pairs, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    row, label = np.divmod(pairs, num_labels + 1)
    return LabelledRows(rows.take(row), counts, inverse, label - 1, num_labels)


def check_fittable(model: GenerativeModel) -> None:
    """Raise `ContractError` if votes hold no information about the label."""
    if not structure_of(model).label_informs_votes:
        raise ContractError(
            f"{model}: site 'label' is not an ancestor of 'vote', so votes hold no information about the label; "
            "use simulate and bayes_posterior with known parameters, or a model whose votes depend on the label"
        )
