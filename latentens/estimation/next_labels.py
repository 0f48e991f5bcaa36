"""Active sampling: which items to label so that estimates stay valid, and which voter to ask about which item."""

from typing import Literal, get_args

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from latentens.errors import VotesError
from latentens.estimation.estimate import smoothed_shares
from latentens.methods.base import Fit, Posterior
from latentens.runtime.blocks import row_blocks
from latentens.runtime.numerics import entropy, numpy_generator
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes

Purpose = Literal["prevalence", "accuracy", "labels", "orientation"]

PerItem = Float[np.ndarray, " item"]


def next_labels(
    fit: Fit,
    budget: int,
    *,
    key: jax.Array,
    for_: Purpose = "prevalence",
    gold: Gold | None = None,
    floor: float = 0.5,
) -> pd.DataFrame:
    """Choose items to label, with probabilities that `estimate` needs afterwards.

    Items are drawn at random, those whose label the votes leave open with a larger probability: π ∝ floor + (1 − floor)
    times their score over its mean, where the score is the standard deviation of the measured value, by the mean of
    the posterior and the vote shares (active statistical inference of Zrnic & Candès 2024). The sample has exactly
    `budget` items (systematic sampling in random order). If the posterior is wrong about where it errs, the variance is
    at most 1/`floor` times that of a simple random sample.

    Args:
        fit: A fit of the votes on all items.
        budget: Number of items to label.
        key: Random key; the same key gives the same items.
        for_: Purpose of the labels. `prevalence`: shares of the classes. `accuracy`: accuracies of the voters.
            `labels`: to correct the labels that are most likely wrong. `orientation`: to settle which label is which,
            where items that are clear up to the names of the classes say most.
        gold: Gold labels so far, of a simple random sample. Their items are not chosen again; they are in the table
            with the probability that they were to be labelled in one of both rounds.
        floor: Share of the probability that is spread evenly over all items; 1 is a simple random sample.

    Returns:
        One row for each item to label, in random order: `item`, `ask` (False for items with a gold label already),
        `probability`, `weight` (one over it, for `estimate`), and the fit's `label` and its `confidence`. In `attrs`,
        `worth` is how many random labels the chosen ones are worth if the posterior is right.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> fit = le.methods.DawidSkeneEM().fit(votes, key=jax.random.key(0))
        >>> le.next_labels(fit, 3, key=jax.random.key(1)).round(3)
           item   ask  probability    weight label  confidence
        0  2861  True        0.001   867.649     1       0.754
        1  1365  True        0.001  1704.191     0       0.999
        2  2297  True        0.001  1140.504     0       0.972
    """
    if for_ not in get_args(Purpose):
        raise VotesError(f"for_={for_!r} must be one of {', '.join(get_args(Purpose))}")
    if not 0 < floor <= 1:
        raise VotesError(f"floor={floor} must be above 0 and at most 1")
    probs, votes = fit.label_probs, _votes_of(fit)
    codes = np.full(len(probs), -1) if gold is None else gold_codes(votes, gold)
    known = codes >= 0
    left = int((~known).sum())
    if not 0 < budget <= left:
        raise VotesError(f"budget={budget} must be between 1 and the number of items without a label, {left}")
    # Voters who err together make a posterior too sure; mixed with vote shares it is less so.
    score = _score((probs + smoothed_shares(votes)) / 2, votes, for_)
    if not score.any():
        score = np.ones_like(score)
    wanted = floor + (1 - floor) * score / score.mean()
    chance = np.zeros(len(probs))
    chance[~known] = inclusion_probabilities(wanted[~known], budget)
    # An item with a label could have been chosen, too, with the probability of others like it.
    before = float(known.mean())
    chance[known] = np.minimum(wanted[known] * (chance[~known] / wanted[~known]).min(), 1.0)
    chosen = systematic_sample(chance * ~known, numpy_generator(key))
    overall = before + (1 - before) * chance
    rows = np.concatenate([chosen, np.flatnonzero(known)])
    labels = np.asarray(fit.class_names, dtype=object)[probs.argmax(axis=1)]
    table = pd.DataFrame(
        {
            "item": np.asarray(fit.item_names, dtype=object)[rows],
            "ask": ~known[rows],
            "probability": overall[rows],
            "weight": 1 / overall[rows],
            "label": labels[rows],
            "confidence": probs.max(axis=1)[rows],
        }
    )
    # simple random labels with the same variance, Σ σ²(1/π − 1), if the errors are as the posterior says
    squares, inverse = score[~known] ** 2, 1 / chance[~known]
    table.attrs["worth"] = float(left * squares.sum() / (squares @ inverse)) if squares.any() else float(budget)
    return table


def _votes_of(fit: Fit) -> Votes:
    if not isinstance(fit.source, Votes):
        raise VotesError(
            "the fit does not hold its votes: fit them again, or use the fit before it was saved or counted"
        )
    return fit.source


