"""A panel of graders in Inspect: a scorer that keeps every grade, and a metric with the panel's effective size.

    Task(dataset=…, solver=…, scorer=panel({"strict": strict(), "kind": kind(), "brief": brief()}))

The log then has, beside the grades of each sample, the share of every label by `latentens`, the number of graders, and
the number of independent graders that would carry as much information. Epochs are repeated grades. A reducer sees one
sample and cannot learn which graders to trust, so it is a metric; labels of single samples are read from the log by
`Votes.from_tool`. Other runners call `latentens.grade_panel` on lists of grades.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from latentens.errors import LatentensError, require

require("latentens.inspect", "inspect_ai")

import anyio
import jax
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
from inspect_ai.solver import TaskState

from latentens.estimation.judges import grade_panel


@metric(scores="unreduced")
def panel_worth(
    gold: str | None = None, classes: Sequence[str] | None = None, seed: int = 0, resamples: int = 20
) -> Metric:
    """Shares of the labels by a panel, and the effective number of its graders.

    Args:
        gold: The key of the samples' metadata with the true label of those that have one, for example by a person.
        classes: The labels, for example `["C", "I"]`; other grades are categories that are not labels.
        seed: Seed of the random key.
        resamples: Number of bootstrap resamples behind the interval of the effective number.
    """

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        rows = [_by_grader(score.score.value) for score in scores]
        items = [score.sample_id if score.sample_id is not None else k for k, score in enumerate(scores)]
        about = [(score.sample_metadata or {}).get(gold) for score in scores]
        known = {item: label for item, label in zip(items, about, strict=True) if label is not None}
        options: dict[str, Any] = {"items": items, "classes": classes, "resamples": resamples}
        try:
            return grade_panel(rows, known or None, key=jax.random.key(seed), **options).figures
        except LatentensError as error:  # Inspect also asks while it has few samples
            logging.getLogger(__name__).warning("the panel of %d samples is not judged: %s", len(scores), error)
            return {"effective_graders": math.nan}

    return compute


def _by_grader(value: Any) -> Mapping[Any, Any]:
    """The grades of a sample by the name of the grader, or by its position in a list."""
    return value if isinstance(value, Mapping) else dict(enumerate(value))


@scorer(metrics=[panel_worth()])
def panel(graders: dict[str, Scorer]) -> Scorer:
    """All grades of a panel by the names of the graders; a grader that does not answer has none.

    Args:
        graders: The scorers by name; each gives one grade.
    """

    async def score(state: TaskState, target: Target) -> Score:
        grades: dict[str, Any] = dict.fromkeys(graders)

        async def ask(name: str) -> None:
            given = await graders[name](state, target)
            if given is not None and given.value == given.value:  # NaN: not scored
                grades[name] = given.value

        async with anyio.create_task_group() as asked:
            for name in graders:
                asked.start_soon(ask, name)
        return Score(value=grades)

    return score
