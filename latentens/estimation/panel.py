"""A panel of graders in one call: the labels it gives, and how many independent graders it is worth."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from latentens.checks.effective_voters import EffectiveVoters, effective_voters
from latentens.errors import VotesError
from latentens.estimation.judges import EffectiveJudges, effective_judges
from latentens.methods.base import Fit, Method
from latentens.methods.consensus import Consensus
from latentens.votes import Votes
from latentens.votes.labels import Classes
from latentens.votes.matching import Gold


class PanelGrades(NamedTuple):
    """What a panel says about its items.

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
        """The result in numbers: shares of the labels, mean confidence, graders, and what these are worth."""
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
    votes = grades if isinstance(grades, Votes) else _votes(grades, items, classes, missing)
    method = method or Consensus()
    fit_key, worth_key = jax.random.split(key)
    fit = method.fit(votes if method.takes_other_votes else votes.without_other_votes(), key=fit_key, gold=gold)
    plain = votes.without_other_votes()  # a tie is neither right nor wrong
    if gold is not None and len(gold) > 1:
        return PanelGrades(fit, effective_judges(plain, gold, key=worth_key, resamples=max(resamples, 200)))
    return PanelGrades(fit, effective_voters(plain, key=worth_key, resamples=resamples))


def _votes(grades: Any, items: Sequence[Hashable] | None, classes: Classes, missing: Collection[Hashable]) -> Votes:
    rows = pd.DataFrame(grades)
    if items is not None and len(items) != len(rows):
        raise VotesError(f"{len(items)} items were given for {len(rows)} rows of grades: give one for each row")
    index = rows.index.to_numpy() if items is None else np.array([*items], dtype=object)
    item, grader = np.repeat(index, rows.shape[1]), np.tile(rows.columns.to_numpy(), len(rows))
    long = {"item": item, "voter": grader, "vote": rows.to_numpy(object).ravel()}
    return Votes.from_long(long, classes=classes, missing=missing, duplicates="keep")
