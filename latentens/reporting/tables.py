"""Tables of scores, and of labels that a user keeps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from latentens.checks import PredictiveRanking
from latentens.comparison import EXACT, Comparison, DatasetResult
from latentens.comparison.data_tree import predictions
from latentens.methods.display import voter_table
from latentens.methods.persistence import vote_names
from latentens.recommendation.recommend import GROUP
from latentens.recommendation.text import briefly
from latentens.scores import CONFIDENT, PairedDifference, holm
from latentens.scores.scores import Score

WARNING = (
    "The model with the best prediction of the votes is the best description of how they arise. Its labels need not be "
    "the best: most of the votes may be explained by something other than the label."
)


def with_short_methods(comparison: Comparison) -> Comparison:
    """The comparison with short names of methods, in recommendations too."""
    short, datasets = comparison.short_names, []
    for data in comparison.datasets:
        groups = {name: briefly(group, short) if name == GROUP else group for name, group in data.groups.items()}
        datasets.append(replace(data.renamed(short), groups=groups))
    return replace(comparison, datasets=tuple(datasets))


def consensus(data: DatasetResult) -> tuple[np.ndarray, np.ndarray]:
    """The label that most methods give each item, and how many do; ties go by the methods' mean probabilities."""
    probs = np.stack(list(data.estimates.values()))
    given = np.stack([(probs.argmax(axis=2) == label).sum(axis=0) for label in range(probs.shape[2])], axis=1)
    label = (given + probs.mean(axis=0) / 2).argmax(axis=1)  # a mean is at most 1, so it decides ties only
    return label, np.take_along_axis(given, label[:, None], axis=1)[:, 0]


def labels_frame(data: DatasetResult) -> pd.DataFrame:
    """The label of each item by each method and by most of them, as written; empty if every method failed."""
    if not data.estimates:
        return pd.DataFrame()
    names, (label, agreeing) = np.asarray(data.class_names), consensus(data)
    about = {"item": data.votes.item_names, "votes": data.votes.tally.sum(axis=1)}
    about |= {"consensus": names[label], "methods_agreeing": agreeing}
    return pd.DataFrame({**about, **{method: names[probs.argmax(axis=1)] for method, probs in data.posteriors.items()}})


def voters_frame(data: DatasetResult) -> pd.DataFrame:
    """The quality of each voter by each method."""
    frames = {}
    for method, fit in data.first_fits.items():
        if (skill := fit.skill) is not None:
            names = vote_names(data.votes, skill.confusion.shape[2])
            frames[method] = voter_table(skill, data.voter_names, data.class_names, names)
    return stacked(frames, "estimator") if frames else pd.DataFrame()


def stacked(frames: Mapping[str, pd.DataFrame], what: str) -> pd.DataFrame:
    """Tables below each other, with their names in the first column."""
    return pd.concat(frames, names=[what, "row"]).reset_index(what)


def by_dataset(tables: Iterable[tuple[str, Mapping[str, pd.DataFrame]]]) -> dict[str, pd.DataFrame]:
    """Tables of data sets by name, with the data set in the first column; empty ones are left out."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for dataset, named in tables:
        for name, table in named.items():
            found.setdefault(name, {}).update({dataset: table} if len(table) else {})
    return {name: stacked(frames, "dataset") for name, frames in found.items() if frames}


CONFIDENCE_STEPS = (0.0, 0.6, 0.75, 0.9, CONFIDENT, 1.0)
"""Ends of the ranges in which stated confidences are counted, each range with its upper end."""


def scores_frame(data: DatasetResult) -> pd.DataFrame:
    """Every score of every fit with its interval."""
    rows = []
    for repetition, method, outcome in data.outcomes():
        measured = {**outcome.scores, "seconds": outcome.seconds, "peak_memory": outcome.peak_memory}
        for score, value in measured.items():
            if not np.isnan(value):
                rows.append((repetition, method, score, value, *outcome.intervals.get(score, (np.nan, np.nan))))
    return pd.DataFrame(rows, columns=["repetition", "estimator", "score", "value", "low", "high"])


class Mean(NamedTuple):
    """A score over the repetitions: means of its values and of the ends of its interval, and the values' deviation."""

    value: float
    low: float
    high: float
    deviation: float

    def ends(self, digits: int = 2, scale: float = 1.0) -> str:
        """The ends of the interval in words; empty where it is not known, since nothing was resampled."""
        if np.isnan(self.low) or np.isnan(self.high):
            return ""
        return f"{scale * self.low:.{digits}f} to {scale * self.high:.{digits}f}"


Means = Mapping[tuple[str, str], Mean]
"""By method and score."""


def averages(data: DatasetResult) -> Means:
    """Means over the repetitions."""
    groups = scores_frame(data).groupby(["estimator", "score"], sort=False)
    numbers = groups[["value", "low", "high"]].mean().assign(deviation=groups["value"].std())
    return {place: Mean(*mean) for place, *mean in numbers.itertuples()}


def column(means: Means, score: str) -> dict[str, Mean]:
    """One score by method."""
    return {method: mean for (method, what), mean in means.items() if what == score}


def ranked(score: Score, means: Mapping[str, Mean]) -> list[str]:
    """The methods, best first by a score of which one way is better."""
    sign = 1 if score.better == "smaller" else -1
    return sorted(means, key=lambda method: sign * means[method].value)


Pairs = Mapping[tuple[str, str, str], PairedDifference]
"""By score, method and other method."""


def pairs_frame(data: DatasetResult) -> pd.DataFrame:
    """Differences of methods from other methods by score, each pair in both directions."""
    columns = ["repetition", "score", "estimator", "other", *PairedDifference._fields]
    return pd.DataFrame([(*place, *found) for place, found in data.pairs.items()], columns=columns)


