"""The likelihood of a tree of depth two: label → one hidden unit a group → the group's voters.

Voters who are alone in their group are independent given the label: a sum over votes. A larger group has two numbers
a row, how likely its votes are given either state of its hidden unit. Where these stay and only the hidden units' own
rates change, as they do in a search for the share of the classes, all that is left is a product over groups.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from latentens.methods.independent.likelihood import log_likelihoods, two_class_confusion
from latentens.methods.indicator import Indicator, vote_indicator
from latentens.methods.spectral.moments import Rates
from latentens.methods.spectral.voter_groups import Groups
from latentens.votes.distinct import Patterns

FACTORS = 64
"""So many factors of at least a hundredth are multiplied before a logarithm is taken."""

ByLabel = Float[np.ndarray, "row label"]


class HiddenLikelihoods(NamedTuple):
    """How likely the votes of some groups are given their hidden units, divided by the greater of two such numbers."""

    groups: Int[np.ndarray, " group"]
    scaled: Float[np.ndarray, "hidden row group"]
    log_scale: Float[np.ndarray, " row"]
    """The sum over groups of the logarithms of what was divided by."""


def tree_log_likelihoods(indicator: Indicator, groups: Groups, hidden: Rates, voter: Rates) -> ByLabel:
    """`log p(votes | label)` of each row, hidden units summed out."""
    sizes = np.bincount(groups)
    joint = hidden_likelihoods(indicator, groups, sizes > 1, voter)
    return alone_log_likelihoods(indicator, groups, hidden, voter) + sum_out(joint, hidden)


def alone_log_likelihoods(indicator: Indicator, groups: Groups, hidden: Rates, voter: Rates) -> ByLabel:
    """The share of voters who are alone in their group."""
    alone = np.flatnonzero(np.bincount(groups)[groups] == 1)
    if not len(alone):
        return np.zeros((indicator.shape[0], 2))
    of_hidden = two_class_confusion(*(rate[groups[alone]] for rate in hidden))
    of_voter = two_class_confusion(*(rate[alone] for rate in voter))
    return log_likelihoods(_columns(indicator, alone), of_hidden @ of_voter)


def hidden_likelihoods(
    indicator: Indicator, groups: Groups, chosen: Bool[np.ndarray, " group"], voter: Rates
) -> HiddenLikelihoods:
    """What the votes of the chosen groups say about their hidden units."""
    numbers, members = np.flatnonzero(chosen), np.flatnonzero(chosen[groups])
    given_hidden = np.zeros((len(members), 2, 2, len(numbers)))  # voter, vote, hidden, group
    confusion = two_class_confusion(*(rate[members] for rate in voter))
    given_hidden[np.arange(len(members)), :, :, np.searchsorted(numbers, groups[members])] = np.log(
        confusion.transpose(0, 2, 1)
    )
    table = given_hidden.reshape(2 * len(members), 2 * len(numbers))
    of_groups = (_columns(indicator, members) @ table).reshape(indicator.shape[0], 2, len(numbers)).transpose(1, 0, 2)
    highest = of_groups.max(axis=0)
    return HiddenLikelihoods(numbers, np.exp(of_groups - highest), highest.sum(axis=1))


def sum_out(likelihoods: HiddenLikelihoods, hidden: Rates) -> ByLabel:
    """`log p(votes of the groups | label)` of each row."""
    numbers, scaled, log_scale = likelihoods
    if not len(numbers):
        return np.zeros((len(log_scale), 2))
    given_label = two_class_confusion(*(rate[numbers] for rate in hidden)).transpose(1, 2, 0)  # label, hidden, group
    first = np.arange(0, len(numbers), FACTORS)
    by_label = []
    for of_zero, of_one in given_label:
        factors = scaled[0] * of_zero
        factors += scaled[1] * of_one
        by_label.append(np.log(np.multiply.reduceat(factors, first, axis=1)).sum(axis=1) + log_scale)
    return np.stack(by_label, axis=1)


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows of votes, for many trees that have the same voters' rates in all groups of more than two.

    Attributes:
        counts: How often each row occurs.
        large: What the votes of these groups say about their hidden units.
        others: The voters who are in no such group.
        numbers: The groups that these are in.
        groups: The place of each one's group among them.
        indicator: The votes of these voters.
    """

    counts: Int[np.ndarray, " row"]
    large: HiddenLikelihoods
    others: Int[np.ndarray, " other"]
    numbers: Int[np.ndarray, " small"]
    groups: Int[np.ndarray, " other"]
    indicator: Indicator

    @classmethod
    def of(cls, rows: Patterns, groups: Groups, voter: Rates) -> "TreeRows":
        """Lay out the rows for trees with these groups and, in groups of more than two, these rates of voters."""
        indicator, is_large = vote_indicator(rows.votes, 2), np.bincount(groups) > 2
        others = np.flatnonzero(~is_large[groups])
        numbers, place = np.unique(groups[others], return_inverse=True)
        large = hidden_likelihoods(indicator, groups, is_large, voter)
        return cls(rows.counts, large, others, numbers, place, _columns(indicator, others))

    def log_likelihood(self, imbalance: float, hidden: Rates, voter: Rates) -> float:
        """Of all votes, at a class imbalance, rates of hidden units and rates of voters."""
        given_label = sum_out(self.large, hidden)
        if len(self.others):
            own_hidden, own = (
                Rates(*(rate[i] for rate in r)) for r, i in ((hidden, self.numbers), (voter, self.others))
            )
            given_label += tree_log_likelihoods(self.indicator, self.groups, own_hidden, own)
        given_label += np.log(np.array([1 - imbalance, 1 + imbalance]) / 2)
        return float(self.counts @ np.logaddexp(given_label[:, 0], given_label[:, 1]))


def _columns(indicator: Indicator, voters: Int[np.ndarray, " chosen"]) -> Indicator:
    """The columns of some voters."""
    if 2 * len(voters) == indicator.shape[1]:
        return indicator
    return indicator[:, (2 * voters[:, None] + np.arange(2)).ravel()]
