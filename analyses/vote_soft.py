"""Soft votes, read in several ways: as statements of confidence, as fractions of a vote, and as hard votes.

    python analyses/vote_soft.py [--out DIR] [--sets 12] [--slow-sets 3] [--keys 2] [--designs …] [--readings …]

Simulated judges state probabilities. Every fit is a line of DIR/vote_soft.jsonl, so that an interrupted run resumes.
Methods without random numbers have one key.
"""

import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import Records, run
from scipy.special import softmax
from vote_kinds import ITEMS, JUDGES, LEAST

from latentens import Votes
from latentens.datasets import Dataset
from latentens.methods import Consensus, DawidSkeneEM, MajorityVote, StatedConfidence, Tempered
from latentens.scores import evaluate

DESIGNS = {
    "calibrated, 2 classes": (2, (1.0, 1.0)),
    "calibrated, 4 classes": (4, (1.0, 1.0)),
    "overconfident, 2 classes": (2, (3.0, 3.0)),
    "overconfident, 4 classes": (4, (3.0, 3.0)),
    "some overconfident, 2 classes": (2, (1.0, 5.0)),
    "some overconfident, 4 classes": (4, (1.0, 5.0)),
    "underconfident, 2 classes": (2, (0.4, 0.4)),
    "overconfident, rounded to tenths, 2 classes": (2, (3.0, 3.0)),
    "overconfident, shared evidence, 2 classes": (2, (3.0, 3.0)),
    "confidence says nothing, 2 classes": (2, (1.0, 1.0)),
}
"""The number of classes and the range of the judges' temperatures."""

READINGS = {
    "StatedConfidence": (StatedConfidence(), "soft"),
    "Tempered(StatedConfidence)": (Tempered(StatedConfidence()), "soft"),
    "DawidSkeneEM, fractions": (DawidSkeneEM(), "soft"),
    "DawidSkeneEM, hard votes": (DawidSkeneEM(), "hard"),
    "Consensus": (Consensus(), "soft"),
    "Consensus, hard votes": (Consensus(), "hard"),
    "mean probability": (MajorityVote(), "soft"),
    "majority of hard votes": (MajorityVote(), "hard"),
}
SLOW = "Tempered(StatedConfidence)", "Consensus", "Consensus, hard votes"
"""Readings of few sets."""
RANDOM = "DawidSkeneEM, fractions", "DawidSkeneEM, hard votes"


def draw_set(design: str, number: int, seed: int) -> Dataset:
    """Judges with evidence of different strength, and temperatures between those of the design."""
    classes, temperatures = DESIGNS[design]
    generator = np.random.default_rng([seed, 31, number, list(DESIGNS).index(design)])
    labels = generator.choice(classes, ITEMS, p=generator.dirichlet(np.full(classes, 5.0)))
    information, temperature = generator.uniform(0.2, 1.5, JUDGES), generator.uniform(*temperatures, JUDGES)
    is_label = np.eye(classes)[labels][:, None]
    noise = generator.normal(size=(ITEMS, JUDGES, classes))
    if "shared" in design:  # half of the variance is common to all judges
        noise = np.sqrt(0.5) * (noise + generator.normal(size=(ITEMS, 1, classes)))
    probs = softmax(temperature[:, None] * (information[:, None] * is_label + np.sqrt(information)[:, None] * noise), 2)
    if "rounded" in design:
        first = np.round(probs[..., 0], 1)
        probs = np.stack([first, 1 - first], axis=2)
    if "nothing" in design:  # the vote is right as often on all items, and its confidence is a random number
        accuracy = generator.uniform(0.55, 0.85, JUDGES)
        chosen = np.where(generator.random((ITEMS, JUDGES)) < accuracy, labels[:, None], 1 - labels[:, None])
        confidence = generator.uniform(0.5, 1.0, chosen.shape)
        probs = np.where(chosen[..., None] == np.arange(2), confidence[..., None], 1 - confidence[..., None])
    return Dataset(f"{number}", Votes.from_soft(probs), labels.astype(np.int8))


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 12,
    slow_sets: int = 3,
    keys: int = 2,
    designs: tuple[str, ...] = tuple(DESIGNS),
    readings: tuple[str, ...] = tuple(READINGS),
) -> pd.DataFrame:
    del data  # everything is simulated
    out.mkdir(parents=True, exist_ok=True)
    done = Records(out / "vote_soft.jsonl", ("design", "set", "reading", "key"))
    for place in range(sets):
        for design in designs:
            dataset = draw_set(design, place, seed)
            for name in readings:
                if name not in SLOW or place < slow_sets:
                    for key in range(keys if name in RANDOM else 1):
                        measure(done, design, dataset, name, key)
        print(f"{place + 1} of {sets} sets of each design", flush=True)
    table = summarise(done.frame())
    table.to_csv(out / "vote_soft.csv", index=False)
    print(table.round(3).to_string())
    return table


def measure(done: Records, design: str, dataset: Dataset, name: str, key: int) -> None:
    """Score one reading of a set."""
    if done.has(design, dataset.name, name, key):
        return
    (method, kind), start = READINGS[name], time.process_time()
    votes = dataset.votes if kind == "soft" else dataset.votes.to_hard()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probs = method.fit(votes, key=jax.random.key(key)).label_probs
    record = {"design": design, "set": dataset.name, "reading": name, "key": key}
    scores = evaluate(dataset.labels, np.maximum(probs, LEAST))
    record |= {score: float(scores[score]) for score in ("accuracy", "log_score")}
    done.add(record | {"seconds": time.process_time() - start})


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Means over sets and keys, and the worst difference to hard votes by Dawid–Skene over sets."""
    rows = []
    for design, of_design in table.groupby("design", sort=False):
        mean = of_design.groupby(["set", "reading"])[["accuracy", "log_score"]].mean().unstack()
        right, loss = 100 * mean["accuracy"], mean["log_score"]
        hard = "DawidSkeneEM, hard votes"
        for name in READINGS:
            if name not in right:
                continue
            rows.append(
                {
                    "judges": design,
                    "reading": name,
                    "sets": int(right[name].notna().sum()),
                    "accuracy": right[name].mean(),
                    "worst accuracy": right[name].min(),
                    "worst gain over hard": (right[name] - right[hard]).min(),
                    "log score": loss[name].mean(),
                    "worst log score": loss[name].max(),
                }
            )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main, __doc__)
