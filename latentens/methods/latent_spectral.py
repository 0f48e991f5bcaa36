"""L-SML, the spectral method for voters in groups (Jaffe, Fetaya, Nadler, Jiang & Kluger 2016)."""

from dataclasses import dataclass, replace
from typing import Literal

import jax
import numpy as np
from jaxtyping import Int
from scipy.special import softmax

from latentens.inference.orient import vote_shares
from latentens.methods.base import Diagnostics, Estimate, GoldCodes, Method, Posterior
from latentens.methods.independent.likelihood import lean_to_score
from latentens.methods.rows import in_blocks, require_two_classes, vote_indicator
from latentens.methods.spectral.groups import Groups, candidate_groups, group_residual, group_scores
from latentens.methods.spectral.moments import Rates, VoteMoments, vote_moments
from latentens.methods.spectral.trees import (
    TreeEstimates,
    TreeImbalance,
    estimate_tree,
    tree_log_likelihood,
    tree_log_likelihoods,
)
from latentens.methods.spectral_meta_learner import relabelled_rates, without_structure
from latentens.programs.components import two_class_confusion
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.settings import Count
from latentens.votes import Votes

Select = Literal["residual", "likelihood"]


@dataclass(frozen=True)
class LatentSpectral(Method):
    """A tree of depth two: groups of voters by spectral clustering, parameters from moments.

    Clustering finds groups in noise too. They are kept only if they are worth their description: the likelihood must
    gain more over that of each voter alone than half a logarithm of the number of items for each rate of a hidden unit,
    and what it takes to say which group each voter is in. Else voters are taken to be independent given the label.

    Labels are of maximum likelihood without a prior; the probabilities are the posterior of the fitted tree, moved to
    even odds where the prior would turn the label round. Gold labels make their own items certain and take part in the
    order of the labels.

    Attributes:
        select: Whether the number of groups is that of the smallest residual of the covariances, as published, or of
            the highest likelihood.
        max_groups: Largest number of groups to try, beside each voter alone.
        restarts: Starts of k-means for each number of groups.
        imbalance: Whether the share of the classes is that of the highest likelihood, comes from the third moments or,
            as in published comparisons, from `RestrictedLikelihood(grid="published")`, across groups and inside them.
            That estimate is wrong, towards equal shares, which raises balanced accuracy where a class is rare.
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
        alone, *trees = self._fitted(votes, moments, candidates)
        tree = max([alone, *trees], key=lambda tree: (tree.scale > 0, log_evidence(votes, tree)))
        if tree.scale <= 0:
            return without_structure(tree.scale)
        return Estimate(_params(tree), _diagnostics(votes, tree, alone))

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Vote shares have nothing to orient."""
        return not estimate.params

    def relabel(self, estimate: Estimate, order: Int[np.ndarray, " label"]) -> Estimate:
        """The label changes sides; the groups' opinions and their voters stay."""
        params = relabelled_rates(estimate.params, order)
        return replace(estimate, params={**params, "hidden_confusion": params["hidden_confusion"][:, order]})

    @in_blocks
    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        params = estimate.params
        if not params:
            return vote_shares(votes)
        hidden, voter = (Rates.of(params[f"{source}_confusion"]) for source in ("hidden", "voter"))
        given_label = tree_log_likelihoods(vote_indicator(votes, 2), params["groups"], hidden, voter)
        probs = softmax(given_label + np.log(params["prevalence"]), axis=1)
        return lean_to_score(probs, given_label[:, 1] - given_label[:, 0])

    def _fitted(self, votes: Votes, moments: VoteMoments, candidates: list[Groups]) -> list[TreeEstimates]:
        """The tree of each voter alone, and those among which the likelihood decides."""
        alone, *grouped = candidates
        if self.select == "residual" and grouped:
            grouped = [min(grouped, key=lambda groups: group_residual(moments.covariance, groups))]
        return [estimate_tree(votes, moments, groups, imbalance=self.imbalance) for groups in (alone, *grouped)]


def log_evidence(votes: Votes, tree: TreeEstimates) -> float:
    """The log-likelihood less what the groups cost: two rates of each hidden unit, and the group of each voter."""
    sizes = np.bincount(tree.groups)
    rates = np.sum(sizes > 2) * np.log(votes.num_items)  # half a logarithm each
    membership = votes.num_voters * np.log(len(sizes)) if len(sizes) < votes.num_voters else 0.0
    return tree_log_likelihood(votes, tree) - rates - membership


def _params(tree: TreeEstimates) -> dict[str, np.ndarray]:
    """Parameters under the names of the models `Tree` and `DawidSkene`."""
    return {
        "prevalence": np.array([1 - tree.imbalance, 1 + tree.imbalance]) / 2,
        "confusion": two_class_confusion(*tree.marginal),
        "groups": tree.groups,
        "hidden_confusion": two_class_confusion(*tree.hidden),
        "voter_confusion": two_class_confusion(*tree.voter),
    }


def _diagnostics(votes: Votes, tree: TreeEstimates, alone: TreeEstimates) -> Diagnostics:
    """How the fit went, and whether the votes support groups at all."""
    sizes = np.bincount(tree.groups)
    supported = bool(np.any(sizes > 2))
    return Diagnostics(
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
