"""iMLE: iterated maximum likelihood with hard labels, from the labels of the restricted likelihood."""

from dataclasses import dataclass, field, replace

import jax
import numpy as np
from jaxtyping import Int

from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior, nested_fit
from latentens.methods.independent.likelihood import (
    Confusion,
    log_odds,
    most_likely_posterior,
)
from latentens.methods.restricted_likelihood import RestrictedLikelihood
from latentens.methods.rows import (
    Indicator,
    LabelledRows,
    in_blocks,
    labelled_rows,
    require_two_classes,
    vote_indicator,
)
from latentens.methods.spectral_meta_learner import relabelled_rates
from latentens.programs.components import two_class_confusion
from latentens.runtime.parallel import stop_if_asked
from latentens.runtime.settings import Count
from latentens.votes import Votes


@dataclass(frozen=True)
class IterativeMaximumLikelihood(Method):
    """From labels to the voters' rates and back, by maximum likelihood without a prior, until nothing changes.

    The probabilities are the posterior at the final rates and share of labels, moved to even odds where the prior
    would turn the label round.

    Attributes:
        start: The method whose labels come first.
        max_rounds: Limit on the number of rounds; labels can run in circles.
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

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        return replace(estimate, params=relabelled_rates(estimate.params, order))

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return most_likely_posterior(estimate.params, vote_indicator(votes, 2))

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
