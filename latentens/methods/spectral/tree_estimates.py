"""Parameters of a tree of depth two from moments: label → one hidden unit a group → the group's voters."""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from latentens.methods.independent.likelihood import two_class_confusion
from latentens.methods.indicator import Indicator
from latentens.methods.spectral.imbalance import likelihood_imbalance, third_moment_imbalance
from latentens.methods.spectral.moments import (
    RATE_BOUNDS,
    Rates,
    VoteMoments,
    complete_blocks,
    leading_vector,
    rates_at,
    scale_of,
)
from latentens.methods.spectral.voter_groups import Groups, large_groups
from latentens.methods.spectral_meta_learner import oriented, rank_one_structure
from latentens.votes import Votes


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


def estimate_tree(votes: Votes, moments: VoteMoments, groups: Groups) -> TreeEstimates:
    """Fit the tree with the given groups."""
    groups, inside, dissolved = _structure_inside(votes, groups)
    vector = leading_vector(complete_blocks(moments.covariance, groups))
    vector = oriented(np.where(np.diag(moments.covariance) > 0, vector, 0.0), votes)
    scale = scale_of(vector, moments.covariance, groups)
    vector = vector * np.sqrt(max(scale, 0.0))
    imbalance = third_moment_imbalance(votes, moments.mean, vector, groups)
    marginal = rates_at(imbalance, moments.mean, vector)
    hidden = Rates(*(np.full(groups.max() + 1, RATE_BOUNDS[1]) for _ in range(2)))
    voter = Rates(*(rate.copy() for rate in marginal))
    for members, rates in inside:
        group, direct = groups[members[0]], Rates(*(rate[members] for rate in marginal))
        for kind, of_hidden in enumerate(_hidden_rates(direct, rates)):
            hidden[kind][group], voter[kind][members] = of_hidden, rates[kind]
    return TreeEstimates(groups, imbalance, hidden, voter, marginal, scale, dissolved)


def _structure_inside(
    votes: Votes, groups: Groups
) -> tuple[Groups, list[tuple[Int[np.ndarray, " member"], Rates]], int]:
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
