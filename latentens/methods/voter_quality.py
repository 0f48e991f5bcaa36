"""How good each voter is, as far as a fit can tell: confusion matrices, accuracies, intervals and flags.

A voter's confusion matrix is what the method estimates, where it estimates one, and else the votes counted with the
label probabilities as weights. A rate that rests on n such votes, m of them right, has the posterior
`Beta(m + 1/2, n − m + (K − 1)/2)` of Jeffreys' prior; posterior draws, where there are any, are used in its place. The
intervals take the label probabilities to be right, and a voter's own votes have a share in these: they are too narrow
where labels are uncertain or items have few votes, and counted rates (not estimated ones) are too high there: a voter
who tosses coins then passes for better than chance.

Chance is a balanced accuracy of 1/K: that of any voter who does not look at the item, whatever the vote.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import beta

from latentens.votes import Votes
from latentens.votes.names import Names

COVERAGE = 0.95
MOST_CLASSES = 8
"""Tables show whole confusion matrices up to this many classes."""

CHANCE = "no better than chance"
REVERSED = "worse than chance: votes the other way round"
WORSE = "worse than chance"
SILENT = "no votes"

Confusion = Float[np.ndarray, "voter label vote"]
Arrays = Mapping[str, np.ndarray]


class VoteCounts(NamedTuple):
    """What a fit keeps of the votes behind it.

    Attributes:
        by_item: Number of votes on each item.
        by_voter: How often each voter cast each vote, by label: counts weighted with the label probabilities.
    """

    by_item: Int[np.ndarray, " item"]
    by_voter: Confusion


class Range(NamedTuple):
    """Estimates with the ends of their intervals."""

    value: Float[np.ndarray, " voter"]
    low: Float[np.ndarray, " voter"]
    high: Float[np.ndarray, " voter"]


class VoterQuality(NamedTuple):
    """Estimates for each voter.

    Attributes:
        votes: Number of votes.
        confusion: Probability of each vote given the label; NaN where nothing is known.
        accuracy: Share of right votes, on items like those that the voter voted on.
        balanced_accuracy: Mean over the labels of the share of right votes.
    """

    votes: Int[np.ndarray, " voter"]
    confusion: Confusion
    accuracy: Range
    balanced_accuracy: Range

    @property
    def flags(self) -> list[str]:
        """What to know of a voter, "" where there is nothing."""
        chance = 1 / self.confusion.shape[1]
        worse = REVERSED if self.confusion.shape[1] == 2 else WORSE
        _, lows, highs = self.balanced_accuracy
        return [
            SILENT if not votes else worse if high < chance else CHANCE if low <= chance else ""
            for votes, low, high in zip(self.votes, lows, highs, strict=True)
        ]


def count_by_label(votes: Votes, label_probs: Float[np.ndarray, "item label"]) -> VoteCounts:
    """Count the votes on each item, and each voter's votes by label."""
    size = votes.num_voters * votes.num_classes
    totals = np.zeros((label_probs.shape[1], size))
    for start, block in votes.blocks():
        probs = label_probs[start : start + block.num_items]
        for label, total in enumerate(totals):
            total += np.bincount(block.indicator_columns, probs[block.triplets.item, label], minlength=size)
    by_voter = totals.reshape(-1, votes.num_voters, votes.num_classes).transpose(1, 0, 2)
    return VoteCounts(votes.tally.sum(axis=1), by_voter)


def voter_quality(params: Arrays, draws: Arrays | None, by_voter: Confusion) -> VoterQuality:
    """Estimate the quality of each voter.

    Args:
        params: Parameters of a fit.
        draws: Posterior draws of these with leading axes (chain, draw), if there are any.
        by_voter: The counts of `count_by_label`.
    """
    number = by_voter.sum(axis=2)
    counted = by_voter / np.where(number > 0, number, np.nan)[:, :, None]
    estimated = _confusion(params, counted.shape)
    confusion = counted if estimated is None else np.asarray(estimated, dtype=np.float64)
    num_votes, num_classes = number.sum(axis=1), number.shape[1]
    shares = number / np.where(num_votes > 0, num_votes, 1.0)[:, None]
    even = np.full_like(shares, 1 / num_classes)
    sampled = None if draws is None else _confusion(draws, counted.shape)
    correct = np.nan_to_num(np.diagonal(confusion, axis1=1, axis2=2), nan=1 / num_classes)
    if sampled is None:
        ranges = [_by_counts(correct, number, weights) for weights in (shares, even)]
    else:
        right = np.diagonal(sampled, axis1=-2, axis2=-1).reshape(-1, *correct.shape)
        ranges = [_by_draws(correct, right, weights) for weights in (shares, even)]
    silent = num_votes <= 0
    accuracy, balanced = (Range(*(np.where(silent, np.nan, part) for part in found)) for found in ranges)
    return VoterQuality(num_votes.round().astype(int), confusion, accuracy, balanced)


def quality_frame(quality: VoterQuality, voter_names: Names, class_names: Names) -> pd.DataFrame:
    """The estimates as a table with one row per voter."""
    columns: dict[str, Any] = {"voter": voter_names, "votes": quality.votes}
    for name, (value, low, high) in (
        ("accuracy", quality.accuracy),
        ("balanced_accuracy", quality.balanced_accuracy),
    ):
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
    columns["flag"] = quality.flags
    if len(class_names) <= MOST_CLASSES:
        for label, truth in enumerate(class_names):
            for vote, said in enumerate(class_names):
                columns[f"says_{said}_if_{truth}"] = quality.confusion[:, label, vote]
    return pd.DataFrame(columns)


def _confusion(arrays: Arrays, shape: tuple[int, ...]) -> np.ndarray | None:
    """The confusion matrices that parameters or draws hold, perhaps as rates for two classes."""
    if "confusion" in arrays and arrays["confusion"].shape[-3:] == shape:
        return np.asarray(arrays["confusion"])
    rates = [np.asarray(arrays[name]) for name in ("specificity", "sensitivity") if name in arrays]
    if len(rates) != 2 or shape[1] != 2 or any(rate.shape[-1:] != shape[:1] for rate in rates):
        return None
    specificity, sensitivity = rates
    rows = [[specificity, 1 - specificity], [1 - sensitivity, sensitivity]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _by_counts(
    correct: Float[np.ndarray, "voter label"],
    number: Float[np.ndarray, "voter label"],
    weights: Float[np.ndarray, "voter label"],
) -> Range:
    """A weighted mean of rates; its posterior is taken as the beta distribution of the same mean and variance."""
    right = correct * number + 0.5
    wrong = (1 - correct) * number + (number.shape[1] - 1) / 2
    total = right + wrong
    mean = (weights * right / total).sum(axis=1)
    variance = (weights**2 * right * wrong / total**2 / (total + 1)).sum(axis=1)
    size = mean * (1 - mean) / np.where(variance > 0, variance, 1.0) - 1
    size = np.where((variance > 0) & (size > 0), size, 1.0)
    mean = mean.clip(1e-9, 1 - 1e-9)
    low, high = (beta.ppf(q, mean * size, (1 - mean) * size) for q in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2))
    value = (weights * correct).sum(axis=1)
    return Range(value, np.minimum(low, value), np.maximum(high, value))


def _by_draws(
    correct: Float[np.ndarray, "voter label"],
    draws: Float[np.ndarray, "draw voter label"],
    weights: Float[np.ndarray, "voter label"],
) -> Range:
    low, high = np.quantile((draws * weights).sum(axis=2), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
    return Range((correct * weights).sum(axis=1), low, high)
