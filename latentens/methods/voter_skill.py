"""The skill of each voter according to a fit, with its uncertainty: what annotators can honestly be ranked by."""

from latentens.errors import LatentensError
from latentens.inference.skill import VoterSkill, estimated_skill, sampled_skill
from latentens.methods.base import Fit, model_params
from latentens.votes import Votes
from latentens.votes.matching import align


def voter_skill(fit: Fit, votes: Votes, *, level: float = 0.9) -> VoterSkill:
    """How good each voter is under the fitted model: accuracies and confusion matrices with errors and intervals.

    At a point estimate errors come from the observed information, of a sampled fit from its draws. They hold if the
    model does: voters who depend on each other in ways that the model does not know are less certain than it says.

    Args:
        fit: The fit of a method with a generative model.
        votes: The votes that it was fitted to.
        level: Coverage of the intervals.
    """
    model = fit.model
    if model is None:
        raise LatentensError(f"{fit.method} has no generative model, so that the skill of voters has no known error")
    if fit.draws is not None:
        return sampled_skill(model, fit.draws, fit.state.get("label_orders"), level=level)
    return estimated_skill(
        model,
        model_params(model, fit),
        align(votes, fit.voter_names, fit.class_names),
        order=fit.state.get("label_order"),
        use_prior=bool(getattr(fit.method, "use_prior", False)),
        level=level,
    )
