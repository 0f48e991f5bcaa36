"""How many independent voters would carry as much information about the label as dependent ones."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from latentens.datasets import simulate
from latentens.errors import VotesError
from latentens.methods.base import Fit, model_params
from latentens.methods.maximum_likelihood import MaximumLikelihood
from latentens.methods.tree_mle import find_tree
from latentens.models import DawidSkene, TopDown, TruncatedGaussian
from latentens.programs.likelihood import bayes_posterior, pointwise_log_likelihood
from latentens.programs.model import GenerativeModel, Params
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import SMALLEST, double_precision, entropy, numpy_generator, safe_log
from latentens.runtime.progress import track_late
from latentens.votes import Votes

SIMULATED_ITEMS = 10_000
"""Number of simulated items behind each mean over rows of votes, where these are too many to enumerate."""

ROUNDING = 1e-9
"""Differences in information, in nats, that are rounding errors."""


def is_enumerable(num_voters: int, num_classes: int, most_rows: int = 2**16) -> bool:
    """Whether all possible rows of votes can be enumerated."""
    return num_classes**num_voters <= most_rows


def panel_curve(
    shares: Float[np.ndarray, " label"],
    confusion: Float[np.ndarray, "voter label vote"],
    information: float,
    key: jax.Array,
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … independent voters.

    Args:
        shares: Probabilities of the labels.
        confusion: Confusion matrices of the voters that panels are drawn from.
        information: The curve continues beyond the number of voters, up to twice as many, only if that is needed to
            reach this information; that part is simulated.
        key: Random key of the panels.
    """
    few = is_enumerable(len(confusion), len(shares))
    curve = subset_information(shares, confusion, key) if few else np.zeros(1)
    if information <= curve[-1] + ROUNDING:
        return curve
    panels = panel_information(shares, confusion, 2 * len(confusion), key)
    scale = curve[-1] / max(panels[len(confusion)], SMALLEST) if few else 1.0
    return np.concatenate([curve, scale * panels[len(curve) :]])


