"""All that a recommendation rests on, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from latentens.checks.signal import SignalCheck
from latentens.datasets.dataset import Dataset
from latentens.recommendation.expected_scores import Estimated, ScoreName, TwinScores
from latentens.recommendation.gold_verdict import GoldVerdict
from latentens.recommendation.minimax import Choice, Column
from latentens.recommendation.verdicts import Verdict
from latentens.recommendation.worlds import FittedWorld
from latentens.scores.items import Posterior


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was found about some votes.

    Attributes:
        dataset: The votes, perhaps with gold labels.
        num_items: How many items there were before a sample was taken.
        signal: Whether there is anything to find.
        worlds: The fitted worlds.
        verdicts: What is to be thought of each.
        absent: Why other worlds have no fit.
        scores: The twins of each world that is not ruled out.
        posteriors: What each method says about the votes themselves.
        gold: What gold labels say about the methods; None without gold labels.
        columns: Losses by score and world.
        choice: The method that was chosen; None where there is nothing to find, or no method to recommend.
        failed: Methods that failed on the votes or on a twin, and why.
        open_labels: Methods whose fit to the votes leaves the label open, and why.
    """

    dataset: Dataset
    num_items: int
    signal: SignalCheck
    worlds: Sequence[FittedWorld] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    scores: Sequence[TwinScores] = ()
    posteriors: Mapping[str, Posterior] = field(default_factory=dict)
    gold: GoldVerdict | None = None
    columns: Mapping[ScoreName, Sequence[Column]] = field(default_factory=dict)
    choice: Choice | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    open_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> list[FittedWorld]:
        """The worlds that are not ruled out."""
        return [world for world in self.worlds if not self.verdicts[world.name].ruled_out]

    def expected(self, score: ScoreName, method: str | None) -> Estimated:
        """A score over all worlds that are not ruled out: the weighted mean, and from the lowest end to the highest."""
        found = [(self.verdicts[part.world].weight, part.expected(score, method)) for part in self.scores]
        value = sum(weight * estimate.value for weight, estimate in found)
        return Estimated(value, min(e.low for _, e in found), max(e.high for _, e in found))

    @property
    def disagreement(self) -> tuple[float, FittedWorld, FittedWorld] | None:
        """The two worlds whose labels of the votes differ most, and the share of items on which they do."""
        labels = [(world, world.posterior.argmax(axis=1)) for world in self.kept]
        pairs = [
            (float(np.mean(one != two)), first, second)
            for i, (first, one) in enumerate(labels)
            for second, two in labels[i + 1 :]
        ]
        return max(pairs, key=lambda pair: pair[0]) if pairs else None
