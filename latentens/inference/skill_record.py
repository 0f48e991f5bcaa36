"""What is known of each voter's skill: estimates, their errors and intervals, and what these rest on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logit, ndtri

COVERAGE = 0.95
"""Of the intervals, unless another one is asked for."""

INFORMATION = "observed information"
DRAWS = "posterior draws"
AS_FITTED = "labels taken as fitted: too narrow"
NOT_KNOWN = "not known"

CHANCE = "no better than chance"
REVERSED = "worse than chance: votes the other way round"
WORSE = "worse than chance"
SILENT = "no votes"

PerVoter = Float[np.ndarray, " voter"]
Confusion = Float[np.ndarray, "voter label vote"]


class VoterSkill(NamedTuple):
    """How good each voter is; NaN where nothing is known.

    Chance is a balanced accuracy of 1/K: that of any voter who does not look at the item, whatever the vote.

    Attributes:
        votes: Number of votes.
        accuracy: Probability of a right vote on an item like the fitted ones.
        accuracy_error: Its standard error, infinite where the votes do not determine it.
        accuracy_low: Lower end of its interval.
        accuracy_high: Upper end.
        balanced_accuracy: Mean over the labels of the probability of a right vote.
        balanced_accuracy_error: Its standard error.
        balanced_accuracy_low: Lower end of its interval.
        balanced_accuracy_high: Upper end.
        confusion: Probability of each vote given the label.
        confusion_error: Its standard error.
        intervals: What errors and intervals rest on.
    """

    votes: Int[np.ndarray, " voter"]
    accuracy: PerVoter
    accuracy_error: PerVoter
    accuracy_low: PerVoter
    accuracy_high: PerVoter
    balanced_accuracy: PerVoter
    balanced_accuracy_error: PerVoter
    balanced_accuracy_low: PerVoter
    balanced_accuracy_high: PerVoter
    confusion: Confusion
    confusion_error: Confusion
    intervals: str

    @property
    def flags(self) -> list[str]:
        """What to know of a voter, "" where there is nothing; without intervals the estimate itself decides."""
        chance = 1 / self.confusion.shape[1]
        worse = REVERSED if self.confusion.shape[1] == 2 else WORSE
        low = np.where(np.isnan(self.balanced_accuracy_low), self.balanced_accuracy, self.balanced_accuracy_low)
        return [
            SILENT if not votes else worse if high < chance else CHANCE if least <= chance else ""
            for votes, least, high in zip(self.votes, low, self.balanced_accuracy_high, strict=True)
        ]


def lay_out(
    found: Float[np.ndarray, " skill"],
    errors: Float[np.ndarray, " skill"],
    votes: Int[np.ndarray, " voter"],
    level: float,
    intervals: str,
    *,
    centre: Float[np.ndarray, " skill"] | None = None,
) -> VoterSkill:
    """Skills with their errors, accuracies first, then balanced accuracies, then confusion matrices.

    Args:
        found: The estimates.
        errors: Their standard errors; NaN where they are not known.
        votes: Number of votes of each voter.
        level: Coverage of the intervals, which are symmetric in the log-odds.
        intervals: What errors rest on.
        centre: What intervals lie around, if estimates may be at a bound.
    """
    num_voters = len(votes)
    inside = (found if centre is None else centre).clip(1e-9, 1 - 1e-9)
    reach = ndtri((1 + level) / 2) * np.minimum(errors / (inside * (1 - inside)), 1e3)
    low, high = np.minimum(expit(logit(inside) - reach), found), np.maximum(expit(logit(inside) + reach), found)
    silent = votes <= 0
    rates = [
        np.where(silent, np.nan, part[start : start + num_voters])
        for start in (0, num_voters)
        for part in (found, errors, low, high)
    ]
    shape = num_voters, round(((len(found) - 2 * num_voters) / num_voters) ** 0.5), -1
    confusions = [part[2 * num_voters :].reshape(shape) for part in (found, errors)]
    return VoterSkill._make((votes, *rates, *confusions, intervals))


def skills_of(shares: Float[np.ndarray, " label"], confusion: Confusion) -> Float[np.ndarray, " skill"]:
    """Accuracies of all voters, then their balanced accuracies, then their confusion matrices."""
    right = np.diagonal(confusion, axis1=1, axis2=2)
    return np.concatenate([right @ shares, right.mean(axis=1), confusion.ravel()])


def as_fitted(
    found: Float[np.ndarray, " skill"],
    counts: Confusion,
    shares: Float[np.ndarray, " label"],
    level: float,
) -> VoterSkill:
    """Errors of frequencies, the labels taken as a fit has them.

    Args:
        found: The estimates.
        counts: How often each voter cast each vote, by label.
        shares: Shares of the labels.
        level: Coverage of the intervals.
    """
    num_voters, num_labels, _ = counts.shape
    confusion = found[2 * num_voters :].reshape(counts.shape)
    error = np.sqrt(confusion * (1 - confusion) / np.maximum(counts.sum(axis=2), 0.5)[:, :, None])
    of_right = np.diagonal(error, axis1=1, axis2=2)
    means = [np.sqrt((of_right**2) @ weights**2) for weights in (shares, np.full(num_labels, 1 / num_labels))]
    votes = counts.sum(axis=(1, 2)).round().astype(int)
    return lay_out(found, np.concatenate([*means, error.ravel()]), votes, level, AS_FITTED)


def without_intervals(found: Float[np.ndarray, " skill"], votes: Int[np.ndarray, " voter"]) -> VoterSkill:
    """Estimates whose errors are not known."""
    return lay_out(found, np.full_like(found, np.nan), votes, COVERAGE, NOT_KNOWN)
