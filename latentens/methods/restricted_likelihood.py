"""RL, the restricted likelihood (Jaffe, Nadler & Kluger 2015)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import numpy as np
from jaxtyping import Int

from latentens.inference.orient import vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.independent.likelihood import most_likely_posterior
from latentens.methods.rows import in_blocks, require_two_classes, vote_indicator
from latentens.methods.spectral.moments import (
    RatesAt,
    likelihood_imbalance,
    published_rates_at,
    rates_at,
    third_moment_imbalance,
)
from latentens.methods.spectral_meta_learner import (
    RankOne,
    rank_one_structure,
    rates_params,
    relabelled_rates,
    without_structure,
)
from latentens.votes import Votes

Grid = Literal["exact", "published"]
Imbalance = Literal["likelihood", "tensor"]


@dataclass(frozen=True)
class RestrictedLikelihood(Method):
    """Rates from the rank-one vector v and the class imbalance b; labels by maximum likelihood without a prior.

    The probabilities are the posterior at the estimated rates and prevalence, moved to even odds where the prior
    would turn the label round. Gold labels make their own items certain and take part in the sign of v.

    Attributes:
        grid: How rates depend on b in the search for b. "exact" is right; "published" divides v by 1 − b² in place
            of √(1 − b²) and stays on a grid of step .01, as in the code of Shaham et al. (2016).
        imbalance: Whether b maximises the likelihood, or comes from the third moments.
    """

    grid: Grid = "exact"
    imbalance: Imbalance = "likelihood"

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        del key, gold  # nothing here is random, and covariances hold no labels
        require_two_classes(votes, self)
        votes.refuse_repeats(type(self).__name__)
        rank_one = rank_one_structure(votes)
        if rank_one.scale <= 0:
            return without_structure(rank_one.scale)
        imbalance = self._estimate_imbalance(votes, rank_one)
        rates = rates_at(imbalance, rank_one.mean, rank_one.vector)
        diagnostics = Diagnostics(
            "posterior at the estimated rates, even where it contradicts the maximum-likelihood label",
            extra={"scale": rank_one.scale},
        )
        return Estimate(rates_params(imbalance, rates), diagnostics)

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Vote shares have nothing to orient."""
        return not estimate.params

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        return replace(estimate, params=relabelled_rates(estimate.params, order))

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return (
            most_likely_posterior(estimate.params, vote_indicator(votes, 2)) if estimate.params else vote_shares(votes)
        )

    def _estimate_imbalance(self, votes: Votes, rank_one: RankOne) -> float:
        mean, vector = rank_one.mean, rank_one.vector
        if self.imbalance == "tensor":
            return third_moment_imbalance(votes.patterns, mean, vector, np.arange(votes.num_voters))
        exact = self.grid == "exact"
        rates_given: RatesAt = partial(rates_at if exact else published_rates_at, mean=mean, vector=vector)
        return likelihood_imbalance(votes.patterns, rates_given, refine=exact)
