"""Votes that are not labels ("tie", "Unsure"), as votes and as missing.

    python analyses/vote_kinds.py [--data ROOT] [--out DIR] [--sets 20] [--slow-sets 5] [--keys 2]
        [--designs …] [--methods …]

ROOT has a folder `panels` with `rewardbench2` (about a fifth of the votes are "tie") and `dices350` ("Unsure"); without
it only simulated judges are measured. Every fit is a line of DIR/vote_kinds.jsonl, so that an interrupted run resumes.
"""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import Records, run

from latentens import Votes
from latentens.datasets import Dataset
from latentens.datasets.from_files import from_files
from latentens.methods import Consensus, DawidSkeneEM, Ebcc, MajorityVote, MaximumLikelihood, Tempered
from latentens.methods.base import Method
from latentens.models import ClassConditional, DawidSkene
from latentens.scores import evaluate

PANELS = {"rewardbench2": ("a", "b", "c", "d"), "dices350": ("No", "Yes")}
"""The real panels and their labels; other votes are not labels."""

ITEMS, JUDGES = 500, 7
LEAST = 1e-6
"""Smaller probabilities count as this one, so that a single item does not decide a mean log score."""

AS_VOTES, AS_MISSING = "votes", "missing"

METHODS: dict[str, Method | type[DawidSkene] | type[ClassConditional]] = {
    "MajorityVote": MajorityVote(),
    "DawidSkeneEM": DawidSkeneEM(),
    "Ebcc": Ebcc(),
    "Tempered(DawidSkeneEM)": Tempered(DawidSkeneEM()),
    "MaximumLikelihood(DawidSkene)": DawidSkene,
    "MaximumLikelihood(ClassConditional)": ClassConditional,
    "Consensus": Consensus(),
}
QUICK = "MajorityVote", "DawidSkeneEM", "Ebcc"
"""Methods that run on all sets and with all keys."""


def method_for(name: str, votes: Votes) -> Method:
    """A method; that of a model has as many categories as the votes."""
    found = METHODS[name]
    return found if isinstance(found, Method) else MaximumLikelihood(found(**_form(votes)))


def _form(votes: Votes) -> dict[str, int | None]:
    others = votes.num_categories if len(votes.other_names) else None
    return {"num_voters": votes.num_voters, "num_classes": votes.num_classes, "num_categories": others}


def _confusion(generator: np.random.Generator, classes: int) -> np.ndarray:
    """Judges with accuracies between .5 and .85 for two classes, a little lower for more: (judge, label, vote)."""
    right = generator.uniform(0.5, 0.85, (JUDGES, classes)) * (1 if classes == 2 else 0.8)
    found = np.repeat(((1 - right) / (classes - 1))[:, :, None], classes, axis=2)
    found[:, np.arange(classes), np.arange(classes)] = right
    return found


def tie_chances(
    kind: str, generator: np.random.Generator, labels: np.ndarray, votes: np.ndarray, classes: int
) -> np.ndarray:
    """The chance that each judge says tie on each item, whose vote would be another one."""
    if kind == "on one class":  # .5 on items of the last class and .1 on others
        return np.where(labels == classes - 1, 0.5, 0.1)[:, None]
    if kind == "on hard items":  # each item has a chance of its own, which does not depend on the label
        return generator.beta(1.0, 3.0, len(labels))[:, None]
    if kind == "if wrong":  # who would be wrong says tie with chance .5, who would be right with chance .1
        return np.where(votes == labels[:, None], 0.1, 0.5)
    if kind == "of weak judges":  # less accurate judges say tie more often, on all items alike
        accuracy = np.mean(votes == labels[:, None], axis=0)
        return np.interp(accuracy, np.sort(accuracy)[[0, -1]], [0.5, 0.05])[None]
    return np.full((1, 1), 0.25)  # uninformative


DESIGNS = {
    f"{kind}, {classes} classes": (kind, classes)
    for kind, classes in (
        *(("on one class", 2), ("on one class", 4), ("on hard items", 2), ("if wrong", 2), ("if wrong", 4)),
        *(("of weak judges", 2), ("uninformative", 2), ("uninformative", 4)),
    )
}


