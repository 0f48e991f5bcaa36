"""Estimates that are valid whatever the model: gold labels on a random sample, and the votes on all items."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from latentens.errors import LatentensWarning, VotesError
from latentens.estimation.quantities import LabelFunction, Quantity, list_quantities
from latentens.estimation.rectified import Interval, Rectified, Sample, Urn, draw_urn, rectify
from latentens.methods.base import Method, Posterior
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.runtime.numerics import numpy_generator
from latentens.runtime.parallel import one_blas_thread
from latentens.scores import holm
from latentens.votes import Votes
from latentens.votes.labels import listed
from latentens.votes.matching import Gold, gold_codes, known_items, named_labels

PerItem = Mapping[Hashable, Any] | pd.Series | Sequence[Any] | np.ndarray
"""A value for each item: by the item's name, or one entry per item."""


@one_blas_thread()
def estimate(
    votes: Votes,
    gold: Gold,
    *,
    key: jax.Array,
    method: Method | None = None,
    folds: int = 0,
    by: PerItem | None = None,
    cluster: PerItem | None = None,
    weights: PerItem | None = None,
    compare: Sequence[Hashable] | None = None,
    functions: Mapping[str, LabelFunction] | None = None,
    level: float = 0.95,
    population: float | None = None,
    draws: int = 4000,
) -> pd.DataFrame:
    """Estimate prevalences, accuracies of voters and other means, with intervals that do not trust the model.

    Gold labels of a random sample of the items are combined with predictions for all items: the posterior of a method
    and the shares of the votes (prediction-powered inference). However wrong these are, the intervals hold as long as
    the gold labels are a random sample; the better they are, the more labels they are worth.

    Args:
        votes: The votes on all items.
        gold: Gold labels of a random sample of the items, in any of the forms that `Method.fit` takes.
        key: Random key; the same key gives the same result.
        method: The method whose posterior predicts labels, by default `DawidSkeneEM`.
        folds: Number of cross-validation folds of the gold labels, if the method is to use gold labels, too: each is
            predicted by a fit that has not seen it. With 0 the method is fitted once and sees none.
        by: A segment for each item; quantities are also estimated for each segment alone.
        cluster: A cluster for each item, such as its prompt, if items of a cluster are alike: clusters are then the
            sampling units.
        weights: How many items each labelled item stands for, one over the probability with which it was sampled
            (column `weight` of `next_labels`). By default all items were equally likely to be labelled.
        compare: Two voters, whose accuracies are compared on the items with votes of both, or two classes: the win rate
            of the first is then its share plus half the share of the classes that are neither.
        functions: Functions of the label whose means are wanted, by name: a callable of the class, or a number for each
            class.
        level: Coverage of the intervals.
        population: Number of items that these items are a random sample of: `math.inf` for statements about items like
            these. By default the items themselves are the population.
        draws: Number of resampled populations that intervals are computed from.

    Returns:
        One row for each quantity: `quantity`, `of` (class, voter or pair), `label_free` (the method's estimate without
        correction), `gold_only` with `gold_low` and `gold_high` (gold labels alone), `estimate` with `low`, `high` and
        `standard_error` (rectified), `labels` (their number) and `worth_labels` (how many labels alone would be as
        precise). With `by` there are also `segment` and `p_value`, whether the segment differs from the rest, adjusted
        by Holm's method for the number of segments; with `compare`, whether the two differ.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> gold = {item: int(data.labels[item]) for item in range(0, 200, 4)}
        >>> table = le.estimate(data.votes, gold, key=jax.random.key(1))
        >>> table[["quantity", "of", "estimate", "low", "high"]].head(3).round(2)
             quantity of  estimate   low  high
        0  prevalence  0      0.72  0.64  0.78
        1  prevalence  1      0.28  0.21  0.36
        2    accuracy  0      0.80  0.73  0.87
    """
    codes = gold_codes(votes, gold)
    labelled = np.flatnonzero(codes >= 0)
    _check(votes, codes, level)
    model_key, fold_key, urn_key, test_key = jax.random.split(key, 4)
    unit, item_weights = _units(votes, cluster, labelled), _weights(votes, weights, labelled)
    proxies = _proxies(votes, method or DawidSkeneEM(), codes, folds, unit, model_key, fold_key)
    if cluster is None and weights is None:
        _warn_if_not_random(proxies[0], labelled, test_key)
    num_units = int(unit.max()) + 1
    grown = num_units / len(labelled)
    urn = draw_urn(
        numpy_generator(urn_key),
        draws,
        num_units,
        votes.num_items * grown,
        None if population is None else max(population, votes.num_items) * grown,
        None if weights is None or cluster is not None else 1 / item_weights,
    )
    design = Design(codes, labelled, item_weights, unit, urn, proxies, level, population)
    quantities = list(list_quantities(votes, compare, functions))
    everywhere = design.rows(quantities)
    if by is None:
        return pd.DataFrame(everywhere).drop(columns=[] if compare is not None else "p_value")
    segments = per_item(by, votes, "segment")
    names = list(dict.fromkeys(segments[~pd.isna(segments)]))
    empty = [name for name in names if not (segments[labelled] == name).any()]
    if empty:
        _warn(f"no gold labels in segment {listed(empty)}: the method's own estimate is the only one there")
    rows = []
    for overall, *inside in zip(
        everywhere, *(design.rows(quantities, segments == name) for name in names), strict=True
    ):
        adjusted = holm([row["p_value"] for row in inside])
        rows.append({"segment": "all", **overall})
        for name, row, p_value in zip(names, inside, adjusted, strict=True):
            rows.append({"segment": name, **row, "p_value": p_value})
    return pd.DataFrame(rows)


