"""Stated confidence: soft votes of voters who are calibrated or overconfident, with one temperature per voter."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp, softmax

from latentens.inference.orient import vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.rows import in_blocks
from latentens.runtime.numerics import safe_log
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.settings import Count, Positive
from latentens.votes import Votes
from latentens.votes.matching import certain_where_known
from latentens.votes.soft import ROUNDED


class Stated(NamedTuple):
    """Each vote as centred log-probabilities of the classes, `z_k = log s_k − mean log s`."""

    item: Int[np.ndarray, " vote"]
    voter: Int[np.ndarray, " vote"]
    log_ratio: Float[np.ndarray, "vote label"]


class Voters(NamedTuple):
    """The parameters of the voters' log-ratios."""

    slope: Float[np.ndarray, " voter"]
    """T m: the mean difference between the log-ratios of the label and of other classes."""
    spread: Float[np.ndarray, " voter"]
    """T² m: the variance around that."""
    bias: Float[np.ndarray, "voter label"]
    """The log-ratios of a voter without any evidence."""

    @property
    def weight(self) -> Float[np.ndarray, " voter"]:
        """1 / T: the weight of a stated log-ratio in the posterior."""
        return self.slope / self.spread


@dataclass(frozen=True)
class StatedConfidence(Method):
    """Soft votes as statements of voters who know something about the label and may exaggerate it.

    Generative model, of label y with shares π, and of voter j's stated probabilities s_j::

        y ~ π
        g_j | y = k ~ Normal(m_j e_k, m_j I)        private evidence
        s_j = softmax(T_j g_j + b_j)                stated probabilities

    Evidence of this kind is calibrated: given g_j alone and equally frequent classes, p(y) is softmax(g_j). A voter
    with temperature T_j = 1 states just that; one with T_j > 1 is overconfident; b_j are preferences for classes, such
    as the class shares as the voter sees them. With the centred log-probabilities z_j of s_j the posterior is

        p(y = k | s) ∝ π_k exp Σ_j (z_jk − b_jk) / T_j,

    a pool of the stated log-probabilities in which a voter's weight is 1 / T_j. Parameters are those of maximum
    likelihood by EM from the mean stated probabilities, subject to |T_j| ≥ 1: no voter counts as more confident than
    stated, and a voter worse than chance has a negative temperature. Gold labels are part of the likelihood.

    The model does not cover voters who share evidence or errors (use `Tempered(StatedConfidence())`), underconfident
    voters, or evidence of a very different distribution. A probability of zero counts as half of the voter's smallest
    one, at most as .005, and a vote that is not soft as one stated with probability .995.

    The parameters of a fit are `prevalence`, and for each voter `weight` (1 / T_j), `information` (m_j) and `bias`.

    Attributes:
        tolerance: EM has converged when a round gains less than this in mean log-likelihood.
        max_iterations: Limit on the number of rounds.
    """

    takes_soft_votes = True

    tolerance: Positive = 1e-9
    max_iterations: Count = 1000

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key  # there is one start
        floor = smallest_stated(votes)
        stated = stated_votes(votes, floor)
        probs, before, converged, rounds = vote_shares(votes), -np.inf, False, 0
        while rounds < self.max_iterations and not converged:
            stop_if_asked()
            rounds += 1
            probs = probs if gold is None else certain_where_known(probs, gold)
            shares = probs.mean(axis=0)
            voters = fit_voters(stated, probs, votes.num_voters)
            joint = log_joint(stated, voters.weight, voters.bias, shares, votes.num_items)
            score = log_density(stated, voters, joint, gold) / votes.num_items
            converged, before = score - before < self.tolerance, score
            probs = softmax(joint, axis=1)
        information = voters.weight * voters.slope
        params = {"prevalence": shares, "weight": voters.weight, "information": information, "bias": voters.bias}
        notes = [] if votes.is_soft else [f"votes are not probabilities, and count as stated with {1 - ROUNDED}"]
        diagnostics = Diagnostics(
            "exact posterior at the estimated parameters",
            iterations=rounds,
            converged=bool(converged),
            notes=notes,
            warnings=[] if converged else [f"not converged after {rounds} iterations"],
        )
        return Estimate(params, diagnostics, state={"floor": floor})

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        stated = stated_votes(votes, estimate.state["floor"])
        weight, bias = estimate.params["weight"], estimate.params["bias"]
        return softmax(log_joint(stated, weight, bias, estimate.params["prevalence"], votes.num_items), axis=1)


