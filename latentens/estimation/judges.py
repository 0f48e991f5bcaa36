"""The value of judges: their effective number, the contribution of each one, and the grades of a panel."""

import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float

from latentens.checks.effective_voters import EffectiveVoters, effective_voters
from latentens.errors import LatentensWarning, VotesError
from latentens.estimation.quantities import ballots_of
from latentens.methods.base import Fit, Method, Posterior
from latentens.methods.consensus import Consensus
from latentens.methods.dawid_skene_em import DawidSkeneEM
from latentens.runtime.numerics import numpy_generator
from latentens.scores import compare_accuracy, compare_log_scores, log_losses
from latentens.votes import Triplets, Votes
from latentens.votes.labels import Classes
from latentens.votes.matching import Gold, gold_codes


class EffectiveJudges(NamedTuple):
    """How many judges with independent errors have a mean error that varies as much as that of these judges.

    Attributes:
        number: The number, J/(1 + (J − 1) ρ) for J judges whose errors have the mean correlation ρ.
        low: Lower end of its interval.
        high: Upper end.
        correlation: The mean correlation ρ between the errors of two judges.
        judges: Number of judges with votes on labelled items.
        labels: Number of gold labels.
        level: Coverage of the interval.
    """

    number: float
    low: float
    high: float
    correlation: float
    judges: int
    labels: int
    level: float = 0.95

    @property
    def summary(self) -> str:
        """The number in a sentence."""
        if np.isnan(self.number):
            return f"The errors of the judges on {self.labels:,} gold labels do not vary, so judges cannot be compared."
        return (
            f"By their errors on {self.labels:,} gold labels, {self.judges} judges carry as much information as "
            f"{self.number:.1f} with independent errors ({self.level:.0%} interval {self.low:.1f} to {self.high:.1f}); "
            f"the mean correlation between the errors of two judges is {self.correlation:.2f}."
        )


def effective_judges(
    votes: Votes, gold: Gold, *, key: jax.Array, level: float = 0.95, resamples: int = 1000
) -> EffectiveJudges:
    """The effective number of judges by their errors on gold labels, with a bootstrap interval over items.

    Args:
        votes: The votes; repeated votes of a judge on an item average.
        gold: Gold labels of some items.
        key: Random key of the bootstrap.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> gold = {item: int(data.labels[item]) for item in range(100)}
        >>> found = le.effective_judges(data.votes, gold, key=jax.random.key(1))
        >>> round(found.number, 1), round(found.correlation, 2)
        (5.7, 0.01)
    """
    codes = gold_codes(votes, gold)
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) < 2 or votes.num_voters < 2:
        raise VotesError("at least two gold labels and two judges are needed to see whether judges err together")
    wrong = np.full((votes.num_items, votes.num_voters), np.nan)
    for judge, (items, said) in enumerate(ballots_of(votes)):
        wrong[items, judge] = 1 - np.take_along_axis(said, codes[items, None], axis=1)[:, 0]
    wrong = wrong[labelled]
    wrong = wrong[:, (~np.isnan(wrong)).sum(axis=0) > 1]
    number, correlation = _effective(wrong, np.ones(len(wrong)))
    generator = numpy_generator(key)
    draws = generator.multinomial(len(wrong), np.full(len(wrong), 1 / len(wrong)), size=resamples)
    found = np.array([_effective(wrong, weights)[0] for weights in draws.astype(float)])
    low, high = np.nanquantile(found, [(1 - level) / 2, (1 + level) / 2])
    return EffectiveJudges(number, float(low), float(high), correlation, wrong.shape[1], len(wrong), level)