class Predictions(NamedTuple):
    """Predictions of labels.

    Attributes:
        probs: Predictors in order: the method, then vote shares.
        fold: The gold labels that these predict, by their places among the labelled items.
        unseen: The items whose labels the predictors have not seen.
    """

    probs: tuple[Posterior, ...]
    fold: Int[np.ndarray, " some"]
    unseen: Int[np.ndarray, " item"]


Measured = tuple[Sample | None, float, int, int]
"""A quantity on the labelled items, if they say anything about it; by the method alone; numbers of labels and items."""


class Design(NamedTuple):
    """The sampling design of the gold labels, and predictions of them.

    Attributes:
        codes: The code of each item's label, −1 where it is unknown.
        labelled: The labelled items.
        weights: How many items each of them stands for.
        unit: The sampling unit of each of them.
        urn: Resampled populations of the units.
        predictions: Predictions of labels, fold by fold.
        level: Coverage of the intervals.
        population: Number of items that these items are a sample of, if they are not the population.
    """

    codes: Int[np.ndarray, " item"]
    labelled: Int[np.ndarray, " label"]
    weights: Float[np.ndarray, " label"]
    unit: Int[np.ndarray, " label"]
    urn: Urn
    predictions: list[Predictions]
    level: float
    population: float | None

    def rows(self, quantities: Sequence[Quantity], mask: np.ndarray | None = None) -> list[dict[str, Any]]:
        """Quantities on all items or on those of a segment, which are then tested against the others."""
        here = [self.sample(quantity, mask) for quantity in quantities]
        found = self.rectified(here)
        others = found if mask is None else self.rectified([self.sample(quantity, ~mask) for quantity in quantities])
        rows = []
        for quantity, (_, label_free, labels, size), part, other in zip(quantities, here, found, others, strict=True):
            row: dict[str, Any] = {"quantity": quantity.name, "of": quantity.of, "label_free": label_free}
            row |= _ends(part and part.gold, "gold_only", "gold_low", "gold_high")
            row |= _ends(part and part.rectified, "estimate", "low", "high")
            error, worth, p_value = np.nan, 0.0, np.nan
            if part is not None:
                gold, best = part
                left = 1 - labels / size
                beyond = 0.0 if self.population is None else max(1 / size - 1 / max(self.population, size), 0.0)
                number = len(np.unique(self.unit)) / len(self.labelled)  # of units per item
                error = float(np.sqrt((left * best.variance / labels + beyond * gold.variance) / number))
                total = left * best.variance + labels / size * gold.variance
                worth = labels * gold.variance / total if gold.variance > 0 else float(labels)
                if not np.isnan(quantity.null):
                    p_value = _p_value(best.draws - quantity.null)
                elif mask is not None and other is not None:
                    p_value = _p_value(best.draws - other.rectified.draws)
            rows.append(row | {"standard_error": error, "labels": labels, "worth_labels": worth, "p_value": p_value})
        return rows

    def rectified(self, measured: Sequence[Measured]) -> list[Rectified | None]:
        """The quantities, None where no gold label says anything about one."""
        found = iter(rectify([sample for sample, *_ in measured if sample is not None], self.urn, self.level))
        return [None if sample is None else next(found) for sample, *_ in measured]

    def sample(self, quantity: Quantity, mask: np.ndarray | None) -> Measured:
        """A quantity on the items of a mask."""
        about = np.ones(len(quantity.items), dtype=bool) if mask is None else mask[quantity.items]
        items, values = quantity.items[about], np.stack([quantity.top[about], quantity.bottom[about]])
        inside = np.flatnonzero(np.isin(self.labelled, items))
        places = np.searchsorted(items, self.labelled[inside])
        free, proxies, means = np.zeros(2), np.zeros((2, len(inside), 2)), np.zeros((2, len(inside), 2))
        for probs, fold, unseen in self.predictions:
            mine, open_items = np.isin(inside, fold), np.isin(items, unseen)
            for number, predicted in enumerate(probs):
                expected = (predicted[items] * values).sum(axis=2)
                proxies[:, mine, number] = expected[:, places[mine]]
                means[:, mine, number] = (
                    expected[:, open_items].mean(axis=1, keepdims=True) if open_items.any() else 0.0
                )
                free += expected.sum(axis=1) if number == 0 else 0.0
        label_free = float(free[0] / free[1]) if free[1] > 0 else np.nan
        a, b = values[:, places, self.codes[self.labelled[inside]]]
        rest = self.weights[inside], quantity.possible, self.unit[inside]
        sample = Sample(a, b, proxies[0], proxies[1], means[0], means[1], *rest)
        return sample if len(inside) and b.any() else None, label_free, len(inside), len(items)