def smallest_stated(votes: Votes) -> Float[np.ndarray, " voter"]:
    """The value that replaces a probability of zero: half of the voter's smallest one, at most `ROUNDED`."""
    found = np.full(votes.num_voters, ROUNDED)
    if votes.weights is not None:
        np.minimum.at(found, votes.triplets.voter, votes.weights / 2)
    return found


def stated_votes(votes: Votes, floor: Float[np.ndarray, " voter"]) -> Stated:
    """The votes as centred log-probabilities."""
    entries = votes.triplets
    first = ~entries.repeated
    item, voter = entries.item[first], entries.voter[first]
    probs = np.zeros((len(item), votes.num_classes))
    probs[np.cumsum(first) - 1, entries.vote] = 1.0 if votes.weights is None else votes.weights
    logs = np.log(np.maximum(probs, floor[voter][:, None]))
    return Stated(item, voter, logs - logs.mean(axis=1, keepdims=True))


def fit_voters(stated: Stated, probs: Posterior, num_voters: int) -> Voters:
    """Each voter's parameters with the highest expected log-likelihood: a regression of log-ratios on the label.

    The spread is the residual variance; where it is less than the slope, T would be below 1. On the bound T = 1 slope
    and spread are one number m, the positive root of `V m² + (K − 1) m = S`, the variances of label and log-ratios.
    """
    num_labels = probs.shape[1]
    of_label, ratio, voter = probs[stated.item], stated.log_ratio, stated.voter
    number = np.maximum(np.bincount(voter, minlength=num_voters), 1)

    def mean(values: Float[np.ndarray, " vote"]) -> Float[np.ndarray, " voter"]:
        return np.bincount(voter, values, num_voters) / number

    mean_label, mean_ratio = (
        np.stack([mean(column) for column in part.T], axis=1) for part in (of_label - 1 / num_labels, ratio)
    )
    label_variance = np.maximum(1 - 1 / num_labels - (mean_label**2).sum(axis=1), np.finfo(float).eps)
    ratio_variance = mean((ratio**2).sum(axis=1)) - (mean_ratio**2).sum(axis=1)
    slope = (mean((of_label * ratio).sum(axis=1)) - (mean_label * mean_ratio).sum(axis=1)) / label_variance
    spread = (ratio_variance - slope**2 * label_variance) / (num_labels - 1)
    free = num_labels - 1
    bound = (np.sqrt(free**2 + 4 * label_variance * ratio_variance) - free) / (2 * label_variance)
    inside = spread >= np.abs(slope)
    slope = np.where(inside, slope, np.sign(slope) * bound)
    spread = np.maximum(np.where(inside, spread, bound), np.finfo(float).tiny)
    return Voters(slope, spread, mean_ratio - slope[:, None] * mean_label)


def log_joint(
    stated: Stated,
    weight: Float[np.ndarray, " voter"],
    bias: Float[np.ndarray, "voter label"],
    shares: Float[np.ndarray, " label"],
    num_items: int,
) -> Float[np.ndarray, "item label"]:
    """`log p(label, votes)` of each item, up to a term that does not depend on the label."""
    terms = weight[stated.voter][:, None] * (stated.log_ratio - bias[stated.voter])
    sums = np.stack([np.bincount(stated.item, column, num_items) for column in terms.T], axis=1)
    return safe_log(shares) + sums


def log_density(
    stated: Stated, voters: Voters, joint: Float[np.ndarray, "item label"], gold: GoldCodes | None
) -> float:
    """The log-density of all log-ratios, and of known labels, up to a constant."""
    free = joint.shape[1] - 1
    slope, spread, bias = (part[stated.voter] for part in voters)
    square = ((stated.log_ratio - bias) ** 2).sum(axis=1) + slope**2 * free / (free + 1)
    common = -0.5 * np.sum(square / spread + free * np.log(spread))
    if gold is not None:
        known = gold >= 0
        joint = np.where(known[:, None] & (gold[:, None] != np.arange(joint.shape[1])), -np.inf, joint)
    return float(common + logsumexp(joint, axis=1).sum())
