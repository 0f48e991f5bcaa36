"""The skill of each voter according to a fit, with its uncertainty: what annotators can honestly be ranked by.

Errors come from posterior draws where there are any. At a point estimate they come from the observed information, in
closed form for independent voters and else by differentiating the program, which takes seconds to compile. They hold if
the model does: voters who depend on each other in ways that the model does not know are less certain than it says.
Pseudo-counts draw estimates towards a fair voter, but not the intervals.
Without a generative model there are estimates only, and where a method estimates no confusion matrices, votes are
counted with the label probabilities as weights: since a voter's own votes have a share in these, such rates are too
high where items have few votes.
"""

from collections.abc import Mapping

import numpy as np

from latentens.errors import LatentensError
from latentens.inference.skill import (
    COVERAGE,
    Confusion,
    VoterSkill,
    count_by_label,
    estimated_skill,
    independent_skill,
    sampled_skill,
    skills_of,
    without_intervals,
)
from latentens.methods.base import Fit, model_params
from latentens.models import DawidSkene
from latentens.programs.contract import structure_of
from latentens.votes import Votes
from latentens.votes.matching import align


def voter_skill(fit: Fit, votes: Votes, *, level: float = COVERAGE) -> VoterSkill:
    """How good each voter is under the fitted model: accuracies and confusion matrices with errors and intervals.

    Args:
        fit: The fit of a method with a generative model.
        votes: The votes that it was fitted to.
        level: Coverage of the intervals.
    """
    model = fit.model
    if model is None:
        raise LatentensError(f"{fit.method} has no generative model, so that the skill of voters has no known error")
    votes = align(votes, fit.voter_names, fit.class_names)
    if votes.num_items != len(fit.label_probs):
        raise LatentensError(f"the fit is to {len(fit.label_probs):,} items, the votes are on {votes.num_items:,}")
    if fit.draws is not None:
        return sampled_skill(model, fit.draws, votes, orders=fit.state.get("label_orders"), level=level)
    if _is_independent(fit):
        return _independent(fit, votes, level)
    return estimated_skill(
        model,
        model_params(model, fit),
        votes,
        order=fit.state.get("label_order"),
        use_prior=bool(getattr(fit.method, "use_prior", False)),
        level=level,
    )


def quick_skill(fit: Fit, votes: Votes) -> VoterSkill:
    """The skill of voters as far as it can be had at once: intervals are not known where they would take a while.

    Args:
        fit: The fit of any method.
        votes: The votes that it was fitted to.
    """
    if _is_quick(fit, votes.num_classes):
        return voter_skill(fit, votes)
    if fit.label_probs.shape[1] != votes.num_classes:  # nobody is right or wrong
        size = votes.num_voters * (2 + votes.num_classes**2)
        return without_intervals(np.full(size, np.nan), np.bincount(votes.triplets.voter, minlength=votes.num_voters))
    counts = count_by_label(votes, fit.label_probs)
    cast = counts.sum(axis=2, keepdims=True)
    estimated = estimated_confusion(fit.params, counts.shape)
    confusion = counts / np.where(cast > 0, cast, np.nan) if estimated is None else estimated
    guessed = np.nan_to_num(confusion, nan=1 / counts.shape[1])  # of a voter who never met the label
    found = without_intervals(
        skills_of(fit.label_probs.mean(axis=0), guessed), cast.sum(axis=(1, 2)).round().astype(int)
    )
    return found._replace(confusion=confusion)


def estimated_confusion(params: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Confusion | None:
    """The confusion matrices among parameters; None if there are none of this shape."""
    found = np.asarray(params.get("confusion", ()), dtype=float)
    return found if found.shape == shape else None


def _is_quick(fit: Fit, num_classes: int) -> bool:
    """Whether intervals can be had at once."""
    model = fit.model
    if fit.draws is None:
        return isinstance(model, DawidSkene) and _is_independent(fit) and model.num_classes == num_classes
    if model is None:
        return False
    structure = structure_of(model)
    return structure.num_labels == structure.num_vote_classes == num_classes


def _is_independent(fit: Fit) -> bool:
    return isinstance(fit.model, DawidSkene) and not getattr(fit.method, "use_prior", False)


def _independent(fit: Fit, votes: Votes, level: float) -> VoterSkill:
    shares, confusion = fit.params["prevalence"], fit.params["confusion"]
    order = fit.state.get("label_order", np.arange(len(shares)))
    added = fit.state.get("added_votes")
    return independent_skill(shares[order], confusion[:, order], votes, fit.known, added=added, level=level)