def _ends(interval: Interval | None, *names: str) -> dict[str, float]:
    return dict(zip(names, [np.nan] * 3 if interval is None else interval[:3], strict=True))


def _p_value(differences: Float[np.ndarray, " draw"]) -> float:
    """Two-sided: how rarely resampled populations are on the other side of zero."""
    if np.isnan(differences).any():
        return np.nan
    sides = [np.sum(differences <= 0), np.sum(differences >= 0)]
    return float(min(1.0, 2 * (min(sides) + 1) / (len(differences) + 1)))


def _proxies(
    votes: Votes, method: Method, codes: np.ndarray, folds: int, units: np.ndarray, key: jax.Array, fold_key: Any
) -> list[Predictions]:
    """The method's posterior and vote shares, by fits that have not seen the gold labels that they predict."""
    labelled = np.flatnonzero(codes >= 0)
    shares = smoothed_shares(votes)
    if folds == 0:
        everyone = np.arange(len(labelled)), np.arange(votes.num_items)
        return [Predictions((_posterior(method, votes, key), shares), *everyone)]
    number = int(units.max()) + 1
    if not 2 <= folds <= number:
        raise VotesError(f"folds={folds} must be 0, or between 2 and the number of labelled units, {number}")
    found = []
    for part in np.array_split(numpy_generator(fold_key).permutation(number), folds):
        fold = np.flatnonzero(np.isin(units, part))
        known = codes.copy()
        known[labelled[fold]] = -1
        found.append(Predictions((_posterior(method, votes, key, known), shares), fold, np.flatnonzero(known < 0)))
    return found


def smoothed_shares(votes: Votes) -> Posterior:
    """The share of each class in the votes on an item, one more vote being divided among them as all votes are."""
    prior = votes.tally.sum(axis=0) / votes.tally.sum()
    return (votes.tally + prior) / (votes.tally.sum(axis=1, keepdims=True) + 1)


def _posterior(method: Method, votes: Votes, key: jax.Array, known: np.ndarray | None = None) -> Posterior:
    gold = None if known is None else named_labels(votes, known)
    probs = method.fit(votes, key=key, gold=gold).label_probs
    if probs.shape[1] != votes.num_classes:
        raise VotesError(f"{method} has {probs.shape[1]} labels, but the votes have {votes.num_classes} classes")
    return probs


def per_item(values: PerItem, votes: Votes, what: str) -> np.ndarray:
    """A value for each item, None where there is none.

    Args:
        values: By the item's name, or one entry per item.
        votes: The votes.
        what: Name of the values in messages.
    """
    found = np.full(votes.num_items, None, dtype=object)
    if isinstance(values, Mapping | pd.Series):
        series = pd.Series(values, dtype=object)
        items = known_items(series.index, votes, what)
        found[items[items >= 0]] = series.to_numpy()[items >= 0]
    else:
        given = np.asarray(values, dtype=object)
        if given.shape != (votes.num_items,):
            raise VotesError(f"{what}s have shape {given.shape}, but there are {votes.num_items} items")
        found[:] = given
    return found


