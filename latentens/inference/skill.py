"""How good each voter is under a fitted program, and how well the votes determine that."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints
from scipy.linalg import eigh
from scipy.special import expit, logit
from scipy.stats import norm

from latentens.errors import LatentensError
from latentens.programs.contract import inspect
from latentens.programs.marginal import (
    Observations,
    marginal_log_likelihood,
    observe,
    parameter_supports,
    to_point,
    unpack,
)
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import Tables, bayes_posterior, build_tables
from latentens.runtime.devices import fetch
from latentens.runtime.precision import double_precision
from latentens.votes import Votes

MAX_PARAMETERS = 2_000
"""With more parameters the information matrix is not computed, and labels are taken as the fit has them."""

UNIDENTIFIED = 1e-9
"""A direction with less than this share of the largest information is not determined by the votes."""

REACHED = 1e-6
"""A skill that changes by less than this along such a direction does not depend on it."""

PerVoter = Float[np.ndarray, " voter"]


class VoterSkill(NamedTuple):
    """How good each voter is.

    Attributes:
        accuracy: Probability of a right vote on an item like the fitted ones.
        standard_error: Its standard error, infinite where the votes do not determine it.
        low: Lower end of its interval.
        high: Upper end.
        confusion: Probability of each vote given the label.
        confusion_error: Its standard error.
        labels_as_fitted: Whether errors take the fitted labels as known, which makes them too small.
    """

    accuracy: PerVoter
    standard_error: PerVoter
    low: PerVoter
    high: PerVoter
    confusion: Float[np.ndarray, "voter label vote"]
    confusion_error: Float[np.ndarray, "voter label vote"]
    labels_as_fitted: bool = False


@double_precision
def estimated_skill(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    order: Int[np.ndarray, " label"] | None = None,
    use_prior: bool = False,
    level: float = 0.9,
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
    if slopes.shape[1] > MAX_PARAMETERS:
        return _as_fitted(model, params, votes, order, level)
    observations, _ = observe(model, votes)
    information = fetch(_information(model, use_prior, point, observations))
    found, centre = (fetch(_skills(model, each, order)) for each in (params, inside))
    return _laid_out(found, _errors(information, slopes), votes.num_voters, level, centre)


@double_precision
def sampled_skill(
    model: GenerativeModel, draws: Params, orders: Int[np.ndarray, "draw label"] | None = None, *, level: float = 0.9
) -> VoterSkill:
    """Skill at posterior draws: means, standard deviations and central intervals.

    Args:
        model: The generative model.
        draws: Draws of the parameters, with leading axes (chain, draw).
        orders: The label k of a draw is the label `order[k]` of its parameters.
        level: Coverage of the intervals.
    """
    _refuse_other_classes(model)
    names, num_labels = inspect(model).parameter_shapes, inspect(model).num_labels
    flat = {name: np.reshape(draws[name], (-1, *draws[name].shape[2:])) for name in names}
    number = len(next(iter(flat.values())))
    orders = np.broadcast_to(np.arange(num_labels), (number, num_labels)) if orders is None else orders
    drawn = fetch(_skills_of_draws(model, flat, orders))
    num_voters = inspect(model).num_voters
    skill = _laid_out(drawn.mean(axis=0), drawn.std(axis=0, ddof=1), num_voters, level)
    low, high = np.quantile(drawn[:, :num_voters], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return skill._replace(low=low, high=high)


def _refuse_other_classes(model: GenerativeModel) -> None:
    structure = inspect(model)
    if structure.num_labels != structure.num_vote_classes:
        raise LatentensError(f"labels and votes of {model} are of different classes, so that nobody is right or wrong")


def skills(tables: Tables, order: Int[Array, " label"]) -> Float[Array, " skill"]:
    """Accuracies of all voters, then their confusion matrices."""
    prior = jnp.exp(tables.log_prior)[order]
    shares = prior.sum(axis=1)
    emission = jnp.exp(tables.log_emission)
    if len(emission) > 1:
        confusion = jnp.einsum("ks,ksiv->ikv", prior / shares[:, None], emission[order])
    else:
        confusion = jnp.einsum("ks,siv->ikv", prior / shares[:, None], emission[0])
    accuracy = jnp.einsum("k,ikk->i", shares / shares.sum(), confusion)
    return jnp.concatenate([accuracy, confusion.ravel()])


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


def _errors(
    information: Float[np.ndarray, "parameter parameter"], slopes: Float[np.ndarray, "skill parameter"]
) -> Float[np.ndarray, " skill"]:
    """Standard errors of functions of the parameters."""
    size = np.sqrt(np.abs(np.diag(information)))
    size = np.where(size > 0, size, 1.0)
    values, vectors = eigh(information / np.outer(size, size))
    along = (slopes / size) @ vectors
    known = values > UNIDENTIFIED * values[-1]
    errors = np.sqrt((along[:, known] ** 2 / values[known]).sum(axis=1))
    return np.where((np.abs(along[:, ~known]) > REACHED).any(axis=1), np.inf, errors)


def _as_fitted(
    model: GenerativeModel, params: Params, votes: Votes, order: Int[np.ndarray, " label"], level: float
) -> VoterSkill:
    """Errors of frequencies, the labels taken as the fit has them."""
    found = fetch(_skills(model, params, order))
    probs = bayes_posterior(model, params, votes)[:, order]
    item, voter, _ = votes.triplets
    seen = np.stack([np.bincount(voter, column[item], minlength=votes.num_voters) for column in probs.T], axis=1)
    confusion = found[votes.num_voters :].reshape(votes.num_voters, len(order), -1)
    error = np.sqrt(confusion * (1 - confusion) / np.maximum(seen, 0.5)[:, :, None])
    of_right = np.einsum("k,ikk->ik", probs.mean(axis=0), error)
    errors = np.concatenate([np.sqrt((of_right**2).sum(axis=1)), error.ravel()])
    return _laid_out(found, errors, votes.num_voters, level)._replace(labels_as_fitted=True)


def _laid_out(
    found: Float[np.ndarray, " skill"],
    errors: Float[np.ndarray, " skill"],
    num_voters: int,
    level: float,
    centre: Float[np.ndarray, " skill"] | None = None,
) -> VoterSkill:
    """Skills with their errors; intervals lie around a centre that is not at a bound."""
    accuracy, error = found[:num_voters], errors[:num_voters]
    num_labels = round(((len(found) - num_voters) / num_voters) ** 0.5)
    shape = num_voters, num_labels, num_labels
    inside = (accuracy if centre is None else centre[:num_voters]).clip(1e-9, 1 - 1e-9)
    reach = norm.ppf((1 + level) / 2) * np.minimum(error / (inside * (1 - inside)), 1e3)
    low = np.minimum(expit(logit(inside) - reach), accuracy)
    high = np.maximum(expit(logit(inside) + reach), accuracy)
    return VoterSkill(accuracy, error, low, high, found[num_voters:].reshape(shape), errors[num_voters:].reshape(shape))


@partial(jax.jit, static_argnums=0)
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
