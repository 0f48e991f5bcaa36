"""Consensus: the mean of a few different posteriors, with its confidence calibrated on hidden votes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Float

from latentens.methods.base import (
    Diagnostics,
    Estimate,
    GoldCodes,
    Method,
    Posterior,
    nested_fit,
    packed,
    posterior_of,
    unpacked,
    warnings_of,
)
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.methods.ebcc import Ebcc
from latentens.methods.majority_vote import MajorityVote
from latentens.methods.stated_confidence import StatedConfidence
from latentens.methods.tempered import (
    HeldOut,
    choose_folds,
    find_temperature,
    hold_out,
    temper,
    temper_voted,
    temperature_diagnostics,
    usual_shares,
)
from latentens.runtime.settings import at_least
from latentens.votes import Votes


@dataclass(frozen=True)
class Consensus(Method):
    """The tempered mean of the tempered posteriors of several methods: the method to try first.

    Any single model of voters' errors is wrong for some data, and its labels can then be far worse than the majority's;
    different models are seldom wrong in the same way. The confidence of each member, and of their mean, is calibrated
    on hidden votes (see `Tempered`), so that an overconfident member does not dominate. Gold labels are passed to the
    members, and choose the temperatures instead of the hidden votes.

    Notes:
        The default members are `DawidSkeneEM` with a confusion matrix per voter and, for more than two classes, with
        one accuracy per voter and class; `Ebcc`, whose voters err together within subtypes of a class; and the vote
        shares, which depend on no model. For soft votes `StatedConfidence` replaces `DawidSkeneEM`, whose
        fractions of a vote can miss the label. Extra diagnostics: `members` with their settings, `member_temperatures`,
        `member_changes` (the share of labels on which each member differs from the consensus), and those of `Tempered`
        for the mean.

    Attributes:
        members: The methods; None for those above.
        folds: As in `Tempered`.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.Consensus().fit(votes, key=jax.random.key(0))
        >>> fit.labels[-3:]
        array([1, 1, 1])
    """

    takes_other_votes = True
    takes_soft_votes = True

    members: tuple[Method, ...] | None = None
    folds: Annotated[int, at_least(2)] | None = None

    def chosen_members(self, num_classes: int, is_soft: bool = False) -> tuple[Method, ...]:
        """The methods whose posteriors are averaged."""
        if self.members is not None:
            return self.members
        if is_soft:
            return StatedConfidence(), Ebcc(), MajorityVote()
        by_class = (DawidSkeneEM(form="class"),) if num_classes > 2 else ()
        return DawidSkeneEM(), *by_class, Ebcc(), MajorityVote()

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        members, base = self.chosen_members(votes.num_classes, votes.is_soft), usual_shares(votes)
        folds, fold_key = choose_folds(self.folds, votes), jax.random.fold_in(key, 0)
        # The same key hides the same votes from every member.
        held = [hold_out(member, votes, folds, fold_key, gold) for member in members]
        temperatures = [find_temperature(part, base)[0].value for part in held]
        found, by_votes = find_temperature(_mean_held(held, temperatures, base), base)
        fits = [nested_fit(member, votes, key, gold) for member in members]
        mean = _mean([fit.label_probs for fit in fits], temperatures, base)
        labels = mean.argmax(axis=1)
        diagnostics = Diagnostics(warnings=warnings_of(fits)).updated(
            **temperature_diagnostics(found, by_votes),
            members=[repr(member) for member in members],
            member_temperatures=np.array(temperatures),
            member_changes=np.array([np.mean(fit.codes != labels) for fit in fits]),
        )
        state = {"usual_shares": base, "member_temperatures": np.array(temperatures), **packed(fits)}
        state["is_soft"] = np.array(votes.is_soft)
        params = {"temperature": np.array(found.value)}
        return Estimate(params, diagnostics, state=state, label_probs=temper_voted(mean, votes, found.value, base))

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        members = self.chosen_members(votes.num_classes, bool(estimate.state["is_soft"]))
        base = estimate.state["usual_shares"]
        parts = [posterior_of(member, unpacked(estimate, place), votes) for place, member in enumerate(members)]
        mean = _mean(parts, estimate.state["member_temperatures"].tolist(), base)
        return temper_voted(mean, votes, float(estimate.params["temperature"]), base)


def _mean(parts: Sequence[Posterior], temperatures: Sequence[float], base: Float[np.ndarray, " label"]) -> Posterior:
    """The mean of posteriors at their temperatures."""
    return np.mean([temper(part, value, base) for part, value in zip(parts, temperatures, strict=True)], axis=0)


def _mean_held(held: Sequence[HeldOut], temperatures: Sequence[float], base: Float[np.ndarray, " label"]) -> HeldOut:
    """Hidden votes and labels with the mean of the members' predictions."""

    def together(parts: Sequence[Any]) -> Any:
        return parts[0]._replace(label_probs=_mean([part.label_probs for part in parts], temperatures, base))

    return HeldOut(*([together(same) for same in zip(*kinds, strict=True)] for kinds in zip(*held, strict=True)))