def _effective(wrong: Float[np.ndarray, "label judge"], weights: Float[np.ndarray, " label"]) -> tuple[float, float]:
    """The effective number and the mean correlation, covariances being those of the items that two judges share."""
    cast = ~np.isnan(wrong)
    filled, shares = np.where(cast, wrong, 0.0), weights[:, None] * cast
    totals = shares.sum(axis=0)
    centred = np.where(cast, filled - (weights @ filled) / np.maximum(totals, 1e-300), 0.0)
    together = shares.T @ cast
    covariance = (weights[:, None] * centred).T @ centred / np.maximum(together, 1e-300)
    pairs = together > 0
    size, variance = len(covariance), np.diag(covariance).mean()
    between = covariance[pairs & ~np.eye(size, dtype=bool)]
    if variance <= 0 or not len(between):
        return np.nan, np.nan
    correlation = float(between.mean() / variance)
    inflation = 1 + (size - 1) * correlation
    return float(size / inflation) if inflation > 0 else np.inf, correlation


def judge_worth(
    votes: Votes, gold: Gold, *, key: jax.Array, method: Method | None = None, curve: bool = True
) -> pd.DataFrame:
    """The contribution of each judge to the panel, by gold labels that no fit has seen.

    Args:
        votes: The votes.
        gold: Gold labels of some items, which only score the fits.
        key: Random key of the fits.
        method: The method that combines the judges, by default `DawidSkeneEM`.
        curve: Whether to fit growing panels, too: judges are added from the best to the worst by the method's own
            estimate of their accuracy, which has seen no gold label.

    Returns:
        One row for each judge: `judge`; `accuracy_without` and `log_score_without` of the panel without the judge;
        `accuracy_added`, the gain in accuracy by the judge, with `low`, `high` and `p_value` (McNemar);
        `log_score_added`, by how much the judge lowers the log score, with its own interval; with `curve` also `rank`,
        and `accuracy_so_far` and `log_score_so_far` of the judges up to this rank. `attrs` has the scores of all.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> data = le.simulate(le.models.DawidSkene(6), 200, key=jax.random.key(0))
        >>> gold = {item: int(data.labels[item]) for item in range(100)}
        >>> table = le.judge_worth(data.votes, gold, key=jax.random.key(1), curve=False)
        >>> table.iloc[:3, :3].round(2)
           judge  accuracy_added   low
        0      0            0.01 -0.03
        1      1            0.01 -0.02
        2      2            0.23  0.13
    """
    method = method or DawidSkeneEM()
    codes = gold_codes(votes, gold)
    if (codes >= 0).sum() < 2 or votes.num_voters < 3:
        raise VotesError("at least two gold labels and three judges are needed to see what each judge adds")
    everyone = np.arange(votes.num_voters)
    fit = method.fit(votes, key=key)
    probs = fit.label_probs
    rows = []
    for judge in everyone.tolist():
        others = _posterior(method, _judges(votes, np.delete(everyone, judge)), key)
        accuracy, log_score = compare_accuracy(codes, probs, others), compare_log_scores(codes, others, probs)
        rows.append((votes.voter_names[judge], *accuracy, *log_score[:3], *_scores(codes, others)))
    columns = ["judge", "accuracy_added", "low", "high", "p_value", "log_score_added", "log_score_low"]
    columns += ["log_score_high", "accuracy_without", "log_score_without"]
    table = pd.DataFrame(rows, columns=columns)
    table.attrs.update(zip(("accuracy", "log_score"), _scores(codes, probs), strict=True))
    if curve:
        skill = fit.summary.skill
        order = np.argsort(-np.nan_to_num(skill.balanced_accuracy), kind="stable")
        so_far = [
            _scores(codes, _posterior(method, _judges(votes, np.sort(order[:size])), key)) for size in everyone + 1
        ]
        table["rank"] = np.argsort(order) + 1
        table["accuracy_so_far"], table["log_score_so_far"] = np.array(so_far)[np.argsort(order)].T
    return table


def _scores(codes: np.ndarray, probs: Posterior) -> tuple[float, float]:
    known = codes >= 0
    return float((probs[known].argmax(axis=1) == codes[known]).mean()), float(log_losses(codes, probs)[known].mean())


def _posterior(method: Method, votes: Votes, key: jax.Array) -> Posterior:
    with warnings.catch_warnings():  # of small panels; the user wants the scores
        warnings.simplefilter("ignore", LatentensWarning)
        return method.fit(votes, key=key).label_probs


