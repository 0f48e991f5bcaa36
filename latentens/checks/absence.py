"""Absence check: are missing votes related to the other voters' votes on the item?"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc  # scipy.stats is slow to import

from latentens.runtime.text import probability_text
from latentens.votes import Votes
from latentens.votes.labels import listed

Contributions = Float[np.ndarray, "item class"]


@dataclass(frozen=True)
class AbsenceCheck:
    """Whether votes are missing more often where others vote for one class than where they vote for another.

    If so, absence is informative about the label, which methods ignore unless absence is a vote
    (`Votes.absence_as_vote`). Absence related to the difficulty of items, but not to their labels, is not detected.

    Attributes:
        p_value: Probability of at least as strong a relation by chance, corrected for the number of tests.
        voters: The voters whose individual test is significant.
        num_tested: Number of voters tested individually.
        level: Significance level.
    """

    p_value: float
    voters: tuple[str, ...]
    num_tested: int
    level: float

    @property
    def rejected(self) -> bool:
        """Whether absence is related to the other votes."""
        return self.p_value <= self.level

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        chance = probability_text(self.p_value)
        if not self.rejected:
            return f"No evidence that missing votes are related to the other voters' votes ({chance})."
        of = f", most clearly those of {listed(self.voters)}" if self.voters else ""
        return (
            f"Missing votes are related to the other voters' votes ({chance}){of}: absence is informative about the "
            "label; votes.absence_as_vote() treats it as a vote."
        )


def check_absence(votes: Votes, *, level: float = 0.05, least: int = 20) -> AbsenceCheck | None:
    """Test whether voters are absent regardless of the other voters' votes.

    For voter a the score is `Σ_i d_ia · mean_{b≠a} r_ib`: d is whether a is absent from item i, less its mean, and
    `r_ib = onehot(x_ib) − p_b` is another voter's vote less that voter's own shares. So neither a voter who prefers a
    class nor batches of items with voters of their own count as a relation. The variance is that of the items'
    contributions once the shares p_b are estimated (a C(α) test). One test adds up the scores of all voters; the voters
    are also tested one by one. The p-value is twice the smaller of the first and the smallest of the others times their
    number.

    Args:
        votes: The votes; those for categories that are not labels count as cast, but are not for any class.
        level: Rate of false alarms.
        least: A voter is tested alone with at least this many votes and as many absences.

    Returns:
        None if no vote is missing, or if no item has votes to compare with.
    """
    if not votes.num_missing:
        return None
    present = votes.triplets.at(~votes.triplets.repeated)
    item, voter, vote = votes.without_other_votes().triplets
    number = np.bincount(voter, minlength=votes.num_voters)
    says = np.eye(votes.num_classes)[vote][:, 1:]  # the shares of the first class are the rest
    shares = np.stack([np.bincount(voter, column, minlength=votes.num_voters) for column in says.T], axis=1)
    residual = says - (shares / np.maximum(number, 1)[:, None])[voter]
    cast = np.bincount(item, minlength=votes.num_items)
    together: Contributions = np.zeros((votes.num_items, says.shape[1]))
    alone: dict[int, float] = {}
    for each in range(votes.num_voters):
        absent = np.ones(votes.num_items)
        absent[present.item[present.voter == each]] = 0.0
        others = cast - np.bincount(item[voter == each], minlength=votes.num_items)
        usable = others > 0
        missing = absent[usable].sum()
        if not 0 < missing < usable.sum():
            continue
        weight = np.where(usable, absent - absent[usable].mean(), 0.0) / np.maximum(others, 1)
        mine = voter != each
        own = np.bincount(voter[mine], weight[item[mine]], minlength=votes.num_voters) / np.maximum(number, 1)
        # a constant for each voter changes no score, since residuals add up to 0, but takes their estimation out
        factor = np.where(mine, weight[item] - own[voter], 0.0)
        by_class = [np.bincount(item, factor * column, minlength=votes.num_items) for column in residual.T]
        found = np.stack(by_class, axis=1)
        together += found
        if least <= missing <= usable.sum() - least:
            alone[each] = _chance(found)
    if not together.any():
        return None
    corrected = {voter: 2 * min(value * len(alone), 1.0) for voter, value in alone.items()}
    p_value = float(min(1.0, 2 * _chance(together), *corrected.values()))
    named = tuple(str(votes.voter_names[voter]) for voter, value in corrected.items() if value <= level)
    return AbsenceCheck(p_value, named, len(alone), level)


def _chance(contributions: Contributions) -> float:
    """The p-value of a sum of items' contributions, whose mean is 0 if there is no relation."""
    total = contributions.sum(axis=0)
    covariance = contributions.T @ contributions
    statistic = float(total @ np.linalg.pinv(covariance, hermitian=True) @ total)
    return float(chdtrc(np.linalg.matrix_rank(covariance, hermitian=True), statistic))