def _score(probs: Posterior, votes: Votes, for_: Purpose) -> PerItem:
    """Standard deviation of the measured value given the votes."""
    if for_ == "accuracy":  # whether a vote is right, averaged over the item's votes
        right = votes.tally * probs * (1 - probs)
        return np.sqrt(right.sum(axis=1) / np.maximum(votes.tally.sum(axis=1), 1))
    if for_ == "labels":
        return 1 - probs.max(axis=1)
    if for_ == "orientation":  # divergence between the posterior and the one with its two likeliest labels exchanged
        ordered = np.sort(probs, axis=1)
        return ordered[:, -1] - ordered[:, -min(2, probs.shape[1])]
    return np.sqrt((probs * (1 - probs)).sum(axis=1))


def inclusion_probabilities(wanted: PerItem, budget: int) -> PerItem:
    """Probabilities that sum to the budget, proportional to the wanted ones but at most one."""
    chance, certain = np.zeros(len(wanted)), np.zeros(len(wanted), dtype=bool)
    while True:
        chance = np.where(certain, 1.0, 0.0)
        chance[~certain] = (budget - certain.sum()) * wanted[~certain] / wanted[~certain].sum()
        above = chance > 1 + 1e-12
        if not above.any():
            return np.minimum(chance, 1.0)
        certain |= above


def systematic_sample(chance: PerItem, generator: np.random.Generator) -> np.ndarray:
    """A sample of fixed size with these probabilities, which sum to a whole number; in random order."""
    order = generator.permutation(np.flatnonzero(chance > 0))
    total = np.cumsum(chance[order])
    ticks = generator.random() + np.arange(round(total[-1]))
    return order[np.minimum(np.searchsorted(total, ticks, side="right"), len(order) - 1)]


def labels_needed(table: pd.DataFrame, half_width: float, num_items: int | None = None) -> pd.Series:
    """How many gold labels, those at hand included, make each interval of `estimate` as narrow as wanted.

    The half-width of an interval falls with √((1 − n/N)/n). Labels are enough where no more are needed than there are.

    Args:
        table: The result of `estimate`.
        half_width: The wanted half-width.
        num_items: Number of items N, if they are the population.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> gold = {item: int(data.labels[item]) for item in range(0, 200, 4)}
        >>> table = le.estimate(data.votes, gold, key=jax.random.key(1))
        >>> le.labels_needed(table, half_width=0.05).head(2)
        0    105.0
        1    109.0
        Name: labels_needed, dtype: float64
    """
    if half_width <= 0:
        raise VotesError(f"half_width={half_width} must be positive")
    share = 0.0 if num_items is None else 1 / num_items
    factor = (2 * half_width / (table["high"] - table["low"])) ** 2
    return np.ceil(1 / (factor * (1 / table["labels"] - share) + share)).rename("labels_needed")


def next_votes(fit: Fit, budget: int, *, per_item: int = 1) -> pd.DataFrame:
    """Choose whom to ask about which item: the votes that are expected to say most about labels.

    The expected information of a vote is the mutual information between it and the label given the votes so far,
    H(y) − E H(y | vote), by the voter's confusion matrix.

    Args:
        fit: A fit of the votes whose voters have confusion matrices.
        budget: Number of votes to ask for.
        per_item: At most this many votes are asked for on one item before the votes are fitted again.

    Returns:
        One row for each vote to ask for, the most informative first: `item`, `voter`, `information` in nats.
    """
    votes = _votes_of(fit)
    if budget < 1 or per_item < 1:
        raise VotesError(f"budget={budget} and per_item={per_item} must be positive")
    confusion = _confusion(fit)
    noise, found = entropy(confusion), []  # H(vote | label), (voter, label)
    for block in row_blocks(votes.num_items, confusion.shape[0] * confusion.shape[2]):
        part = fit.label_probs[block]
        gain = entropy(np.einsum("ik,jkv->ijv", part, confusion)) - part @ noise.T  # H(vote) − H(vote | label)
        inside = (votes.triplets.item >= block.start) & (votes.triplets.item < block.stop)
        gain[votes.triplets.item[inside] - block.start, votes.triplets.voter[inside]] = -np.inf  # has voted
        best = np.argsort(-gain, axis=1, kind="stable")[:, :per_item]
        rows = np.repeat(np.arange(block.start, block.start + len(part)), best.shape[1])
        found.append((rows, best.ravel(), np.take_along_axis(gain, best, axis=1).ravel()))
    item, voter, information = (np.concatenate(parts) for parts in zip(*found, strict=True))
    items, voters = (np.asarray(names, dtype=object) for names in (fit.item_names, fit.voter_names))
    best = np.argsort(-information, kind="stable")[: min(budget, int(np.isfinite(information).sum()))]
    return pd.DataFrame({"item": items[item[best]], "voter": voters[voter[best]], "information": information[best]})


def _confusion(fit: Fit) -> Float[np.ndarray, "voter label vote"]:
    """Confusion matrices, shrunk a little towards uniform, since no number of votes makes one certain."""
    skill = fit.summary.skill
    confusion = np.nan_to_num(skill.confusion, nan=1 / skill.confusion.shape[2])
    cast = skill.votes[:, None, None]
    return (confusion * cast + 1 / confusion.shape[2]) / (confusion.sum(axis=2, keepdims=True) * cast + 1)