def average_pairs(data: DatasetResult) -> Pairs:
    """Mean differences over the repetitions, with p-values that text and tables share.

    The p-value is the largest over the repetitions, adjusted for all pairs of methods (Holm); both directions of a pair
    are one test. The exact posterior is no method, and its pairs are left out.
    """
    how = {column: "max" if column == "p_value" else "mean" for column in PairedDifference._fields}
    pairs = pairs_frame(data)
    competing = pairs[(pairs["estimator"] != EXACT) & (pairs["other"] != EXACT)]
    numbers = competing.groupby(["score", "estimator", "other"], sort=False).agg(how)
    found = {place: PairedDifference(*difference) for place, *difference in numbers.itertuples()}
    for score in dict.fromkeys(score for score, _, _ in found):
        methods = list(dict.fromkeys(method for what, method, _ in found if what == score))
        tests = [pair for pair in combinations(methods, 2) if (score, *pair) in found]
        for (one, other), p_value in zip(tests, holm([found[score, *pair].p_value for pair in tests]), strict=True):
            for direction in ((score, one, other), (score, other, one)):
                found[direction] = found[direction]._replace(p_value=float(p_value))
    return found


def _flat(diagnostics: Mapping[str, Any], prefix: str = "", longest: int = 16) -> Iterator[tuple[str, Any]]:
    for name, value in diagnostics.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            if 0 < len(value) <= longest and not isinstance(value[0], list | dict):
                yield prefix + name, ", ".join(map(number_text, value))
        elif value is not None:
            yield prefix + name, value


def number_text(value: Any) -> str:
    """A value as people read it: numbers with five digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def shared_params(data: DatasetResult, params: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """True and estimated values of the parameters that have the same name and shape."""
    known = data.true_params
    names = [name for name in known if name in params and known[name].shape == params[name].shape]
    return [(name, known[name], params[name]) for name in names]


def confidence_shares(probs: np.ndarray) -> np.ndarray:
    """The share of items whose most probable label has a probability in each range of `CONFIDENCE_STEPS`."""
    place = np.searchsorted(CONFIDENCE_STEPS[1:-1], probs.max(axis=1), side="left")
    return np.bincount(place, minlength=len(CONFIDENCE_STEPS) - 1) / len(probs)


def agreement(data: DatasetResult) -> dict[tuple[str, str], float]:
    """The share of items to which two methods give the same label, for each pair of methods."""
    labels = {method: probs.argmax(axis=1) for method, probs in data.posteriors.items()}
    return {(one, other): float(np.mean(labels[one] == labels[other])) for one, other in combinations(labels, 2)}


def prediction_frame(data: DatasetResult) -> tuple[pd.DataFrame, PredictiveRanking] | None:
    """Models ranked by how well they predict held-out votes, and how each was judged; None if fewer than two do."""
    found = predictions(data)
    if len(found) < 2:
        return None
    ranking = PredictiveRanking(
        {name: part.log_density for name, part in found.items() if part.log_density is not None}
    )
    return ranking.table.assign(by=lambda rows: [found[str(name)].by for name in rows.index]), ranking


def dataset_tables(data: DatasetResult) -> dict[str, pd.DataFrame]:
    """All tables of a data set by the names of their files."""
    pairs = pairs_frame(data)
    adjusted = [(*place, found.p_value) for place, found in average_pairs(data).items()]  # as the page shows it
    p_values = pd.DataFrame(adjusted, columns=["score", "estimator", "other", "adjusted_p_value"])
    confidence = [
        (method, *step)
        for method, probs in data.scored.items()  # as in the scores: no method is sure because it was told the label
        for step in zip(CONFIDENCE_STEPS[:-1], CONFIDENCE_STEPS[1:], confidence_shares(probs), strict=True)
    ]
    same = [(*pair, share) for pair, share in agreement(data).items()]
    params = [
        (repetition, method, name, str([*index]) if index else "", true[index], estimate[index])
        for (repetition, method), fit in data.fits.items()
        for name, true, estimate in shared_params(data, fit.params)
        for index in np.ndindex(true.shape)
    ]
    diagnostics = [
        (*place, *found)
        for place, fit in data.fits.items()
        for found in _flat({"error": fit.error or None, **fit.diagnostics})
    ]
    return {
        "labels": labels_frame(data),
        "voters": voters_frame(data),
        "scores": scores_frame(data),
        "pairs": pairs.merge(p_values, "left"),
        "confidence": pd.DataFrame(confidence, columns=["estimator", "above", "up_to", "share"]),
        "agreement": pd.DataFrame(same, columns=["estimator", "other", "agreement"]),
        "parameters": pd.DataFrame(
            params, columns=["repetition", "estimator", "parameter", "index", "true", "estimate"]
        ),
        "diagnostics": pd.DataFrame(diagnostics, columns=["repetition", "estimator", "diagnostic", "value"]),
    }


def csv_tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """All tables by the names of their files; empty ones are left out."""
    datasets = comparison.datasets
    settings = {method: fit.settings for data in datasets for (_, method), fit in data.fits.items()}
    run = [
        ("data sets", ", ".join(data.name for data in datasets)),
        ("key", str(comparison.key_data.tolist())),
        *((name.replace("version_", "version of "), str(value)) for name, value in comparison.about.items()),
    ]
    rows = [(method, *pair) for method, found in settings.items() for pair in found.items()]
    return {
        **by_dataset((data.name, dataset_tables(data)) for data in datasets),
        "settings": pd.DataFrame(rows, columns=["estimator", "setting", "value"]),
        "run": pd.DataFrame(run, columns=["name", "value"]),
    }
