"""What a fit knows of items and voters as tables."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from latentens.inference.skill import VoterSkill
from latentens.votes.labels import Names

MOST_CLASSES = 8
"""Tables show whole confusion matrices up to this many classes."""


class VoteSummary(NamedTuple):
    """What a fit keeps of the votes behind it.

    Attributes:
        by_item: Number of votes on each item.
        skill: What the fit knows of the voters.
    """

    by_item: Int[np.ndarray, " item"]
    skill: VoterSkill


def voter_table(skill: VoterSkill, voter_names: Names, class_names: Names) -> pd.DataFrame:
    """One row per voter: votes, accuracies with intervals, a flag, what intervals rest on, the confusion matrix."""
    columns: dict[str, Any] = {"voter": voter_names, "votes": skill.votes}
    for name in ("accuracy", "balanced_accuracy"):
        for part in (name, f"{name}_low", f"{name}_high"):
            columns[part] = getattr(skill, part)
    columns["flag"], columns["intervals"] = skill.flags, skill.intervals
    if len(class_names) <= MOST_CLASSES:
        for label, truth in enumerate(class_names):
            for vote, said in enumerate(class_names):
                columns[f"says_{said}_if_{truth}"] = skill.confusion[:, label, vote]
    return pd.DataFrame(columns)
