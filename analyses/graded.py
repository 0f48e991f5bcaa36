"""Judges who score from 0 to 9: the graded model beside thresholds at the middle and categories without an order.

    python analyses/graded.py [--out DIR] [--sets 20] [--items 300] [--keys 0 1 2] [--designs NAME …]

The label is No or Yes. In four of the five designs the scores do not come from the graded model. `graded.csv` has the
accuracy and the log score of each method on each set, summarised by design. Every fit is a line of DIR/graded.jsonl, so
that an interrupted run resumes.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import Records, run, write
from jaxtyping import Int

from latentens import simulate
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood
from latentens.methods.base import Method
from latentens.models import GradedResponse
from latentens.votes import Votes

JUDGES, GRADES = 6, 10
Scores = Int[np.ndarray, "item judge"]
Labels = Int[np.ndarray, " item"]


def rounded(
    generator: np.random.Generator,
    labels: Labels,
    *,
    skill: np.ndarray,
    middle: np.ndarray,
    width: np.ndarray,
    shared: float = 0.0,
) -> Scores:
    """Scores of judges who see the label with normal noise, on a scale of their own, rounded to 0 … 9."""
    quality = np.where(labels == 1, 1.0, -1.0) + shared * generator.normal(size=len(labels))
    seen = skill * quality[:, None] + generator.normal(size=(len(labels), JUDGES))
    return np.clip(np.round(middle + width * seen), 0, GRADES - 1).astype(int)


def from_model(generator: np.random.Generator, num_items: int) -> tuple[Scores, Labels]:
    """The graded model itself."""
    model = GradedResponse(JUDGES, 2, GRADES)
    first, second = (jax.random.key(int(generator.integers(2**31))) for _ in range(2))
    made = simulate(model, num_items, key=first, params=model.example_params(second))
    return np.asarray(made.votes.matrix), np.asarray(made.labels)


def styles(generator: np.random.Generator, num_items: int) -> tuple[Scores, Labels]:
    """Response styles: some judges use the ends of the scale, some the middle; some are lenient, some strict."""
    labels = generator.integers(2, size=num_items)
    skill, middle = generator.uniform(0.3, 1.2, JUDGES), generator.uniform(2, 7, JUDGES)
    return rounded(generator, labels, skill=skill, middle=middle, width=generator.uniform(0.7, 4, JUDGES)), labels


def lenient(generator: np.random.Generator, num_items: int) -> tuple[Scores, Labels]:
    """All judges are lenient, and most items are labelled No."""
    labels = (generator.random(num_items) < 0.3).astype(int)
    skill, middle = generator.uniform(0.3, 1.2, JUDGES), generator.uniform(6, 8, JUDGES)
    return rounded(generator, labels, skill=skill, middle=middle, width=np.full(JUDGES, 1.5)), labels


def at_random(generator: np.random.Generator, num_items: int) -> tuple[Scores, Labels]:
    """Two of the judges score at random, evenly."""
    labels = generator.integers(2, size=num_items)
    skill = generator.uniform(0.5, 1.2, JUDGES)
    scores = rounded(generator, labels, skill=skill, middle=np.full(JUDGES, 4.5), width=np.full(JUDGES, 2.0))
    scores[:, :2] = generator.integers(GRADES, size=(num_items, 2))
    return scores, labels


def shared_quality(generator: np.random.Generator, num_items: int) -> tuple[Scores, Labels]:
    """Items of one label differ in quality, which all judges see."""
    labels = generator.integers(2, size=num_items)
    skill, middle = generator.uniform(0.3, 1.2, JUDGES), generator.uniform(3, 6, JUDGES)
    return rounded(generator, labels, skill=skill, middle=middle, width=np.full(JUDGES, 2.0), shared=0.7), labels


DESIGNS: dict[str, Callable[[np.random.Generator, int], tuple[Scores, Labels]]] = {
    "graded model": from_model,
    "response styles": styles,
    "lenient judges": lenient,
    "two judges at random": at_random,
    "shared quality": shared_quality,
}

METHODS: dict[str, tuple[Method, bool]] = {
    "GradedResponse": (MaximumLikelihood(GradedResponse(JUDGES, 2, GRADES), starts=2), False),
    "GradedResponse, posterior mode": (
        MaximumLikelihood(GradedResponse(JUDGES, 2, GRADES), starts=2, use_prior=True),
        False,
    ),
    "DawidSkeneEM, 10 categories": (DawidSkeneEM(), False),
    "DawidSkeneEM, thresholds at the middle": (DawidSkeneEM(), True),
    "MajorityVote, thresholds at the middle": (MajorityVote(), True),
}
"""Methods, and whether scores become votes for classes before."""


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 20,
    items: int = 300,
    keys: tuple[int, ...] = (0, 1, 2),
    designs: tuple[str, ...] = tuple(DESIGNS),
) -> pd.DataFrame:
    del data  # everything is simulated
    out.mkdir(parents=True, exist_ok=True)
    done = Records(out / "graded.jsonl", ("design", "method", "key", "set", "items"))
    for design in designs:
        for key in keys:
            for place in range(sets):
                generator = np.random.default_rng([seed, key, list(DESIGNS).index(design), place])
                scores, labels = DESIGNS[design](generator, items)
                votes = Votes.from_matrix(scores, classes=("No", "Yes"), ordered=tuple(range(GRADES)))
                for name, (method, by_threshold) in METHODS.items():
                    if done.has(design, name, key, place, items):
                        continue
                    fit = method.fit(votes.without_other_votes() if by_threshold else votes, key=jax.random.key(key))
                    probs = fit.label_probs[np.arange(items), labels].clip(1e-15)
                    record = {"design": design, "method": name, "key": key, "set": place, "items": items}
                    scores_of_fit = {"accuracy": 100 * float(np.mean(fit.codes == labels))}
                    done.add(record | scores_of_fit | {"log_score": -float(np.mean(np.log(probs)))})
    table = done.frame()
    by = table.groupby(["design", "method"], sort=False)
    summary = by.agg(
        accuracy=("accuracy", "mean"),
        worst_accuracy=("accuracy", "min"),
        log_score=("log_score", "mean"),
        worst_log_score=("log_score", "max"),
        sets=("accuracy", "size"),
    )
    write(out, "graded", table=summary)
    return summary


if __name__ == "__main__":
    run(main, __doc__)
