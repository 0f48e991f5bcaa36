"""SML, RL and iMLE: two classes, from the rank-one covariance of voters who are independent given the label.

SML is the spectral meta-learner (Parisi, Strino, Nadler & Kluger 2014), RL the restricted likelihood (Jaffe, Nadler &
Kluger 2015), iMLE maximum likelihood iterated with hard labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from latentens.inference.independent import Confusion, lean_to_score, log_likelihoods, log_odds
from latentens.inference.orient import orientation, vote_shares
from latentens.methods.base import Arrays, Diagnostics, Estimate, GoldCodes, Method, Posterior, nested_fit
from latentens.methods.moments import (
    Rates,
    Vector,
    VoteMoments,
    complete_blocks,
    complete_sparse_diagonal,
    independent_imbalance,
    leading_sparse_vector,
    leading_vector,
    rates_at,
    scale_of,
    signed_votes,
    sparse_moments,
    sparse_scale_of,
    third_moment_imbalance,
    vote_moments,
)
from latentens.methods.rows import in_blocks, require_two_classes
from latentens.programs.components import two_class_confusion
from latentens.programs.tables import LabelledRows, labelled_rows
from latentens.runtime.numerics import safe_log
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.settings import Count
from latentens.votes import Votes
from latentens.votes.distinct import Patterns
from latentens.votes.layout import Indicator, by_blocks, vote_indicator

DENSE_VOTERS = 3000
"""Covariances of up to this many voters are a full matrix, those of more who share few items a sparse one."""


class RankOne(NamedTuple):
    """The covariance of the votes as v vᵀ."""

    mean: Vector
    """The mean of each voter's votes."""
    vector: Vector
    """v, oriented and scaled; entries of voters worse than chance are negative."""
    scale: float
    """C ≤ 0: the votes hold no usable structure, and `vector` is not scaled."""


class RateMethod(Method):
    """Two classes, shares and rates of voters among the parameters; without parameters, vote shares."""

    def fit_rates(self, votes: Votes, label: str, imbalance_of: Callable[[RankOne], float]) -> tuple[RankOne, Estimate]:
        """The rank-one structure of the votes, and the rates that follow from it and a class imbalance, if any do."""
        require_two_classes(votes, self)
        votes.refuse_repeats(type(self).__name__)
        rank_one = rank_one_structure(votes)
        if rank_one.scale <= 0:
            return rank_one, without_structure(rank_one.scale)
        imbalance = imbalance_of(rank_one)
        rates = rates_at(imbalance, rank_one.mean, rank_one.vector)
        diagnostics = Diagnostics(
            f"posterior at the estimated rates, even where it contradicts the {label}", extra={"scale": rank_one.scale}
        )
        return rank_one, Estimate(rates_params(imbalance, rates), diagnostics)

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """True for vote shares, which are not estimated."""
        return not estimate.params

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """The labels of shares and rates in another order, whatever else is among the parameters."""
        prevalence, confusion = estimate.params["prevalence"], estimate.params["confusion"]
        moved = {"prevalence": prevalence[order], "confusion": confusion[:, order]}
        return replace(estimate, params={**estimate.params, **moved})

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        if not estimate.params:
            return vote_shares(votes)
        given_label = self.given_label(estimate.params, votes)
        probs = softmax(safe_log(estimate.params["prevalence"]) + given_label, axis=1)
        return lean_to_score(probs, self.label_score(estimate.params, votes, given_label))

    def given_label(self, params: Arrays, votes: Votes) -> Float[np.ndarray, "row label"]:
        """`log p(votes | label)` of each row."""
        return log_likelihoods(vote_indicator(votes, 2), params["confusion"])

    def label_score(
        self, params: Arrays, votes: Votes, given_label: Float[np.ndarray, "row label"]
    ) -> Float[np.ndarray, " row"]:
        """What the method labels by the sign of: the log-odds without a prior."""
        del params, votes
        return given_label[:, 1] - given_label[:, 0]


