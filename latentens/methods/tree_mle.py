"""Groups of voters found from their votes, and the tree of these groups at its exact maximum; any number of classes."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from latentens.errors import VotesError
from latentens.inference.independent import ROUNDING
from latentens.methods.base import Estimate, Fit, GoldCodes, Posterior, nested_fit
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.groups import best_groups, candidate_groups, group_scores
from latentens.methods.majority_vote import MajorityVote
from latentens.methods.maximum_likelihood import MaximumLikelihood, ProgramMethod
from latentens.models import DawidSkene, Tree
from latentens.runtime.numerics import double_precision, key_from, numpy_generator
from latentens.runtime.settings import Count, CountOrZero
from latentens.votes import Votes
from latentens.votes.agreement import agreement_moments


@dataclass(frozen=True)
class TreeMLE(ProgramMethod):
    """The model `Tree` with groups found from the votes, or `DawidSkeneEM` where the BIC of its model is lower.

    A tree of fewer than three informative groups explains votes, but leaves the label open. If there are no gold
    labels, it is not taken then, and `notes` in the diagnostics say so.

    Notes:
        BIC compares maxima of the likelihood, at which the label may have drifted from the classes to whatever explains
        the votes. Without a tree the estimate is therefore that of `DawidSkeneEM` at its defaults.

    Attributes:
        max_groups: Largest number of groups to try.
        starts: Random starts of each model, besides those from the votes.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.TreeMLE().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    max_groups: Count = 8
    starts: CountOrZero = 1

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        votes.refuse_repeats("TreeMLE")
        generator = numpy_generator(key)
        fits = {"independent": nested_fit(DawidSkeneEM(0.0, 0.0), votes, key_from(generator), gold)}
        tree = _tree(votes, generator, self.max_groups) if votes.num_voters > 3 else None
        if tree is not None:
            begin = (_start(votes, tree, generator),)
            price = _num_parameters(votes, tree) - _num_parameters(votes, None)
            needed = _likelihood(fits["independent"]) + price * np.log(votes.num_cases) / 2
            climb = MaximumLikelihood(tree, starts=self.starts, warm=(), initial=begin, at_least=float(needed))
            fits["tree"] = nested_fit(climb, votes, key_from(generator), gold)
            fits["tree"] = replace(fits["tree"], params={**fits["tree"].params, "groups": np.array(tree.groups)})
        by_model = {
            name: np.log(votes.num_cases) * _num_parameters(votes, tree if name == "tree" else None)
            - 2 * _likelihood(fit)
            for name, fit in fits.items()
        }
        chosen, notes = min(by_model, key=lambda name: by_model[name]), []
        independent = fits["independent"]
        if gold is None and not fits[chosen].diagnostics.identified and independent.diagnostics.identified:
            chosen = "independent"
            notes = ["groups explain the votes better, but too few of them are informative to identify a label"]
        fit = fits["tree"] if chosen == "tree" else nested_fit(DawidSkeneEM(), votes, key_from(generator), gold)
        about = fit.diagnostics.updated(bic=by_model[chosen], bic_by_model=by_model, notes=notes)
        return replace(fit, diagnostics=about)

    def fitted_model(self, estimate: Estimate) -> DawidSkene | Tree:
        """The tree of the groups that were found; without groups, Dawid & Skene's model."""
        classes = len(estimate.params["prevalence"])
        groups = estimate.params.get("groups")
        if groups is not None:
            return Tree(tuple(groups.astype(int).tolist()), classes)
        return DawidSkene(len(estimate.params["confusion"]), classes)


@double_precision
def find_tree(votes: Votes, *, key: jax.Array, max_groups: int = 8) -> Tree:
    """The tree whose groups fit the agreement of voters best.

    Voters are clustered by the scores of L-SML, taken from the covariances of agreement, which are defined for any
    number of classes. From there single voters change groups while that brings correlations nearer to those of a tree;
    the number of groups, three or more, is that of the best such tree (see `best_groups`). Dependence given a fitted
    Dawid–Skene would not do: its label copies the opinion of a large group, whose voters then look independent.

    Args:
        votes: The votes, one of each voter on an item.
        key: Random key of the clustering.
        max_groups: Largest number of groups to try.
    """
    votes.refuse_repeats("find_tree")
    if votes.num_voters < 4:
        raise VotesError(f"groups need at least four voters, but there are {votes.num_voters}")
    tree = _tree(votes, numpy_generator(key), max_groups)
    if tree is None:
        raise VotesError("the votes have no groups: the agreement of voters with one another shows no pattern at all")
    return tree


def _num_parameters(votes: Votes, tree: Tree | None) -> int:
    """The shares of the classes, and a confusion matrix for each voter and each group of a tree."""
    matrices = votes.num_voters + (0 if tree is None else tree.num_groups)
    return (votes.num_classes - 1) * (1 + matrices * votes.num_classes)


def _tree(votes: Votes, generator: np.random.Generator, max_groups: int, restarts: int = 20) -> Tree | None:
    moments = agreement_moments(votes)
    scores = group_scores(moments.covariance, generator)
    _, *candidates = candidate_groups(scores, max_groups, restarts, generator)
    if not candidates or scores.max() < ROUNDING:
        return None
    groups = best_groups(moments, candidates, votes.num_items)
    numbered, _ = pd.factorize(groups)  # in the order of their first voters: the same groups are the same program
    return Tree(tuple(numbered.tolist()), votes.num_classes)


def _start(votes: Votes, tree: Tree, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Opinions from each group's own votes, labels from the opinions, and confusion matrices by counting."""
    groups, classes = np.array(tree.groups), votes.num_classes
    opinions, confusion = [], np.empty((votes.num_voters, classes, classes))
    for group in range(tree.num_groups):
        members = np.flatnonzero(groups == group)
        own = Votes.from_matrix(votes.matrix[:, members], num_classes=classes)
        method = DawidSkeneEM(1.0, 1.0, random_starts=2) if len(members) > 2 else MajorityVote()
        opinions.append(nested_fit(method, own, key_from(generator), None).label_probs)
        for voter in members:
            confusion[voter] = _count(opinions[-1], votes.matrix[:, voter, None] == np.arange(classes))
    seen = Votes.from_matrix(np.stack([probs.argmax(axis=1) for probs in opinions], axis=1), num_classes=classes)
    labels = nested_fit(DawidSkeneEM(1.0, 1.0, random_starts=2), seen, key_from(generator), None).label_probs
    return {
        "prevalence": labels.mean(axis=0),
        "hidden_confusion": np.stack([_count(labels, probs) for probs in opinions]),
        "voter_confusion": confusion,
    }


def _count(given: Posterior, outcome: np.ndarray) -> Float[np.ndarray, "given outcome"]:
    """Shares of outcomes given a soft cause, with one count more for each."""
    counts = given.T @ outcome + 1.0
    return counts / counts.sum(axis=1, keepdims=True)


def _likelihood(fit: Fit) -> float:
    assert fit.diagnostics.log_likelihood is not None, "methods that climb a likelihood report it"
    return fit.diagnostics.log_likelihood