def _units(votes: Votes, cluster: PerItem | None, labelled: np.ndarray) -> np.ndarray:
    if cluster is None:
        return np.arange(len(labelled))
    names = per_item(cluster, votes, "cluster")[labelled]
    if pd.isna(names).any():
        raise VotesError(f"{pd.isna(names).sum()} of the {len(labelled)} labelled items have no cluster")
    unit, found = pd.factorize(names)
    if len(found) < 2:
        raise VotesError("all gold labels are in one cluster: labels of at least two clusters are needed")
    return unit


def _weights(votes: Votes, weights: PerItem | None, labelled: np.ndarray) -> Float[np.ndarray, " label"]:
    if weights is None:
        return np.full(len(labelled), votes.num_items / len(labelled))
    found = pd.to_numeric(pd.Series(per_item(weights, votes, "weight")[labelled]), errors="coerce").to_numpy(float)
    if not (found >= 1).all():
        raise VotesError(
            "weights must be given for all labelled items and be at least 1: a weight is one over the probability with "
            "which an item was chosen to be labelled"
        )
    return found


def _check(votes: Votes, codes: np.ndarray, level: float, few: int = 20) -> None:
    """Raise `VotesError` if gold labels are too few or the level is invalid; warn if they are few or all alike.

    Args:
        votes: The votes.
        codes: The code of each item's label, −1 where it is unknown.
        level: Coverage of the intervals.
        few: Coverage was measured from this number of gold labels on (analyses/ESTIMATE.md).
    """
    votes.refuse_other_votes("estimate")
    number, found = int((codes >= 0).sum()), np.unique(codes[codes >= 0])
    if not 0 < level < 1:
        raise VotesError(f"level={level} must be between 0 and 1")
    if number < 2:
        raise VotesError(f"at least 2 gold labels are needed, and {few} for reliable intervals, but {number} given")
    if number < few:
        _warn(f"{number} gold labels are few: coverage of the intervals was measured from {few} labels on")
    if len(found) == 1 and votes.num_classes > 1:
        _warn(
            f"all {number} gold labels are {listed([votes.class_names[found[0]]])}: they say nothing about how voters "
            "vote on items of other classes"
        )


def _warn_if_not_random(
    predictions: Predictions, labelled: np.ndarray, key: jax.Array, resamples: int = 999, level: float = 0.01
) -> None:
    """Warn if votes on labelled items differ from those on all items more than they would in random samples."""
    shares, generator = predictions.probs[-1], numpy_generator(key)
    num_items, spread = len(shares), shares.std(axis=0)
    if len(labelled) == num_items or not spread.any():
        return
    scaled = (shares - shares.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    seen = (scaled[labelled].mean(axis=0) ** 2).sum()
    chosen = np.stack([generator.choice(num_items, len(labelled), replace=False) for _ in range(resamples)])
    others = (scaled[chosen].mean(axis=1) ** 2).sum(axis=1)
    p_value = (1 + np.sum(others >= seen)) / (1 + resamples)
    if p_value < level:
        _warn(
            f"the votes on labelled items differ from those on the others (p = {p_value:.3f}): the gold labels may not "
            "be a random sample, on which every number here rests; if items were chosen with known probabilities, pass "
            "weights"
        )


def _warn(words: str) -> None:
    warnings.warn(words, LatentensWarning, stacklevel=3)


def explain(table: pd.DataFrame) -> list[str]:
    """Summarise a table of `estimate` in sentences: the value of the votes, and where the method is off.

    Args:
        table: The result of `estimate`.
    """
    table = table[table["segment"] == "all"] if "segment" in table else table
    known, sentences = table[table["labels"] > 0], []
    for name, rows in known.groupby("quantity", sort=False):
        gain = (rows["worth_labels"] / rows["labels"]).median()
        labels, worth = rows["labels"].median(), rows["worth_labels"].median()
        alone = f"{labels:.0f} gold labels"
        if gain < 1.02:
            sentences.append(f"The votes do not improve the estimates of {name} from {alone}.")
        else:
            sentences.append(f"With the votes, estimates of {name} from {alone} are as precise as from {worth:.0f}.")
    off = known[(known["label_free"] < known["low"]) | (known["label_free"] > known["high"])]
    if len(off):
        shown = [
            f"{row.quantity} of {row.of} ({row.label_free:.3f} outside {row.low:.3f}–{row.high:.3f})"
            for row in off.itertuples()
        ]
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        share = f"{len(off)} of {len(known)} estimates lie outside these intervals"
        sentences.append(f"Without gold labels, {share}: {', '.join(shown[:3])}{more}.")
    return sentences
