"""Parameters of a tree of depth two from moments: label → one hidden unit a group → the group's voters."""

from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from latentens.methods.spectral.imbalance import highest, likelihood_imbalance, third_moment_imbalance
from latentens.methods.spectral.moments import (
    RATE_BOUNDS,
    Rates,
    Vector,
    VoteMoments,
    complete_blocks,
    leading_vector,
    published_rates_at,
    rates_at,
    scale_of,
)
from latentens.methods.spectral.tree_likelihood import TreeRows
from latentens.methods.spectral.voter_groups import Groups, large_groups
from latentens.methods.spectral_meta_learner import oriented, rank_one_of
from latentens.votes import Votes
from latentens.votes.distinct import Patterns

Inside = tuple[Int[np.ndarray, " member"], Rates]
"""The members of a group, and their rates given its hidden unit."""

TreeImbalance = Literal["likelihood", "tensor", "published"]
"""How the class imbalance is estimated: by the highest likelihood of the tree, by the third moments, or by the grid of
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
    tree_at = partial(
        _tree_at, groups=groups, inside=inside, mean=moments.mean, vector=vector, scale=scale, dissolved=dissolved
    )
    if published and scale > 0:
        return tree_at(_independent_imbalance(rows, moments.mean, vector, published=True))
    by_moments = third_moment_imbalance(rows, moments.mean, vector, groups)
    if imbalance == "tensor" or scale <= 0:
        return tree_at(by_moments)
    laid_out = TreeRows.of(rows, groups, tree_at(by_moments).voter)
    return tree_at(highest(lambda b: _log_likelihood(laid_out, tree_at(b)), by_moments))


def _independent_imbalance(rows: Patterns, mean: Vector, vector: Vector, *, published: bool) -> float:
    """That of the highest likelihood of voters who are independent given the label or hidden unit."""
    rates_given = partial(published_rates_at if published else rates_at, mean=mean, vector=vector)
    return likelihood_imbalance(rows, rates_given, refine=not published)


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


def _structure_inside(
    rows: Patterns, moments: VoteMoments, groups: Groups, *, published: bool
) -> tuple[Groups, list[Inside], int]:
    """Rates of voters given their group's hidden unit; groups without structure are dissolved into groups of one."""
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
        imbalance = _independent_imbalance(own, mean, vector, published=published)
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
    return _log_likelihood(TreeRows.of(votes.patterns, tree.groups, tree.voter), tree)


def _log_likelihood(rows: TreeRows, tree: TreeEstimates) -> float:
    return rows.log_likelihood(tree.imbalance, tree.hidden, tree.voter)
