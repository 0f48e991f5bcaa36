"""Agreement statistics: Krippendorff's α, Fleiss' κ, Gwet's AC1 and Cohen's κ, with bootstrap intervals over items."""

from itertools import combinations

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from latentens.errors import VotesError
from latentens.runtime.blocks import row_blocks
from latentens.runtime.numerics import numpy_generator
from latentens.scores.scores import ratio
from latentens.votes import Votes
from latentens.votes.labels import Names

Weights = Float[np.ndarray, "resample row"]
Values = Float[np.ndarray, " resample"]
Name = tuple[str, str]


def agreement(
    votes: Votes, *, key: jax.Array, resamples: int = 1000, level: float = 0.95, max_paired: int = 30
) -> pd.DataFrame:
    """How far voters agree beyond chance, by the statistics that papers report.

    Missing votes are allowed. None of these statistics says whether the voters are right: voters who share an error
    agree on it.

    * Krippendorff's α: 1 − observed / expected disagreement, over pairs of votes on the same item. `nominal` counts
      any two different votes as a disagreement. With more than two classes there are also `ordinal`, for classes given
      in their order, and `interval`, if all class names are numbers; which one is meaningful depends on the classes.
    * Fleiss' κ and Gwet's AC1: (observed − expected) / (1 − expected) agreement, averaged over items with at least two
      votes. Expected agreement is that of votes drawn from the mean shares of the classes (Fleiss), or
      Σ_k π_k (1 − π_k) / (K − 1) with these shares π (Gwet), which stays sensible when one class dominates.
    * Cohen's κ of each pair of voters, on the items on which both voted.

    Args:
        votes: The votes, without repetitions.
        key: Random key; the same key gives the same intervals.
        resamples: Number of bootstrap resamples of items.
        level: Coverage of the intervals (percentile bootstrap).
        max_paired: Cohen's κ is left out if there are more voters than this.

    Returns:
        One row per statistic: `statistic`, `of` (the metric, "all voters" or a pair of voters), `value`, and the ends
        `low` and `high` of its interval. NaN where a statistic is undefined, as with votes for one class only.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> le.agreement(votes, key=jax.random.key(0))[["statistic", "value", "low", "high"]].head(3).round(2)
                      statistic  value   low  high
        0  Krippendorff's alpha   0.28  0.26  0.30
        1         Fleiss' kappa   0.28  0.26  0.30
        2            Gwet's AC1   0.67  0.65  0.68
    """
    votes = votes.to_hard().without_other_votes()  # to agree that an item is a tie says nothing about its label
    votes.refuse_repeats("agreement")
    if not (votes.tally.sum(axis=1) > 1).any():
        raise VotesError("no item has votes from two voters, so agreement cannot be measured")
    rows, counts, _ = votes.patterns
    found = pd.DataFrame(_statistics(rows, votes, counts[None].astype(np.float64), max_paired))
    generator, resampled = numpy_generator(key), [found.iloc[:0]]
    for block in row_blocks(resamples, len(counts)):
        number = block.stop - block.start
        weights = generator.multinomial(votes.num_items, counts / counts.sum(), size=number).astype(np.float64)
        resampled.append(pd.DataFrame(_statistics(rows, votes, weights, max_paired)))
    ends = pd.concat(resampled).quantile([(1 - level) / 2, (1 + level) / 2])
    table = pd.concat([found, ends]).T.set_axis(["value", "low", "high"], axis=1)
    return table.rename_axis(["statistic", "of"]).reset_index()


def _statistics(rows: Votes, votes: Votes, weights: Weights, max_paired: int) -> dict[Name, Values]:
    """Every statistic of resamples, which draw each distinct row of votes a number of times."""
    tally = rows.tally.astype(np.float64)
    cast = tally.sum(axis=1)
    found: dict[Name, Values] = {}
    # coincidences of two votes on an item; those of an item with m votes have a total weight of m
    paired = cast > 1
    scale = np.where(paired, 1 / np.maximum(cast - 1, 1), 0.0)
    own = np.eye(votes.num_classes)
    together = tally[:, :, None] * (tally[:, None, :] - own) * scale[:, None, None]
    coincidences = (weights @ together.reshape(len(tally), -1)).reshape(len(weights), *own.shape)
    totals = coincidences.sum(axis=2)
    for metric, distance in _distances(totals, votes.class_names).items():
        observed = (coincidences * distance).sum(axis=(1, 2))
        expected = np.einsum("rc,rk,rck->r", totals, totals, np.broadcast_to(distance, coincidences.shape))
        found["Krippendorff's alpha", metric] = 1 - ratio((totals.sum(axis=1) - 1) * observed, expected)
    # shares of agreeing pairs of votes, and mean shares of the classes
    agreeing = (tally * (tally - 1)).sum(axis=1) * scale / np.maximum(cast, 1)
    observed = ratio(weights @ agreeing, weights @ paired)
    voted = cast > 0
    shares = ratio((weights @ (tally / np.maximum(cast, 1)[:, None])).T, weights @ voted).T
    found["Fleiss' kappa", "all voters"] = _beyond_chance(observed, (shares**2).sum(axis=1))
    by_chance = (shares * (1 - shares)).sum(axis=1) / max(votes.num_classes - 1, 1)
    found["Gwet's AC1", "all voters"] = _beyond_chance(observed, by_chance)
    if votes.num_voters > max_paired:
        return found
    for one, other in combinations(range(votes.num_voters), 2):
        first, second = (rows.matrix[:, [voter]] == np.arange(votes.num_classes) for voter in (one, other))
        cells = (first[:, :, None] & second[:, None, :]).reshape(len(cast), -1)
        table = (weights @ cells.astype(np.float64)).reshape(coincidences.shape)
        size = table.sum(axis=(1, 2))
        observed = ratio(np.trace(table, axis1=1, axis2=2), size)
        by_chance = ratio((table.sum(axis=1) * table.sum(axis=2)).sum(axis=1), size**2)
        name = f"{votes.voter_names[one]}, {votes.voter_names[other]}"
        found["Cohen's kappa", name] = _beyond_chance(observed, by_chance)
    return found


def _distances(
    totals: Float[np.ndarray, "resample label"], class_names: Names
) -> dict[str, Float[np.ndarray, "... label label"]]:
    """Squared distances between classes, by metric."""
    size = totals.shape[1]
    found: dict[str, np.ndarray] = {"nominal": 1 - np.eye(size)}
    if size == 2:  # the other metrics give the same α
        return found
    # votes from one class up to another, those of the two ends counted by half
    up_to = np.cumsum(totals, axis=1) - totals / 2
    found["ordinal"] = (up_to[:, :, None] - up_to[:, None, :]) ** 2
    try:
        values = np.array([float(str(name)) for name in class_names])
    except ValueError:
        return found
    found["interval"] = (values[:, None] - values) ** 2
    return found


def _beyond_chance(observed: Values, by_chance: Values) -> Values:
    return np.where(by_chance < 1, ratio(observed - by_chance, 1 - by_chance), np.nan)