@dataclass(frozen=True)
class SpectralMetaLearner(RateMethod):
    """Label by the sign of Σ v_i f_i, v vᵀ being the covariance of the votes f ∈ {−1, 1} off its diagonal.

    The probabilities are the posterior of conditionally independent voters whose rates follow from v and from the
    class imbalance of highest likelihood, moved to even odds where they contradict the label. Gold labels make their
    own items certain and take part in the sign of v.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.SpectralMetaLearner().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    counts_rows = True

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key, gold  # nothing here is random, and covariances hold no labels
        rank_one, found = self.fit_rates(
            votes, "label sign(v·f)", lambda found: independent_imbalance(votes.patterns, found.mean, found.vector)
        )
        if not found.params:
            return found
        score = spectral_score(votes.patterns.votes, rank_one.vector)[votes.patterns.inverse]
        params = {**found.params, "spectral_vector": rank_one.vector}
        return replace(found, params=params, diagnostics=found.diagnostics.updated(score=score))

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        moved = super().relabel(estimate, order)
        return replace(moved, params={**moved.params, "spectral_vector": -moved.params["spectral_vector"]})

    def label_score(
        self, params: Arrays, votes: Votes, given_label: Float[np.ndarray, "row label"]
    ) -> Float[np.ndarray, " row"]:
        """The spectral score."""
        del given_label
        return spectral_score(votes, params["spectral_vector"])


def rank_one_structure(votes: Votes) -> RankOne:
    """The vector v of the votes: leading eigenvector of their completed covariance, oriented and scaled."""
    if votes.is_sparse and votes.num_voters > DENSE_VOTERS:
        mean, covariance = sparse_moments(votes)
        vector = leading_sparse_vector(complete_sparse_diagonal(covariance))
        vector = oriented(np.where(covariance.diagonal() > 0, vector, 0.0), votes.patterns)
        return _scaled(mean, vector, sparse_scale_of(vector, covariance))
    return rank_one_of(vote_moments(votes), votes.patterns)


def rank_one_of(moments: VoteMoments, rows: Patterns) -> RankOne:
    """The rank-one structure of rows whose moments are known."""
    mean, covariance = moments
    alone = np.arange(len(mean))
    vector = leading_vector(complete_blocks(covariance, alone))
    vector = oriented(np.where(np.diag(covariance) > 0, vector, 0.0), rows)
    return _scaled(mean, vector, scale_of(vector, covariance, alone))


def _scaled(mean: Vector, vector: Vector, scale: float) -> RankOne:
    return RankOne(mean, vector * np.sqrt(scale) if scale > 0 else vector, scale)


def spectral_score(rows: Votes, vector: Vector) -> np.ndarray:
    """Σ v_i f_i over the votes that were cast."""

    def score(block: Votes) -> np.ndarray:
        return signed_votes(vote_indicator(block, 2))[0] @ vector

    return by_blocks(score, rows)


def oriented(vector: Vector, rows: Patterns) -> Vector:
    """The vector, or its negative, whose scores agree better with the majority."""
    says_one = (1 + np.sign(spectral_score(rows.votes, vector))) / 2
    flipped = orientation(np.stack([1 - says_one, says_one], axis=1), rows.votes, counts=rows.counts)[0] == 1
    return -vector if flipped else vector


def rates_params(imbalance: float, rates: Rates) -> dict[str, np.ndarray]:
    """Parameters by name."""
    return {"prevalence": np.array([1 - imbalance, 1 + imbalance]) / 2, "confusion": two_class_confusion(*rates)}


def without_structure(scale: float) -> Estimate:
    """No parameters, hence vote shares, for votes whose covariances hold no rank-one structure."""
    diagnostics = Diagnostics(
        "vote shares, not the posterior of a model",
        fallback="the covariances of the votes hold no rank-one structure: vote shares instead",
        extra={"scale": scale},
    )
    return Estimate(diagnostics=diagnostics)


Grid = Literal["exact", "published"]
Imbalance = Literal["likelihood", "tensor"]


@dataclass(frozen=True)
class RestrictedLikelihood(RateMethod):
    """Rates from the rank-one vector v and the class imbalance b; labels by maximum likelihood without a prior.

    The probabilities are the posterior at the estimated rates and prevalence, moved to even odds where the prior
    would reverse the label. Gold labels make their own items certain and take part in the sign of v.

    Attributes:
        grid: How rates depend on b in the search for b. "exact" is right; "published" divides v by 1 − b² instead
            of √(1 − b²) and stays on a grid of step .01, as in the code of Shaham et al. (2016).
        imbalance: Whether b maximises the likelihood, or comes from the third moments.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.RestrictedLikelihood().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    grid: Grid = "exact"
    imbalance: Imbalance = "likelihood"

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key, gold  # nothing here is random, and covariances hold no labels

        def imbalance_of(found: RankOne) -> float:
            if self.imbalance == "tensor":
                return third_moment_imbalance(votes.patterns, found.mean, found.vector, np.arange(votes.num_voters))
            published = self.grid == "published"
            return independent_imbalance(votes.patterns, found.mean, found.vector, published=published)

        return self.fit_rates(votes, "maximum-likelihood label", imbalance_of)[1]