def draw_set(design: str, number: int, seed: int) -> Dataset:
    """Simulated judges, who have parameters of their own in each set."""
    kind, classes = DESIGNS[design]
    generator = np.random.default_rng([seed, number, list(DESIGNS).index(design)])
    labels = generator.choice(classes, ITEMS, p=generator.dirichlet(np.full(classes, 5.0)))
    chances = _confusion(generator, classes)[:, labels].swapaxes(0, 1).cumsum(axis=2)
    votes = (generator.random((ITEMS, JUDGES, 1)) > chances[..., :-1]).sum(axis=2)
    ties = generator.random(votes.shape) < tie_chances(kind, generator, labels, votes, classes)
    words = np.where(ties, "tie", votes.astype(str))
    names = tuple(map(str, range(classes)))
    return Dataset(f"{number}", Votes.from_matrix(words, classes=names), labels.astype(np.int8))


def real_panels(data: Path | None) -> Iterator[tuple[str, Dataset]]:
    """The panels that are there."""
    for name, classes in PANELS.items():
        folder = Path() if data is None else data / "panels" / name
        if (folder / "votes.csv").is_file():
            yield name, from_files(folder / "votes.csv", folder / "truth.csv", classes=classes)


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 20,
    slow_sets: int = 5,
    keys: int = 2,
    designs: tuple[str, ...] = tuple(DESIGNS),
    methods: tuple[str, ...] = tuple(METHODS),
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    done = Records(out / "vote_kinds.jsonl", ("design", "set", "method", "key", "ties"))
    found = [*real_panels(data)]
    found += [(design, draw_set(design, place, seed)) for place in range(sets) for design in designs]
    for place, (design, dataset) in enumerate(found, 1):
        for name in methods:
            if name in QUICK or design in PANELS or int(dataset.name) < slow_sets:
                for key in range(keys if name in QUICK and name != "MajorityVote" else 1):
                    measure(done, design, dataset, name, key)
        print(f"{place} of {len(found)} sets: {design} {dataset.name}", flush=True)
    table = summarise(done.frame())
    table.to_csv(out / "vote_kinds.csv", index=False)
    print(table.round(3).to_string())
    return table


def measure(done: Records, design: str, dataset: Dataset, name: str, key: int) -> None:
    """Score a method on a set with ties as votes and with ties as missing."""
    for ties, votes in ((AS_VOTES, dataset.votes), (AS_MISSING, dataset.votes.without_other_votes())):
        if done.has(design, dataset.name, name, key, ties) or (name == "MajorityVote" and ties == AS_VOTES):
            continue
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probs = method_for(name, votes).fit(votes, key=jax.random.key(key)).label_probs
        seconds = time.process_time() - start
        scores = evaluate(dataset.labels, np.maximum(probs, LEAST))
        record = {"design": design, "set": dataset.name, "method": name, "key": key, "ties": ties, "seconds": seconds}
        done.add(record | {score: float(scores[score]) for score in ("accuracy", "log_score")})


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Per design and method: means over sets and keys, and what ties as votes gain on average and on the worst set."""
    rows = []
    for (design, method), part in table.groupby(["design", "method"], sort=False):
        mean = part.groupby(["set", "ties"])[["accuracy", "log_score"]].mean().unstack()
        row: dict[str, object] = {"ties": design, "method": method, "sets": len(mean), "keys": part["key"].nunique()}
        for score, sign, digits in (("accuracy", 100, "gain"), ("log_score", 1, "change")):
            own = mean[score] * sign
            has_both = AS_VOTES in own
            label = score.replace("_", " ")
            row |= {label: own[AS_VOTES].mean() if has_both else np.nan, f"{label}, missing": own[AS_MISSING].mean()}
            gain = own[AS_VOTES] - own[AS_MISSING] if has_both else pd.Series([np.nan])
            row |= {digits: gain.mean(), f"worst {digits}": gain.min() if sign == 100 else gain.max()}
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main, __doc__)