def _judges(votes: Votes, judges: Sequence[int] | np.ndarray) -> Votes:
    """The votes of some judges."""
    names = np.asarray(votes.voter_names, dtype=object)[judges]
    if isinstance(votes.storage, np.ndarray):
        storage: np.ndarray | Triplets = votes.storage[:, judges].copy()
    else:
        votes = votes.at_entries(np.isin(votes.storage.voter, judges))
        voter = votes.triplets.voter
        storage = votes.triplets._replace(voter=np.searchsorted(judges, voter).astype(voter.dtype))
    return replace(votes, storage=storage, num_voters=len(names), voter_names=names, anchor=())


class PanelGrades(NamedTuple):
    """The labels of a panel, and its effective number of graders.

    Attributes:
        fit: The labels and their probabilities.
        worth: The number of independent graders: by errors on gold labels, or by a model of the grades.
    """

    fit: Fit
    worth: EffectiveJudges | EffectiveVoters

    @property
    def effective_graders(self) -> float:
        """How many independent graders the panel is worth."""
        number = self.worth.number
        return number if isinstance(number, float) else number.by_information

    @property
    def figures(self) -> dict[str, float]:
        """The result in numbers: shares of the labels, mean confidence, and (effective) number of graders."""
        probs = self.fit.label_probs
        names = (f"share_{name}" for name in self.fit.class_names)
        shares = dict(zip(names, probs.mean(axis=0).tolist(), strict=True))
        worth = {"effective_graders": self.effective_graders, "low": self.worth.low, "high": self.worth.high}
        confidence = float(probs.max(axis=1).mean())
        return {**shares, "confidence": confidence, "graders": float(len(self.fit.voter_names)), **worth}


def grade_panel(
    grades: Votes | Sequence[Mapping[Hashable, Any]] | Any,
    gold: Gold | None = None,
    *,
    key: jax.Array,
    items: Sequence[Hashable] | None = None,
    method: Method | None = None,
    classes: Classes = None,
    missing: Collection[Hashable] = (),
    resamples: int = 20,
) -> PanelGrades:
    """Labels from a panel of graders, and how many independent graders the panel is worth.

    Args:
        grades: Votes; or one mapping from graders to grades for each item; or a matrix or data frame, one row per item
            and one column per grader. A grade that is None, NaN or absent is missing.
        gold: True labels of some items, by their names. With two or more, the graders are compared by their errors;
            without, by a model of their grades.
        key: Random key.
        items: The item of each row, by default 0, 1, …; a second row of an item has repeated grades.
        method: The method that combines the grades, `Consensus()` by default.
        classes: The labels in order; other grades, such as "tie", are categories that are not labels.
        missing: Grades that count as missing.
        resamples: Number of bootstrap resamples behind the interval of the effective number.
    """
    votes = grades if isinstance(grades, Votes) else _votes_of(grades, items, classes, missing)
    method = method or Consensus()
    fit_key, worth_key = jax.random.split(key)
    fit = method.fit(votes if method.takes_other_votes else votes.without_other_votes(), key=fit_key, gold=gold)
    plain = votes.without_other_votes()  # a tie is neither right nor wrong
    if gold is not None and len(gold) > 1:
        return PanelGrades(fit, effective_judges(plain, gold, key=worth_key, resamples=max(resamples, 200)))
    return PanelGrades(fit, effective_voters(plain, key=worth_key, resamples=resamples))


def _votes_of(grades: Any, items: Sequence[Hashable] | None, classes: Classes, missing: Collection[Hashable]) -> Votes:
    rows = pd.DataFrame(grades)
    if items is not None and len(items) != len(rows):
        raise VotesError(f"{len(items)} items were given for {len(rows)} rows of grades: give one for each row")
    index = rows.index.to_numpy() if items is None else np.array([*items], dtype=object)
    item, grader = np.repeat(index, rows.shape[1]), np.tile(rows.columns.to_numpy(), len(rows))
    long = {"item": item, "voter": grader, "vote": rows.to_numpy(object).ravel()}
    return Votes.from_long(long, classes=classes, missing=missing, duplicates="keep")