@dataclass(frozen=True)
class IterativeMaximumLikelihood(RateMethod):
    """From labels to the voters' rates and back by maximum likelihood without a prior, until the labels stay the same.

    The probabilities are the posterior at the final rates and share of labels, moved to even odds where the prior
    would reverse the label.

    Attributes:
        start: The method whose labels come first.
        max_rounds: Limit on the number of rounds; labels can run in circles.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.IterativeMaximumLikelihood().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    start: Method = field(default_factory=RestrictedLikelihood)
    max_rounds: Count = 100

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        require_two_classes(votes, self)
        rows = labelled_rows(votes, gold)
        labels = np.zeros(len(rows.counts), dtype=np.int64)
        labels[rows.inverse] = nested_fit(self.start, votes, key, gold).codes
        confusion, prevalence, rounds, converged = self._iterate(rows, labels)
        shares = np.array([1 - prevalence, prevalence])
        diagnostics = Diagnostics(
            "posterior at the estimated rates, even where it contradicts the maximum-likelihood label",
            iterations=rounds,
            converged=converged,
        )
        return Estimate({"prevalence": shares, "confusion": confusion}, diagnostics)

    def _iterate(self, rows: LabelledRows, labels: Int[np.ndarray, " row"]) -> tuple[Confusion, float, int, bool]:
        """Confusion matrices, prevalence, rounds, and whether the labels came to rest."""
        indicator, counts = vote_indicator(rows.votes, 2), rows.counts
        labels, rounds, at_rest = np.where(rows.gold >= 0, rows.gold, labels), 0, False
        while rounds < self.max_rounds and not at_rest:
            stop_if_asked()
            confusion = hard_confusion(indicator, counts, labels)
            odds = log_odds(indicator, confusion)
            relabelled = np.where((odds == 0) | (rows.gold >= 0), labels, odds > 0)
            rounds, at_rest = rounds + 1, np.array_equal(relabelled, labels)
            labels = relabelled
        return confusion, float(counts @ labels / counts.sum()), rounds, at_rest


def hard_confusion(indicator: Indicator, counts: Int[np.ndarray, " row"], labels: Int[np.ndarray, " row"]) -> Confusion:
    """Frequencies of votes among the items of each label, drawn towards ½ by n⁻²; ½ where there are none."""
    members = counts[:, None] * (labels[:, None] == np.arange(2))
    cast = (indicator.T @ members).reshape(-1, 2, 2)  # voter, vote, label
    total = cast.sum(axis=1)
    right = np.stack([cast[:, 0, 0], cast[:, 1, 1]], axis=1)
    frequency = np.where(total > 0, right / np.maximum(total, 1), 0.5)
    shrunk = ((1 - float(counts.sum()) ** -2) * (2 * frequency - 1) + 1) / 2
    return two_class_confusion(shrunk[:, 1], shrunk[:, 0])