def subset_information(
    shares: Float[np.ndarray, " label"],
    confusion: Float[np.ndarray, "voter label vote"],
    key: jax.Array,
    num_orders: int = 64,
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … all of a few independent voters.

    The information of a subset is exact. Its mean over all subsets of a size is estimated from the beginnings of random
    orders of the voters, with the sum of the information of the single voters as a control variate.
    """
    alone = np.array([_information(_with_voter(shares[None], rates)) for rates in confusion])
    generator = numpy_generator(key)
    orders = np.stack([generator.permutation(len(confusion)) for _ in range(num_orders)])
    joined = np.zeros(orders.shape)
    for found, order in zip(joined, orders, strict=True):
        joint = shares[None]
        for size, voter in enumerate(order):
            joint = _with_voter(joint, confusion[voter])
            found[size] = _information(joint)
    # the regression on the sum of single voters, whose mean over all subsets is known
    sums = np.cumsum(alone[orders], axis=1)
    surplus = sums - alone.mean() * np.arange(1, len(alone) + 1)
    # both are centred: of all voters they are constants, and the mean of rounding errors is not quite zero
    spread, shared = sums.var(axis=0), np.mean((sums - sums.mean(axis=0)) * (joined - joined.mean(axis=0)), axis=0)
    slope = np.where(spread > SMALLEST, shared / np.where(spread > SMALLEST, spread, 1.0), 0.0)
    return np.concatenate([[0.0], joined.mean(axis=0) - slope * surplus.mean(axis=0)])


def _with_voter(
    joint: Float[np.ndarray, "row label"], rates: Float[np.ndarray, "label vote"]
) -> Float[np.ndarray, "longer label"]:
    """The joint distribution of label and votes with the votes of one voter more."""
    return (joint[:, None] * rates.T[None]).reshape(-1, joint.shape[1])


def _information(joint: Float[np.ndarray, "row label"]) -> float:
    """Mutual information of rows and columns of a table of probabilities."""
    return float(entropy(joint.sum(axis=0)) + entropy(joint.sum(axis=1)) - entropy(joint.ravel()))


def panel_information(
    shares: Float[np.ndarray, " label"], confusion: Float[np.ndarray, "voter label vote"], most: int, key: jax.Array
) -> Float[np.ndarray, " size"]:
    """Mutual information of the label and the votes of 0, 1, … `most` independent voters.

    Voters are drawn without replacement, and from all of them anew when all are in the panel.
    """
    generator = numpy_generator(key)
    labels = generator.choice(len(shares), SIMULATED_ITEMS, p=shares / shares.sum())
    everyone = np.tile(np.arange(len(confusion)), (SIMULATED_ITEMS, 1))
    rounds = [generator.permuted(everyone, axis=1) for _ in range(-(-most // len(confusion)))]
    voters = np.concatenate(rounds, axis=1)[:, :most]
    cumulative = confusion[voters, labels[:, None]].cumsum(axis=2)
    votes = (generator.random((SIMULATED_ITEMS, most, 1)) > cumulative[..., :-1]).sum(axis=2)
    says = safe_log(confusion.transpose(0, 2, 1)[voters, votes]).cumsum(axis=1)
    posterior = softmax(safe_log(shares) + says, axis=2)
    return np.concatenate([[0.0], entropy(shares) - entropy(posterior).mean(axis=0)])


class EffectiveNumber(NamedTuple):
    """The effective number of voters of a program with known parameters.

    Attributes:
        by_information: Number of independent voters whose votes carry as much information about the label.
        by_correlation: The design effect d / (1 + (d − 1) ρ̄), ρ̄ the mean correlation of two voters' errors.
        information: Mutual information of label and votes, in nats.
    """

    by_information: float
    by_correlation: float
    information: float


@dataclass(frozen=True)
class EffectiveVoters:
    """The effective number of voters, estimated from votes.

    Attributes:
        number: The estimate, under the model.
        low: Lower end of the interval of `number.by_information`.
        high: Its upper end.
        model: The model that fits the votes best, by BIC.
        num_voters: Number of voters.
        level: Coverage of the interval.
    """

    number: EffectiveNumber
    low: float
    high: float
    model: GenerativeModel
    num_voters: int
    level: float

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        name = type(self.model).__name__
        if self.number.by_information == self.low == self.high == self.num_voters:
            return (
                f"The {self.num_voters} voters err independently in the best-fitting model, {name}: each counts fully."
            )
        interval = f"{self.level:.0%} interval {self.low:.1f} to {self.high:.1f}"
        return (
            f"The {self.num_voters} voters are worth about {self.number.by_information:.1f} independent ones "
            f"({interval}) under the best-fitting model, {name}."
        )


@double_precision
def effective_number(model: GenerativeModel, params: Params, *, key: jax.Array) -> EffectiveNumber:
    """The effective number of voters of a program whose confusion matrices and dependence are known.

    The information of label and votes under the program is compared with that of panels of k of the same voters, drawn
    at random, who err independently given the label; k is interpolated. Independent voters thus count as their own
    number, and those of a program without hidden units do so by definition. With few voters all possible rows of votes
    are summed over, with more a mean is taken over simulated ones. Where the votes leave no doubt about the label, so
    do panels of many sizes, and the smallest counts.

    Args:
        model: The generative model; labels and votes are of the same classes.
        params: Its parameters.
        key: Random key of the simulated rows.
    """
    votes_key, panel_key = jax.random.split(key)
    tables = checked_tables(model, params)
    prior, emission = np.exp(np.asarray(tables.log_prior)), np.exp(np.asarray(tables.log_emission))
    shares = prior.sum(axis=1)
    if len(shares) != emission.shape[3]:
        raise VotesError(f"labels and votes of {model} have different classes, so votes are neither right nor wrong")
    emission = np.broadcast_to(emission, (len(shares), *emission.shape[1:]))
    given_label = prior / shares[:, None]
    confusion = np.einsum("ks,ksiv->ikv", given_label, emission)
    num_voters, num_classes, _ = confusion.shape
    if is_enumerable(num_voters, num_classes):
        every_row = np.indices((num_classes,) * num_voters).reshape(num_voters, -1).T
        rows = Votes.from_matrix(every_row, num_classes=num_classes)
        weights = np.exp(pointwise_log_likelihood(model, params, rows))
    else:
        rows = simulate(model, SIMULATED_ITEMS, key=votes_key, params=params).votes
        weights = np.full(SIMULATED_ITEMS, 1 / SIMULATED_ITEMS)
    information = float(entropy(shares) - weights @ entropy(bayes_posterior(model, params, rows)))
    if prior.shape[1] == 1:
        number = float(len(confusion))
    else:
        number = _smallest_panel(panel_curve(shares, confusion, information, panel_key), information)
    return EffectiveNumber(number, _design_effect(shares, given_label, emission), information)


def _smallest_panel(curve: Float[np.ndarray, " size"], information: float) -> float:
    """Where a curve first reaches some information, interpolated between sizes; its highest point if it never does."""
    risen = np.maximum.accumulate(curve)
    reached = np.flatnonzero(risen >= min(information, risen[-1]) - ROUNDING)[0]
    return float(np.interp(information, risen[: reached + 1], np.arange(reached + 1)))


def _design_effect(
    shares: Float[np.ndarray, " label"],
    given_label: Float[np.ndarray, "label state"],
    emission: Float[np.ndarray, "label state voter vote"],
) -> float:
    right = np.stack([emission[label, :, :, label] for label in range(len(shares))])
    mean = np.einsum("ks,ksi->ki", given_label, right)
    both = np.einsum("k,ks,ksi,ksj->ij", shares, given_label, right, right, optimize=True)
    covariance = both - np.einsum("k,ki,kj->ij", shares, mean, mean)
    spread = np.sqrt(shares @ (mean * (1 - mean)))
    size, scale = len(spread), np.outer(spread, spread)
    correlation = np.where(scale > 0, covariance / np.where(scale > 0, scale, 1.0), 0.0)
    return float(size / (1 + 2 * np.triu(correlation, 1).sum() / size))


def effective_voters(
    votes: Votes,
    models: Sequence[GenerativeModel] | None = None,
    *,
    key: jax.Array,
    resamples: int = 50,
    level: float = 0.9,
) -> EffectiveVoters:
    """How many independent voters these are worth, under the model that fits the votes best.

    The interval is that of the bootstrap over items, each resample fitted from the estimate on. It does not include
    errors of the model.

    Args:
        votes: The votes.
        models: Models of which the one with the lowest BIC is taken; by default independent voters and the groups
            that `find_tree` finds; for two classes also a common factor, and three to six hidden units while BIC
            falls.
        key: Random key; the same key gives the same result.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.
    """
    votes = votes.to_hard()
    votes.refuse_other_votes("effective_voters")
    fit_key, number_key, resample_key = jax.random.split(key, 3)
    fits = _default_fits(votes, fit_key) if models is None else [_fitted(model, votes, fit_key) for model in models]
    fit = min(fits, key=_bic)
    model = fit.model
    assert model is not None, "fits by maximum likelihood have a model"
    params = model_params(model, fit)
    again = MaximumLikelihood(model, starts=0, warm=(), initial=(params,), max_iterations=300, tolerance=1e-5)
    generator, numbers = numpy_generator(resample_key), []
    for _ in track_late(range(resamples), "resampling items"):
        drawn = votes.take(generator.integers(votes.num_items, size=votes.num_items))
        refit = model_params(model, again.fit(drawn, key=fit_key))
        numbers.append(effective_number(model, refit, key=number_key).by_information)
    low, high = np.quantile(numbers, [(1 - level) / 2, (1 + level) / 2]) if numbers else (np.nan, np.nan)
    number = effective_number(model, params, key=number_key)
    return EffectiveVoters(number, float(low), float(high), model, votes.num_voters, level)


def _fitted(model: GenerativeModel, votes: Votes, key: jax.Array) -> Fit:
    return MaximumLikelihood(model, starts=4, max_iterations=600, tolerance=1e-5).fit(votes, key=key)


def _bic(fit: Fit) -> float:
    return float(fit.diagnostics["bic"])


def _default_fits(votes: Votes, key: jax.Array, most_voters: int = 100, most_hidden: int = 6) -> list[Fit]:
    if votes.num_voters > most_voters:  # they would share few items, and the models take too long
        raise VotesError(f"there are {votes.num_voters:,} voters; keep the {most_voters} with the most votes or fewer")
    fits = [_fitted(DawidSkene(votes.num_voters, votes.num_classes), votes, key)]
    with suppress(VotesError):  # three voters, repeated votes, or no pattern at all
        fits.append(_fitted(find_tree(votes, key=key), votes, key))
    if votes.num_classes > 2:
        return fits
    fits.append(_fitted(TruncatedGaussian(votes.num_voters), votes, key))
    for size in range(3, most_hidden + 1):
        fits.append(_fitted(TopDown(votes.num_voters, size), votes, key))
        if _bic(fits[-1]) > min(map(_bic, fits)):
            break
    return fits
