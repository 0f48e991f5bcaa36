"""The skill of voters under a fitted model, with standard errors and intervals."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints
from scipy import sparse
from scipy.linalg import eigh
from scipy.special import expit, logit, ndtri

from latentens.errors import LatentensError
from latentens.inference.independent import Confusion, Posterior, count_by_label, posterior_of_votes
from latentens.inference.optimise import hessian
from latentens.models import DawidSkene
from latentens.programs.contract import structure_of
from latentens.programs.likelihood import Observations, bayes_posterior, marginal_log_likelihood, observe
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.parameters import parameter_supports, to_point, unpack
from latentens.programs.tables import Tables, build_tables
from latentens.runtime.blocks import fetch
from latentens.runtime.compilation import compile_quickly
from latentens.runtime.numerics import SMALLEST, double_precision
from latentens.runtime.parallel import one_blas_thread
from latentens.votes import Votes
from latentens.votes.layout import count_votes
from latentens.votes.matching import certain_where_known


def scaled_spectrum(
    information: Float[np.ndarray, "parameter parameter"],
) -> tuple[Float[np.ndarray, " direction"], Float[np.ndarray, "parameter direction"], Float[np.ndarray, " parameter"]]:
    """Eigenvalues, in increasing order, and eigenvectors of an information in units in which its diagonal is one.

    The last array has these units: the square roots of the diagonal.
    """
    size = np.sqrt(np.abs(np.diag(information)))
    size = np.where(size > 0, size, 1.0)
    return *eigh(information / np.outer(size, size)), size


def errors_of(
    information: Float[np.ndarray, "parameter parameter"],
    slopes: Float[np.ndarray, "function parameter"],
    *,
    unidentified: float = 1e-9,
    reached: float = 1e-6,
) -> Float[np.ndarray, " function"]:
    """Standard errors of functions of the parameters, infinite where the information does not determine them.

    Args:
        information: The information about the parameters.
        slopes: Derivatives of the functions.
        unidentified: A direction with less than this share of the largest information is not determined by the votes.
        reached: A function that changes by less than this along such a direction does not depend on it.
    """
    values, vectors, size = scaled_spectrum(information)
    along = (slopes / size) @ vectors
    known = values > unidentified * values[-1]
    errors = np.sqrt((along[:, known] ** 2 / values[known]).sum(axis=1))
    return np.where((np.abs(along[:, ~known]) > reached).any(axis=1), np.inf, errors)


COVERAGE = 0.95
"""Default coverage of intervals."""

INFORMATION = "observed information"
DRAWS = "posterior draws"
AS_FITTED = "labels taken as fitted: too narrow"
NOT_KNOWN = "not known"

CHANCE = "no better than chance"
REVERSED = "worse than chance: votes the other way round"
WORSE = "worse than chance"
SILENT = "no votes"

PerVoter = Float[np.ndarray, " voter"]


class VoterSkill(NamedTuple):
    """The skill of each voter; NaN where it is unknown.

    Chance is a balanced accuracy of 1/K, that of any voter whose votes do not depend on the item. Votes that are not
    for a class, such as "unsure", are neither right nor wrong and do not count in accuracies. A grade is a vote for
    the class given by `Votes.class_of_vote`.

    Attributes:
        votes: Number of votes.
        accuracy: Probability of a right vote on an item like the fitted ones.
        accuracy_error: Its standard error, infinite where the votes do not determine it.
        accuracy_low: Lower end of its interval.
        accuracy_high: Upper end.
        balanced_accuracy: Mean over the labels of the probability of a right vote.
        balanced_accuracy_error: Its standard error.
        balanced_accuracy_low: Lower end of its interval.
        balanced_accuracy_high: Upper end.
        confusion: Probability of each vote given the label.
        confusion_error: Its standard error.
        intervals: How standard errors and intervals were obtained.
    """

    votes: Int[np.ndarray, " voter"]
    accuracy: PerVoter
    accuracy_error: PerVoter
    accuracy_low: PerVoter
    accuracy_high: PerVoter
    balanced_accuracy: PerVoter
    balanced_accuracy_error: PerVoter
    balanced_accuracy_low: PerVoter
    balanced_accuracy_high: PerVoter
    confusion: Confusion
    confusion_error: Confusion
    intervals: str

    @property
    def flags(self) -> list[str]:
        """A remark on each voter, or an empty string; based on the estimate if there is no interval."""
        chance = 1 / self.confusion.shape[1]
        worse = REVERSED if self.confusion.shape[1] == 2 else WORSE
        low = np.where(np.isnan(self.balanced_accuracy_low), self.balanced_accuracy, self.balanced_accuracy_low)
        return [
            SILENT if not votes else worse if high < chance else CHANCE if least <= chance else ""
            for votes, least, high in zip(self.votes, low, self.balanced_accuracy_high, strict=True)
        ]


def lay_out(
    found: Float[np.ndarray, " skill"],
    errors: Float[np.ndarray, " skill"],
    votes: Int[np.ndarray, " voter"],
    level: float,
    intervals: str,
    *,
    num_labels: int,
    centre: Float[np.ndarray, " skill"] | None = None,
) -> VoterSkill:
    """The record of estimates and standard errors, in the order of `skills_of`.

    Args:
        found: The estimates.
        errors: Their standard errors; NaN where they are not known.
        votes: Number of votes of each voter.
        level: Coverage of the intervals, which are symmetric in the log-odds.
        intervals: How standard errors were obtained.
        num_labels: Number of labels, of which confusion matrices have a row each.
        centre: The centres of the intervals; by default the estimates. Needed if these may be at a bound.
    """
    num_voters = len(votes)
    inside = (found if centre is None else centre).clip(1e-9, 1 - 1e-9)
    reach = ndtri((1 + level) / 2) * np.minimum(errors / (inside * (1 - inside)), 1e3)
    low, high = np.minimum(expit(logit(inside) - reach), found), np.maximum(expit(logit(inside) + reach), found)
    silent = votes <= 0
    rates = [
        np.where(silent, np.nan, part[start : start + num_voters])
        for start in (0, num_voters)
        for part in (found, errors, low, high)
    ]
    shape = num_voters, num_labels, -1
    confusions = [part[2 * num_voters :].reshape(shape) for part in (found, errors)]
    return VoterSkill._make((votes, *rates, *confusions, intervals))


Says = Float[np.ndarray, "vote label"]
"""Which class each vote is for."""


def says_of(votes: Votes) -> Says:
    """Which class each vote is for; none for votes such as "unsure"."""
    return np.equal.outer(votes.class_of_vote, np.arange(votes.num_classes)).astype(float)


def skills_of(shares: Float[np.ndarray, " label"], confusion: Confusion, says: Says) -> Float[np.ndarray, " skill"]:
    """Accuracies of all voters, then their balanced accuracies, then their confusion matrices.

    Args:
        shares: Shares of the labels.
        confusion: Confusion matrices.
        says: Which class each vote is for.
    """
    return np.concatenate([*_accuracies(shares, confusion, says), confusion.ravel()])


def _accuracies(shares: Any, confusion: Any, says: Any) -> tuple[Any, Any]:
    """Accuracy and balanced accuracy of each voter; arrays of NumPy or JAX."""
    right, cast = _right_and_cast(confusion, says)
    return (right @ shares) / (cast @ shares), (right / cast).mean(axis=1)


def _right_and_cast(confusion: Any, says: Any) -> tuple[Any, Any]:
    """The probabilities (voter, label) of a right vote and of a vote for any class, given the label."""
    return (confusion * says.T).sum(axis=2), (confusion @ says.sum(axis=1)).clip(SMALLEST)


def as_fitted(
    found: Float[np.ndarray, " skill"],
    counts: Confusion,
    shares: Float[np.ndarray, " label"],
    level: float,
    says: Says,
) -> VoterSkill:
    """Skill with the standard errors of frequencies, the fitted labels taken as known.

    Args:
        found: The estimates.
        counts: How often each voter cast each vote, by label.
        shares: Shares of the labels.
        level: Coverage of the intervals.
        says: Which class each vote is for.
    """
    num_voters, num_labels, _ = counts.shape
    confusion = found[2 * num_voters :].reshape(counts.shape)
    error = np.sqrt(confusion * (1 - confusion) / np.maximum(counts.sum(axis=2), 0.5)[:, :, None])
    right, cast = _right_and_cast(confusion, says)
    rate, number = right / cast, np.maximum(counts @ says.sum(axis=1), 0.5)
    of_right = np.sqrt((rate * (1 - rate)).clip(0) / number)
    means = [np.sqrt((of_right**2) @ weights**2) for weights in (shares, np.full(num_labels, 1 / num_labels))]
    votes = counts.sum(axis=(1, 2)).round().astype(int)
    return lay_out(found, np.concatenate([*means, error.ravel()]), votes, level, AS_FITTED, num_labels=num_labels)


def without_intervals(
    found: Float[np.ndarray, " skill"], votes: Int[np.ndarray, " voter"], num_labels: int
) -> VoterSkill:
    """Estimates with unknown standard errors."""
    return lay_out(found, np.full_like(found, np.nan), votes, COVERAGE, NOT_KNOWN, num_labels=num_labels)


Shares = Float[np.ndarray, " label"]
Codes = Int[np.ndarray, " item"]

Information = Float[np.ndarray, "parameter parameter"]


@one_blas_thread()
def independent_skill(
    shares: Shares,
    confusion: Confusion,
    votes: Votes,
    known: Codes | None = None,
    *,
    added: Confusion | None = None,
    level: float = COVERAGE,
    max_parameters: int = 1_000,
    max_products: float = 2e10,
    most_added: float = 2.0,
) -> VoterSkill:
    """Skill of independent voters with standard errors from the observed information, in closed form.

    An estimate at its bound, where the curvature is not informative, is moved half a vote inside.

    Args:
        shares: Estimated shares of the labels.
        confusion: Estimated confusion matrices.
        votes: The votes that they were estimated from.
        known: The code of each item's label, −1 where it is unknown, if some were known.
        added: Pseudo-counts added to each voter's counts; the smallest of them is added to that of each class.
        level: Coverage of the intervals.
        max_parameters: With more parameters the labels are taken as fitted: the time grows with their cube.
        max_products: The same for more products than this.
        most_added: Pseudo-counts are scaled down to this many votes per entry of the confusion matrix. Half or twice
            as many change the coverage of 95 % intervals on simulated crowds by a point or two.
    """
    says = says_of(votes)
    found, size = skills_of(shares, confusion, says), shares.size + confusion.size
    number = votes.cast_by_voter
    margin = 0.5 / (number.mean() + 1)
    shares, confusion = (_shares_inside(part, margin) for part in (shares, confusion))
    probs = posterior_of_votes(votes, shares, confusion)
    probs = probs if known is None else certain_where_known(probs, known)
    counts = count_by_label(votes, probs)
    if size > max_parameters or votes.num_items * size**2 > max_products:
        return as_fitted(found, counts, shares, level, says)
    added = np.zeros(confusion.shape) if added is None else added
    # It makes the information of few votes positive definite, and must not stand for knowledge of the voter.
    most = most_added * added[0].size
    added = added * (most / np.maximum(added.sum(axis=(1, 2)), most))[:, None, None]
    # parameters are log shares, then log confusion matrices by voter and label: their derivatives are these blocks
    distributions = [shares, *confusion.reshape(-1, confusion.shape[2])]
    curvatures = [sparse.coo_array(np.diag(each) - np.outer(each, each)) for each in distributions]
    seen = [votes.num_items + len(shares) * added.min(), *(counts + added).sum(axis=2).ravel()]
    complete = sparse.block_diag([times * each for times, each in zip(seen, curvatures, strict=True)])
    information = complete.toarray() - _missing(confusion, votes, probs)
    errors = errors_of(information, _skill_derivatives(shares, confusion, says) @ sparse.block_diag(curvatures))
    # without the pseudo-counts errors are larger by this factor, exactly so where labels are known
    larger = np.sqrt((number + added.sum(axis=(1, 2))) / np.maximum(number, 0.5))
    errors = errors * np.concatenate([larger, larger, np.repeat(larger, added[0].size)])
    centre = skills_of(shares, confusion, says)
    if added.any():  # around frequencies that pseudo-counts draw nowhere; the estimate if a voter never met the label
        cast = counts.sum(axis=2, keepdims=True)
        frequencies = np.where(cast > 0.5, counts / np.maximum(cast, 0.5), confusion)
        centre = skills_of(shares, _shares_inside(frequencies, margin), says)
    return lay_out(found, errors, number, level, INFORMATION, num_labels=len(shares), centre=centre)


def _shares_inside(probs: np.ndarray, margin: float) -> np.ndarray:
    """Probabilities at their bounds moved inside."""
    moved = np.maximum(probs, margin)
    return moved / moved.sum(axis=-1, keepdims=True)


def _missing(confusion: Confusion, votes: Votes, label_probs: Posterior) -> Information:
    """The information lost because labels are unknown: the posterior variance of the complete-data score."""
    _, num_labels, num_votes = confusion.shape
    size = num_labels + confusion.size
    # where the entries of each label are among the parameters
    places = np.arange(num_labels, size).reshape(confusion.shape).swapaxes(0, 1).reshape(num_labels, -1)
    found = np.zeros((size, size))
    for start, block in votes.blocks():
        cast = count_votes(block, num_votes)
        probs, mean = label_probs[start : start + block.num_items], np.empty((block.num_items, size))
        mean[:, :num_labels] = probs
        for label, place in enumerate(places):
            # the score if this were the label: the votes less what is expected of those who voted
            expected = cast.sum(axis=2, keepdims=True) * confusion[:, label]
            deviation = (cast - expected).reshape(block.num_items, -1)
            weighted = probs[:, [label]] * deviation
            mean[:, place] = weighted
            found[label, label] += probs[:, label].sum()
            found[label, place] += weighted.sum(axis=0)
            found[place, label] += weighted.sum(axis=0)
            found[np.ix_(place, place)] += weighted.T @ deviation
        found -= mean.T @ mean
    return found


def _skill_derivatives(shares: Shares, confusion: Confusion, says: Says) -> Float[np.ndarray, "skill probability"]:
    """The derivatives of `skills_of` by shares and confusion matrices: a rate is right votes by votes for classes."""
    num_voters, num_labels, _ = confusion.shape
    (right, cast), for_any = _right_and_cast(confusion, says), says.sum(axis=1)
    total = cast @ shares
    accuracy, rates = (right @ shares) / total, right / cast
    by_shares = np.zeros((2, num_voters, num_labels))
    by_shares[0] = (right - accuracy[:, None] * cast) / total[:, None]
    by_confusion = np.zeros((2, num_voters, *confusion.shape))
    voters = np.arange(num_voters)  # a rate depends on the voter's own confusion matrix
    surplus = says.T - accuracy[:, None, None] * for_any
    by_confusion[0, voters, voters] = shares[:, None] * surplus / total[:, None, None]
    by_confusion[1, voters, voters] = (says.T - rates[:, :, None] * for_any) / cast[:, :, None] / num_labels
    of_rates = np.concatenate([by_shares, by_confusion.reshape(2, num_voters, -1)], axis=2)
    return np.vstack([*of_rates, np.eye(confusion.size, of_rates.shape[2], k=num_labels)])


def point_skill(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    order: Int[np.ndarray, " label"] | None = None,
    known: Codes | None = None,
    added: Confusion | None = None,
    use_prior: bool = False,
    level: float = COVERAGE,
) -> VoterSkill:
    """Skill at a point estimate: in closed form for voters who are independent given the label, else by derivatives.

    Args:
        model: The generative model.
        params: Its estimated parameters.
        votes: The votes that they were estimated from.
        order: The label k of the result is the label `order[k]` of the parameters.
        known: The code of each item's label, −1 where it is unknown, if some were known.
        added: Pseudo-counts added to the counts of each voter.
        use_prior: Whether the estimate is the posterior mode.
        level: Coverage of the intervals.
    """
    if not has_closed_form(model, use_prior):
        return estimated_skill(model, params, votes, order=order, use_prior=use_prior, level=level)
    shares, confusion = np.asarray(params["prevalence"]), np.asarray(params["confusion"])
    order = np.arange(len(shares)) if order is None else order
    return independent_skill(shares[order], confusion[:, order], votes, known, added=added, level=level)


def has_closed_form(model: GenerativeModel, use_prior: bool) -> bool:
    """Whether standard errors have a closed form, so that nothing is compiled."""
    return isinstance(model, DawidSkene) and not use_prior


def counted_skill(label_probs: Posterior, votes: Votes, confusion: Confusion | None = None) -> VoterSkill:
    """Skill without errors: votes counted with the label probabilities as weights.

    A voter's own votes contribute to these probabilities, so the rates are too high if items have few votes.

    Args:
        label_probs: The posterior of the labels.
        votes: The votes.
        confusion: Estimated confusion matrices, used instead of the counted ones.
    """
    number = votes.cast_by_voter
    if label_probs.shape[1] != votes.num_classes:  # nobody is right or wrong
        size = votes.num_voters * (2 + votes.num_classes * votes.num_categories)
        return without_intervals(np.full(size, np.nan), number, votes.num_classes)
    counts = count_by_label(votes, label_probs)
    cast = counts.sum(axis=2, keepdims=True)
    found = counts / np.where(cast > 0, cast, np.nan) if confusion is None else confusion
    guessed = np.nan_to_num(found, nan=1 / counts.shape[2])  # of a voter who never met the label
    skills = skills_of(label_probs.mean(axis=0), guessed, says_of(votes))
    return without_intervals(skills, number, votes.num_classes)._replace(confusion=found)


@double_precision
def estimated_skill(
    model: GenerativeModel,
    params: Params,
    votes: Votes,
    *,
    order: Int[np.ndarray, " label"] | None = None,
    use_prior: bool = False,
    level: float = COVERAGE,
    max_parameters: int = 2_000,
) -> VoterSkill:
    """Skill at a point estimate, with errors from the observed information: the curvature of the log-likelihood.

    Standard errors follow by the delta method from those of the parameters in unconstrained space; intervals are
    symmetric in the log-odds. An estimate at its bound, where the curvature is not informative, is moved half a vote
    inside.

    Args:
        model: The generative model.
        params: Its estimated parameters.
        votes: The votes that they were estimated from.
        order: The label k of the result is the label `order[k]` of the parameters.
        use_prior: Whether the estimate is the posterior mode.
        level: Coverage of the intervals.
        max_parameters: With more parameters the labels are taken as fitted, and no information matrix is computed.
    """
    _refuse_other_classes(model, votes)
    order, says = np.arange(structure_of(model).num_labels) if order is None else order, says_of(votes)
    inside = _inside(model, params, votes)
    point = to_point(model, inside)
    slopes = fetch(_skill_slopes(model, point, order, says))
    found, centre = (fetch(_skills(model, each, order, says)) for each in (params, inside))
    if slopes.shape[1] > max_parameters:
        probs = bayes_posterior(model, params, votes)[:, order]
        return as_fitted(found, count_by_label(votes, probs), probs.mean(axis=0), level, says)
    observations, _ = observe(model, votes)
    information = fetch(_information(model, use_prior, point, observations))
    number = votes.cast_by_voter
    errors = errors_of(information, slopes)
    return lay_out(found, errors, number, level, INFORMATION, num_labels=len(order), centre=centre)


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
    _refuse_other_classes(model, votes)
    names, num_labels = structure_of(model).parameter_shapes, structure_of(model).num_labels
    flat = {name: np.reshape(draws[name], (-1, *draws[name].shape[2:])) for name in names}
    num_draws, num_voters = len(next(iter(flat.values()))), votes.num_voters
    orders = np.broadcast_to(np.arange(num_labels), (num_draws, num_labels)) if orders is None else orders
    drawn = fetch(_skills_of_draws(model, flat, orders, says_of(votes)))
    number = votes.cast_by_voter
    mean, error = drawn.mean(axis=0), drawn.std(axis=0, ddof=1)
    skill = lay_out(mean, error, number, level, DRAWS, num_labels=num_labels)
    ends = np.quantile(drawn[:, : 2 * num_voters], [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = (np.where(number > 0, end.reshape(2, num_voters), np.nan) for end in ends)
    return skill._replace(
        accuracy_low=low[0], accuracy_high=high[0], balanced_accuracy_low=low[1], balanced_accuracy_high=high[1]
    )


def _refuse_other_classes(model: GenerativeModel, votes: Votes) -> None:
    structure = structure_of(model)
    if not votes.is_ordered and structure.num_labels != structure.num_vote_classes - len(votes.other_names):
        raise LatentensError(
            f"labels and votes of {model} have different classes, so votes are neither right nor wrong"
        )


def skills(tables: Tables, order: Int[Array, " label"], says: Float[Array, "vote label"]) -> Float[Array, " skill"]:
    """`skills_of` the tables of a program."""
    prior = jnp.exp(tables.log_prior)[order]
    shares, emission = prior.sum(axis=1), jnp.exp(tables.log_emission)
    if len(emission) > 1:
        confusion = jnp.einsum("ks,ksiv->ikv", prior / shares[:, None], emission[order])
    else:
        confusion = jnp.einsum("ks,siv->ikv", prior / shares[:, None], emission[0])
    return jnp.concatenate([*_accuracies(shares, confusion, says), confusion.ravel()])


def _inside(model: GenerativeModel, params: Params, votes: Votes) -> dict[str, np.ndarray]:
    """Probabilities at their bounds moved half a vote inside."""
    margin = 0.5 / (votes.cast_by_item.sum() / votes.num_voters + 1)
    moved = {name: np.asarray(value, dtype=float) for name, value in params.items()}
    for name, support in parameter_supports(model).items():
        if support is constraints.unit_interval:
            moved[name] = moved[name].clip(margin, 1 - margin)
        elif support is constraints.simplex:
            moved[name] = _shares_inside(moved[name], margin)
    return moved


@partial(compile_quickly, static_argnums=0)
def _skills(model: GenerativeModel, params: Any, order: Any, says: Any) -> Float[Array, " skill"]:
    return skills(build_tables(model, params), order, says)


@partial(jax.jit, static_argnums=0)
def _skills_of_draws(model: GenerativeModel, draws: Any, orders: Any, says: Any) -> Float[Array, "draw skill"]:
    return jax.lax.map(lambda each: skills(build_tables(model, each[0]), each[1], says), (draws, orders))


@partial(jax.jit, static_argnums=0)
def _skill_slopes(model: GenerativeModel, point: Any, order: Any, says: Any) -> Float[Array, "skill parameter"]:
    flat, unravel = ravel_pytree(point)
    return jax.jacfwd(lambda at: skills(build_tables(model, unpack(model, unravel(at)).params), order, says))(flat)


@partial(jax.jit, static_argnums=(0, 1))
def _information(
    model: GenerativeModel, use_prior: bool, point: Any, observations: Observations
) -> Float[Array, "parameter parameter"]:
    """The Hessian of the negative log-likelihood, or log posterior density."""
    flat, unravel = ravel_pytree(point)

    def loss(at: Array) -> Array:
        unpacked = unpack(model, unravel(at))
        total = marginal_log_likelihood(build_tables(model, unpacked.params), observations)
        return -(total + unpacked.log_prior if use_prior else total)

    return hessian(loss, flat)
