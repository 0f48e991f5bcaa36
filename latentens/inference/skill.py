"""How good each voter is under a fitted program, and how well the votes determine that."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints

from latentens.errors import LatentensError
from latentens.inference.independent_skill import count_by_label
from latentens.inference.skill_record import COVERAGE, DRAWS, INFORMATION, VoterSkill, as_fitted, lay_out
from latentens.inference.smooth_errors import errors_of
from latentens.programs.contract import inspect
from latentens.programs.marginal import (
    Observations,
    marginal_log_likelihood,
    observe,
    parameter_supports,
    unpack,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.row_sums import Tables
from latentens.programs.tables import bayes_posterior, build_tables
from latentens.programs.transforms import to_point
from latentens.runtime.devices import fetch
from latentens.runtime.precision import double_precision
from latentens.runtime.quick_compilation import compile_quickly
from latentens.votes import Votes

MAX_PARAMETERS = 2_000
"""With more parameters the information matrix is not computed, and labels are taken as the fit has them."""


@double_precision
def estimated_skill(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    order: Int[np.ndarray, " label"] | None = None,
    use_prior: bool = False,
    level: float = COVERAGE,
) -> VoterSkill:
    """Skill at a point estimate, with errors from the observed information: the curvature of the log-likelihood.

    Errors of the parameters in unconstrained space carry over to skills by their derivatives; the interval is
    symmetric in the log-odds. An estimate at its bound, where curvature says nothing, is moved half a vote inside.

    Args:
        model: The generative model.
        params: Its estimated parameters.
        votes: The votes that they were estimated from.
        order: The label k of the result is the label `order[k]` of the parameters.
        use_prior: Whether the estimate is that of the posterior mode.
        level: Coverage of the intervals.
    """
    _refuse_other_classes(model)
    order = np.arange(inspect(model).num_labels) if order is None else order
    inside = _inside(model, params, votes)
    point = to_point(model, inside)
    slopes = fetch(_skill_slopes(model, point, order))
    found, centre = (fetch(_skills(model, each, order)) for each in (params, inside))
    if slopes.shape[1] > MAX_PARAMETERS:
        probs = bayes_posterior(model, params, votes)[:, order]
        return as_fitted(found, count_by_label(votes, probs), probs.mean(axis=0), level)
    observations, _ = observe(model, votes)
    information = fetch(_information(model, use_prior, point, observations))
    number = np.bincount(votes.triplets.voter, minlength=votes.num_voters)
    return lay_out(found, errors_of(information, slopes), number, level, INFORMATION, centre=centre)


@double_precision
def sampled_skill(
    model: GenerativeModel,
    draws: Params,
    votes: Votes,
    *,
    orders: Int[np.ndarray, "draw label"] | None = None,
    level: float = COVERAGE,
) -> VoterSkill:
    """Skill at posterior draws: means, standard deviations and central intervals.

    Args:
        model: The generative model.
        draws: Draws of the parameters, with leading axes (chain, draw).
        votes: The votes that they were drawn for.
        orders: The label k of a draw is the label `order[k]` of its parameters.
        level: Coverage of the intervals.
    """
    _refuse_other_classes(model)
    names, num_labels = inspect(model).parameter_shapes, inspect(model).num_labels
    flat = {name: np.reshape(draws[name], (-1, *draws[name].shape[2:])) for name in names}
    num_draws, num_voters = len(next(iter(flat.values()))), votes.num_voters
    orders = np.broadcast_to(np.arange(num_labels), (num_draws, num_labels)) if orders is None else orders
    drawn = fetch(_skills_of_draws(model, flat, orders))
    number = np.bincount(votes.triplets.voter, minlength=num_voters)
    skill = lay_out(drawn.mean(axis=0), drawn.std(axis=0, ddof=1), number, level, DRAWS)
    ends = np.quantile(drawn[:, : 2 * num_voters], [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = (np.where(number > 0, end.reshape(2, num_voters), np.nan) for end in ends)
    return skill._replace(
        accuracy_low=low[0], accuracy_high=high[0], balanced_accuracy_low=low[1], balanced_accuracy_high=high[1]
    )


def _refuse_other_classes(model: GenerativeModel) -> None:
    structure = inspect(model)
    if structure.num_labels != structure.num_vote_classes:
        raise LatentensError(f"labels and votes of {model} are of different classes, so that nobody is right or wrong")


def skills(tables: Tables, order: Int[Array, " label"]) -> Float[Array, " skill"]:
    """Accuracies of all voters, then their balanced accuracies, then their confusion matrices."""
    prior = jnp.exp(tables.log_prior)[order]
    shares = prior.sum(axis=1)
    emission = jnp.exp(tables.log_emission)
    if len(emission) > 1:
        confusion = jnp.einsum("ks,ksiv->ikv", prior / shares[:, None], emission[order])
    else:
        confusion = jnp.einsum("ks,siv->ikv", prior / shares[:, None], emission[0])
    accuracy = jnp.einsum("k,ikk->i", shares / shares.sum(), confusion)
    balanced = jnp.einsum("ikk->i", confusion) / len(shares)
    return jnp.concatenate([accuracy, balanced, confusion.ravel()])


def _inside(model: GenerativeModel, params: Params, votes: Votes) -> dict[str, np.ndarray]:
    """Probabilities at their bounds moved half a vote inside."""
    margin = 0.5 / (votes.tally.sum() / votes.num_voters + 1)
    moved = {name: np.asarray(value, dtype=float) for name, value in params.items()}
    for name, support in parameter_supports(model).items():
        if support is constraints.unit_interval:
            moved[name] = moved[name].clip(margin, 1 - margin)
        elif support is constraints.simplex:
            inside = np.maximum(moved[name], margin)
            moved[name] = inside / inside.sum(axis=-1, keepdims=True)
    return moved


@partial(compile_quickly, static_argnums=0)
def _skills(model: GenerativeModel, params: Any, order: Any) -> Float[Array, " skill"]:
    return skills(build_tables(model, params), order)


@partial(jax.jit, static_argnums=0)
def _skills_of_draws(model: GenerativeModel, draws: Any, orders: Any) -> Float[Array, "draw skill"]:
    return jax.lax.map(lambda each: skills(build_tables(model, each[0]), each[1]), (draws, orders))


@partial(jax.jit, static_argnums=0)
def _skill_slopes(model: GenerativeModel, point: Any, order: Any) -> Float[Array, "skill parameter"]:
    flat, unravel = ravel_pytree(point)
    return jax.jacfwd(lambda at: skills(build_tables(model, unpack(model, unravel(at)).params), order))(flat)


@partial(jax.jit, static_argnums=(0, 1))
def _information(
    model: GenerativeModel, use_prior: bool, point: Any, observations: Observations
) -> Float[Array, "parameter parameter"]:
    """The Hessian of the negative log-likelihood, or log posterior density, column by column."""
    flat, unravel = ravel_pytree(point)

    def loss(at: Array) -> Array:
        unpacked = unpack(model, unravel(at))
        total = marginal_log_likelihood(build_tables(model, unpacked.params), observations)
        return -(total + unpacked.log_prior if use_prior else total)

    return jax.lax.map(lambda direction: jax.jvp(jax.grad(loss), (flat,), (direction,))[1], jnp.eye(flat.size))
