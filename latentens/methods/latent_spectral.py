"""L-SML, the spectral method for voters in groups (Jaffe, Fetaya, Nadler, Jiang & Kluger 2016)."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from latentens.inference.independent import log_likelihoods
from latentens.methods.base import Arrays, Diagnostics, Estimate, GoldCodes
from latentens.methods.groups import Groups, candidate_groups, group_residual, group_scores, large_groups
from latentens.methods.moments import (
    RATE_BOUNDS,
    Rates,
    VoteMoments,
    complete_blocks,
    highest,
    independent_imbalance,
    leading_vector,
    rates_at,
    scale_of,
    third_moment_imbalance,
    vote_moments,
)
from latentens.methods.rank_one import RateMethod, oriented, rank_one_of, without_structure
from latentens.methods.rows import require_two_classes
from latentens.programs.components import two_class_confusion
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count
from latentens.votes import Votes
from latentens.votes.distinct import Patterns
from latentens.votes.layout import Indicator, vote_indicator

ByLabel = Float[np.ndarray, "row label"]


def tree_log_likelihoods(indicator: Indicator, groups: Groups, hidden: Rates, voter: Rates) -> ByLabel:
    """`log p(votes | label)` of each row, hidden units summed out."""
    found, together = np.zeros((indicator.shape[0], 2)), np.bincount(groups)[groups] > 1
    alone, members = np.flatnonzero(~together), np.flatnonzero(together)
    if len(alone):  # one confusion matrix follows another
        of_hidden = two_class_confusion(*(rate[groups[alone]] for rate in hidden))
        of_voter = two_class_confusion(*(rate[alone] for rate in voter))
        found += log_likelihoods(_columns(indicator, alone), of_hidden @ of_voter)
    if not len(members):
        return found
    # how likely the votes of each group are given its hidden unit, divided by the greater of the two numbers
    numbers, place = np.unique(groups[members], return_inverse=True)
    table = np.zeros((len(members), 2, 2, len(numbers)))  # voter, vote, hidden, group
    of_voter = two_class_confusion(*(rate[members] for rate in voter))
    table[np.arange(len(members)), :, :, place] = np.log(of_voter.transpose(0, 2, 1))
    of_groups = np.asarray(_columns(indicator, members) @ table.reshape(2 * len(members), -1))
    off, on = np.split(of_groups, 2, axis=1)
    greater = np.maximum(off, on)
    off, on = np.exp(off - greater), np.exp(on - greater)
    # the hidden units summed out, for each label
    given_label = two_class_confusion(*(rate[numbers] for rate in hidden)).transpose(1, 2, 0)  # label, hidden, group
    for label, (of_off, of_on) in enumerate(given_label):
        found[:, label] += (np.log(off * of_off + on * of_on) + greater).sum(axis=1)
    return found


def _columns(indicator: Indicator, voters: Int[np.ndarray, " chosen"]) -> Indicator:
    """The columns of some voters."""
    if 2 * len(voters) == indicator.shape[1]:
        return indicator
    return indicator[:, (2 * voters[:, None] + np.arange(2)).ravel()]


TreeImbalance = Literal["likelihood", "tensor", "published"]
"""Estimators of the class imbalance: by the highest likelihood of the tree, by the third moments, or by the grid of
the restricted likelihood as published, for voters who are independent given the label."""


class TreeEstimates(NamedTuple):
    """A fitted tree. `hidden` are the rates of hidden units given the label, `voter` those of voters given them."""

    groups: Groups
    imbalance: float
    hidden: Rates
    voter: Rates
    marginal: Rates
    """Rates of voters given the label."""
    scale: float
    """C across groups; C ≤ 0 means that the votes hold no usable structure."""
    dissolved: int
    """Number of groups without rank-one structure inside, whose voters are taken as groups of one."""


def estimate_tree(
    votes: Votes, moments: VoteMoments, groups: Groups, *, imbalance: TreeImbalance = "likelihood"
) -> TreeEstimates:
    """Fit the tree with the given groups.

    Args:
        votes: The votes.
        moments: Their moments.
        groups: The group of each voter.
        imbalance: How to estimate the class imbalance.
    """
    rows, published = votes.patterns, imbalance == "published"
    groups, inside, dissolved = _structure_inside(rows, moments, groups, published=published)
    vector = leading_vector(complete_blocks(moments.covariance, groups))
    vector = oriented(np.where(np.diag(moments.covariance) > 0, vector, 0.0), rows)
    scale = scale_of(vector, moments.covariance, groups)
    vector = vector * np.sqrt(max(scale, 0.0))

    def tree_at(imbalance: float) -> TreeEstimates:
        marginal = rates_at(imbalance, moments.mean, vector)
        hidden = Rates(*(np.full(groups.max() + 1, RATE_BOUNDS[1]) for _ in range(2)))
        voter = Rates(*(rate.copy() for rate in marginal))
        for members, rates in inside:
            group, direct = groups[members[0]], Rates(*(rate[members] for rate in marginal))
            for kind, of_hidden in enumerate(_hidden_rates(direct, rates)):
                hidden[kind][group], voter[kind][members] = of_hidden, rates[kind]
        return TreeEstimates(groups, imbalance, hidden, voter, marginal, scale, dissolved)

    if published and scale > 0:
        return tree_at(independent_imbalance(rows, moments.mean, vector, published=True))
    by_moments = third_moment_imbalance(rows, moments.mean, vector, groups)
    if imbalance == "tensor" or scale <= 0:
        return tree_at(by_moments)
    indicator = vote_indicator(rows.votes, 2)
    return tree_at(highest(lambda b: _log_likelihood(indicator, rows.counts, tree_at(b)), by_moments))


def _structure_inside(
    rows: Patterns, moments: VoteMoments, groups: Groups, *, published: bool
) -> tuple[Groups, list[tuple[Int[np.ndarray, " member"], Rates]], int]:
    """Rates of voters given their group's hidden unit; groups without structure are dissolved into groups of one.

    Returns:
        The groups then, the members and rates of those of three or more, and the number of dissolved ones.
    """
    kept, dissolved, renumbered = [], 0, groups.copy()
    for members in large_groups(groups):
        own = rows.of_voters(members)
        mean, vector, scale = rank_one_of(
            VoteMoments(moments.mean[members], moments.covariance[np.ix_(members, members)]), own
        )
        if scale <= 0:
            renumbered[members] = renumbered.max() + 1 + np.arange(len(members))
            dissolved += 1
            continue
        imbalance = independent_imbalance(own, mean, vector, published=published)
        kept.append((members, rates_at(imbalance, mean, vector)))
    return np.unique(renumbered, return_inverse=True)[1], kept, dissolved


def _hidden_rates(marginal: Rates, inside: Rates) -> tuple[float, float]:
    """Least squares for a hidden unit's rates: ψ_i = ψ ψ'_i + (1 − ψ)(1 − η'_i), and the same for η."""
    strength = inside.sensitivity + inside.specificity - 1
    below = strength @ strength
    sensitivity = (marginal.sensitivity + inside.specificity - 1) @ strength / below
    specificity = (marginal.specificity + inside.sensitivity - 1) @ strength / below
    return float(np.clip(sensitivity, *RATE_BOUNDS)), float(np.clip(specificity, *RATE_BOUNDS))


def tree_log_likelihood(votes: Votes, tree: TreeEstimates) -> float:
    """The log-likelihood of all votes."""
    return _log_likelihood(vote_indicator(votes.patterns.votes, 2), votes.patterns.counts, tree)


def _log_likelihood(indicator: Indicator, counts: Int[np.ndarray, " row"], tree: TreeEstimates) -> float:
    joint = tree_log_likelihoods(indicator, tree.groups, tree.hidden, tree.voter)
    joint += np.log(np.array([1 - tree.imbalance, 1 + tree.imbalance]) / 2)
    return float(counts @ np.logaddexp(joint[:, 0], joint[:, 1]))


Select = Literal["residual", "likelihood"]


@dataclass(frozen=True)
class LatentSpectral(RateMethod):
    """A tree of depth two: groups of voters by spectral clustering, parameters from moments.

    Labels are of maximum likelihood without a prior; the probabilities are the posterior of the fitted tree, moved to
    even odds where the prior would change the label. Gold labels make their own items certain and take part in the
    order of the labels.

    Notes:
        Clustering also finds groups in noise. They are kept only if the log-likelihood gains more, compared with each
        voter alone, than half the logarithm of the number of items for each rate of a hidden unit plus the cost of
        encoding the group of each voter. Otherwise voters are taken to be independent given the label.

    Attributes:
        select: Whether the number of groups is that of the smallest residual of the covariances, as published, or of
            the highest likelihood.
        max_groups: Largest number of groups to try, beside each voter alone.
        restarts: Starts of k-means for each number of groups.
        imbalance: Whether the share of the classes is that of the highest likelihood, comes from the third moments or,
            as in published comparisons, from `RestrictedLikelihood(grid="published")`, across groups and inside them.
            That estimate is wrong, towards equal shares, which raises balanced accuracy where a class is rare.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.LatentSpectral().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    select: Select = "residual"
    max_groups: Count = 25
    restarts: Count = 20
    imbalance: TreeImbalance = "likelihood"

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del gold  # covariances hold no labels
        require_two_classes(votes, self)
        votes.refuse_repeats(type(self).__name__)
        moments, generator = vote_moments(votes), numpy_generator(key)
        scores = group_scores(moments.covariance, generator)
        candidates = candidate_groups(scores, self.max_groups, self.restarts, generator)
        independent, *grouped = candidates
        if self.select == "residual" and grouped:
            grouped = [min(grouped, key=lambda groups: group_residual(moments.covariance, groups))]
        alone, *trees = (
            estimate_tree(votes, moments, groups, imbalance=self.imbalance) for groups in (independent, *grouped)
        )
        tree = max([alone, *trees], key=lambda tree: (tree.scale > 0, log_evidence(votes, tree)))
        if tree.scale <= 0:
            return without_structure(tree.scale)
        sizes = np.bincount(tree.groups)
        supported = bool(np.any(sizes > 2))
        params = {
            "prevalence": np.array([1 - tree.imbalance, 1 + tree.imbalance]) / 2,
            "confusion": two_class_confusion(*tree.marginal),
            "groups": tree.groups,
            "hidden_confusion": two_class_confusion(*tree.hidden),
            "voter_confusion": two_class_confusion(*tree.voter),
        }
        diagnostics = Diagnostics(
            "posterior of the fitted tree, even where it contradicts the maximum-likelihood label",
            log_likelihood=tree_log_likelihood(votes, tree),
            extra={
                "independent_log_likelihood": tree_log_likelihood(votes, alone),
                "scale": tree.scale,
                "num_groups": len(sizes),
                "dissolved_groups": tree.dissolved,
                "tree_supported": supported,
                "structure": "supported" if supported else "a tree of groups is not supported by these votes",
            },
        )
        return Estimate(params, diagnostics)

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """The label changes sides; the groups' opinions and their voters stay."""
        moved = super().relabel(estimate, order)
        return replace(moved, params={**moved.params, "hidden_confusion": moved.params["hidden_confusion"][:, order]})

    def given_label(self, params: Arrays, votes: Votes) -> ByLabel:
        """That of the tree."""
        hidden, voter = (Rates.of(params[f"{source}_confusion"]) for source in ("hidden", "voter"))
        return tree_log_likelihoods(vote_indicator(votes, 2), params["groups"], hidden, voter)


def log_evidence(votes: Votes, tree: TreeEstimates) -> float:
    """The log-likelihood less what the groups cost: two rates of each hidden unit, and the group of each voter."""
    sizes = np.bincount(tree.groups)
    rates = np.sum(sizes > 2) * np.log(votes.num_items)  # half a logarithm each
    membership = votes.num_voters * np.log(len(sizes)) if len(sizes) < votes.num_voters else 0.0
    return tree_log_likelihood(votes, tree) - rates - membership
