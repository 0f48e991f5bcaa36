"""Parameters of a tree of depth two from moments: label → one hidden unit a group → the group's voters."""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from latentens.methods.independent.likelihood import two_class_confusion
from latentens.methods.indicator import Indicator, vote_indicator
from latentens.methods.spectral.imbalance import highest, likelihood_imbalance, third_moment_imbalance
from latentens.methods.spectral.moments import (
    RATE_BOUNDS,
    Rates,
    Vector,
    VoteMoments,
    complete_blocks,
    leading_vector,
    rates_at,
    scale_of,
)
from latentens.methods.spectral.voter_groups import Groups, large_groups
from latentens.methods.spectral_meta_learner import oriented, rank_one_structure
from latentens.votes import Votes

Inside = tuple[Int[np.ndarray, " member"], Rates]
"""The members of a group, and their rates given its hidden unit."""


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


def estimate_tree(votes: Votes, moments: VoteMoments, groups: Groups, *, by_moments: bool = False) -> TreeEstimates:
    """Fit the tree with the given groups.

    Args:
        votes: The votes.
        moments: Their moments.
        groups: The group of each voter.
        by_moments: Whether the class imbalance is that of the third moments; else that of the highest likelihood.
    """
    groups, inside, dissolved = _structure_inside(votes, groups)
    vector = leading_vector(complete_blocks(moments.covariance, groups))
    vector = oriented(np.where(np.diag(moments.covariance) > 0, vector, 0.0), votes)
    scale = scale_of(vector, moments.covariance, groups)
    vector = vector * np.sqrt(max(scale, 0.0))
    tree_at = partial(
        _tree_at, groups=groups, inside=inside, mean=moments.mean, vector=vector, scale=scale, dissolved=dissolved
    )
    imbalance = third_moment_imbalance(votes, moments.mean, vector, groups)
    if by_moments or scale <= 0:
        return tree_at(imbalance)
    indicator, counts = vote_indicator(votes.patterns.votes, 2), votes.patterns.counts
    return tree_at(highest(lambda b: _log_likelihood(indicator, counts, tree_at(b)), imbalance))


def _tree_at(
    imbalance: float, groups: Groups, inside: list[Inside], mean: Vector, vector: Vector, scale: float, dissolved: int
) -> TreeEstimates:
    """The tree at a class imbalance."""
    marginal = rates_at(imbalance, mean, vector)
    hidden = Rates(*(np.full(groups.max() + 1, RATE_BOUNDS[1]) for _ in range(2)))
    voter = Rates(*(rate.copy() for rate in marginal))
    for members, rates in inside:
        group, direct = groups[members[0]], Rates(*(rate[members] for rate in marginal))
        for kind, of_hidden in enumerate(_hidden_rates(direct, rates)):
            hidden[kind][group], voter[kind][members] = of_hidden, rates[kind]
    return TreeEstimates(groups, imbalance, hidden, voter, marginal, scale, dissolved)


def _structure_inside(votes: Votes, groups: Groups) -> tuple[Groups, list[Inside], int]:
    """Rates of voters given their group's hidden unit; groups without structure are dissolved into groups of one."""
    kept, dissolved, renumbered = [], 0, groups.copy()
    for members in large_groups(groups):
        own = _votes_of(votes, members)
        rank_one = rank_one_structure(own)
        if rank_one.scale <= 0:
            renumbered[members] = renumbered.max() + 1 + np.arange(len(members))
            dissolved += 1
            continue
        rates_given = partial(rates_at, mean=rank_one.mean, vector=rank_one.vector)
        kept.append((members, rates_given(likelihood_imbalance(own, rates_given, refine=True))))
    return np.unique(renumbered, return_inverse=True)[1], kept, dissolved


def _votes_of(votes: Votes, members: Int[np.ndarray, " member"]) -> Votes:
    return Votes.from_matrix(votes.matrix[:, members], num_classes=votes.num_classes)


def _hidden_rates(marginal: Rates, inside: Rates) -> tuple[float, float]:
    """Least squares for a hidden unit's rates: ψ_i = ψ ψ'_i + (1 − ψ)(1 − η'_i), and the same for η."""
    strength = inside.sensitivity + inside.specificity - 1
    below = strength @ strength
    sensitivity = (marginal.sensitivity + inside.specificity - 1) @ strength / below
    specificity = (marginal.specificity + inside.sensitivity - 1) @ strength / below
    return float(np.clip(sensitivity, *RATE_BOUNDS)), float(np.clip(specificity, *RATE_BOUNDS))


def tree_log_likelihoods(
    indicator: Indicator, groups: Groups, hidden: Rates, voter: Rates
) -> Float[np.ndarray, "row label"]:
    """`log p(votes | label)` of each row, hidden units summed out."""
    num_groups, num_voters = len(hidden.sensitivity), len(groups)
    given_hidden = np.zeros((num_voters, 2, num_groups, 2))  # voter, vote, group, hidden
    confusion = two_class_confusion(*voter).transpose(0, 2, 1)
    given_hidden[np.arange(num_voters), :, groups] = np.log(confusion)
    of_groups = (indicator @ given_hidden.reshape(2 * num_voters, -1)).reshape(-1, num_groups, 2)
    hidden_given_label = two_class_confusion(*hidden).transpose(1, 0, 2)  # label, group, hidden
    by_label = [logsumexp(of_groups + np.log(given), axis=2).sum(axis=1) for given in hidden_given_label]
    return np.stack(by_label, axis=1)


def tree_log_likelihood(votes: Votes, tree: TreeEstimates) -> float:
    """The log-likelihood of all votes."""
    return _log_likelihood(vote_indicator(votes.patterns.votes, 2), votes.patterns.counts, tree)


def _log_likelihood(indicator: Indicator, counts: Int[np.ndarray, " row"], tree: TreeEstimates) -> float:
    given_label = tree_log_likelihoods(indicator, tree.groups, tree.hidden, tree.voter)
    log_shares = np.log(np.array([1 - tree.imbalance, 1 + tree.imbalance]) / 2)
    return float(counts @ logsumexp(given_label + log_shares, axis=1))
