"""Voters who err independently given the label: p(x, y) = p(y) Π_i p(x_i | y), over the votes that were cast.

The likelihoods, posteriors and parameter names that SML, RL, iMLE and EM share.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from latentens.methods.rows import Indicator, by_blocks, vote_indicator
from latentens.runtime.numerics import safe_log
from latentens.votes import Votes

ROUNDING = 1e-12
"""A score this close to zero is zero."""

Confusion = Float[np.ndarray, "voter label vote"]


def log_likelihoods(indicator: Indicator, confusion: Confusion) -> Float[np.ndarray, "row label"]:
    """`log p(votes | label)` of each row."""
    table = safe_log(confusion).transpose(0, 2, 1)
    return indicator @ table.reshape(-1, table.shape[-1])


def log_odds(indicator: Indicator, confusion: Confusion) -> Float[np.ndarray, " row"]:
    """`log p(votes | 1) − log p(votes | 0)` of each row."""
    given_label = log_likelihoods(indicator, confusion)
    return given_label[:, 1] - given_label[:, 0]


def log_joint(
    indicator: Indicator, shares: Float[np.ndarray, " label"], confusion: Confusion
) -> Float[np.ndarray, "row label"]:
    """`log p(votes, label)` of each row."""
    return safe_log(shares) + log_likelihoods(indicator, confusion)


def posterior(
    indicator: Indicator, shares: Float[np.ndarray, " label"], confusion: Confusion
) -> Float[np.ndarray, "row label"]:
    """`p(label | votes)` of each row."""
    return softmax(log_joint(indicator, shares, confusion), axis=1)


def gold_posterior(votes: Votes, gold: Int[np.ndarray, " item"], rows: Votes) -> Float[np.ndarray, "row label"]:
    """What gold labels alone say about rows of votes: shares and confusion matrices are counted, plus one each.

    Args:
        votes: The votes of all items.
        gold: The code of each item's true label, −1 where it is unknown.
        rows: The rows that are asked about.
    """
    known, num_classes = np.flatnonzero(gold >= 0), votes.num_classes
    label = np.eye(num_classes)[gold[known]]
    cast = np.asarray(vote_indicator(votes.take(known), num_classes).T @ label).reshape(-1, num_classes, num_classes)
    confusion = 1 + cast.transpose(0, 2, 1)
    shares = 1 + label.sum(axis=0)
    confusion, shares = confusion / confusion.sum(axis=2, keepdims=True), shares / shares.sum()
    return by_blocks(lambda part: posterior(vote_indicator(part, num_classes), shares, confusion), rows)


def lean_to_score(
    probs: Float[np.ndarray, "row label"], score: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "row label"]:
    """The nearest probabilities of two classes whose more probable one is the sign of a score.

    A method may label by a rule that is not the maximum of its own posterior. Where rule and posterior contradict
    each other the posterior becomes even, with the last digit in favour of the rule; where the score is zero, so
    that the rule is silent, the posterior stands.
    """
    barely = np.nextafter(0.5, 1.0)
    of_one = np.where(score > ROUNDING, np.maximum(probs[:, 1], barely), probs[:, 1])
    of_one = np.where(score < -ROUNDING, np.minimum(of_one, 0.5), of_one)
    return np.stack([1 - of_one, of_one], axis=1)


def most_likely_posterior(params: Mapping[str, np.ndarray], indicator: Indicator) -> Float[np.ndarray, "row label"]:
    """The posterior of two classes at named parameters, leaning to the label of maximum likelihood without a prior."""
    probs = posterior(indicator, params["prevalence"], params["confusion"])
    return lean_to_score(probs, log_odds(indicator, params["confusion"]))
