"""The RBM stack on real ensembles, panels and crowds and on fresh simulated sets, beside Dawid–Skene and the vote.

    python analyses/rbm_real.py --data ROOT --out DIR [--keys 2] [--kinds ensembles panels crowds paper tree …]
        [--sets 4] [--items 10000]

ROOT has the folders `ensembles` and `panels` (`votes.csv`, one row per item, and `truth.csv` in a folder each),
`crowds` and `rbmpaper`. The simulated kinds are drawn anew: `Tree`, `LG`, `TG` and `condInd` as in the paper, `tree:K`
and `independent:K` with K classes, `copies:K` (three voters repeat another one on four items of five) and `hard:K`
(half of the items are hard, and voters share the wrong answer on many of them). Each fit is a line of DIR/rbm_real.csv
as soon as it is there, and what is there is not fitted again. The paper's sets (`--kinds paper`) are left out by
default: `rbm_accuracy.py` has them.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from common import CROWDS, run

from latentens.datasets import Dataset, from_files, load, simulate, simulate_paper
from latentens.methods import DawidSkeneEM, MajorityVote, RBMStack
from latentens.models import DawidSkene, Tree
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes

PAPER = (*(f"{family}/{number}" for family in ("condInd", "Tree", "LG", "TG") for number in (1, 2)), "S1", "S3")
PAPER_SETS = (*PAPER, "magic/1", "magic/2")
KINDS = ("ensembles", "panels", "crowds", "paper", "Tree", "LG", "TG", "condInd", "tree:3", "tree:6", "tree:10")
KINDS += ("independent:3", "independent:6", "copies:3", "copies:10", "hard:3", "hard:10")
FIRST_SEED = 7000
"""Simulated sets are numbered from here on: no other analysis has seen them."""


def main(
    data: Path | None,
    out: Path,
    seed: int,
    keys: int = 2,
    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "paper"),
    sets: int = 4,
    items: int = 10_000,
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rbm_real.csv"
    table = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["kind", "set", "key"])
    done = set(zip(table["kind"], table["set"], table["key"], strict=True))
    for kind in kinds:
        real = data is not None and kind in ("ensembles", "panels", "crowds", "paper")
        for name, get in list_sets(kind, data, sets, items):
            for key in (key for key in range(seed, seed + (keys if real else 1)) if (kind, name, key) not in done):
                line = pd.DataFrame([{"kind": kind, "set": name, "key": key, **score(get(), key)}])
                table = line if table.empty else pd.concat([table, line], ignore_index=True)
                table.to_csv(path, index=False)
                print(line.to_string(header=False, index=False), flush=True)
    print(summary(table).round(2).to_string())
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means and worst cases over the sets of each kind, differences in points."""
    means = table.groupby(["kind", "set"], sort=False).mean(numeric_only=True)
    spread = table.groupby(["kind", "set"], sort=False)["accuracy"].std().fillna(0.0)
    means["gain"] = means["accuracy"] - means["Dawid–Skene"]
    kinds = means.groupby("kind", sort=False)
    columns = kinds[["accuracy", "balanced", "Dawid–Skene", "vote", "gain"]].mean()
    return columns.assign(
        worst=kinds["gain"].min(),
        worst_set=kinds["gain"].idxmin().str[1],
        unsteady=(spread > 0.3).groupby("kind", sort=False).sum(),
        seconds=kinds["seconds"].median(),
        longest=kinds["seconds"].max(),
    )


def score(dataset: Dataset, key: int) -> dict[str, Any]:
    """Accuracy in percent, processor seconds and sizes of the stack; accuracy of the others."""
    known = dataset.labels >= 0
    start = time.process_time()
    fit = RBMStack().fit(dataset.votes, key=jax.random.key(key))
    seconds = time.process_time() - start
    others = {"Dawid–Skene": DawidSkeneEM(), "vote": MajorityVote()}
    labels = {name: other.fit(dataset.votes, key=jax.random.key(key)).codes for name, other in others.items()}
    truth = dataset.labels[known]
    return {
        "accuracy": 100 * float(np.mean(fit.codes[known] == truth)),
        "balanced": 100 * balanced_accuracy(truth, fit.codes[known]),
        **{name: 100 * float(np.mean(found[known] == truth)) for name, found in labels.items()},
        "sizes": "-".join(map(str, fit.diagnostics["architecture"])),
        "seconds": seconds,
    }


def list_sets(kind: str, data: Path | None, sets: int, items: int) -> Iterator[tuple[str, Callable[[], Dataset]]]:
    """The names of the sets of a kind, and how to get each."""
    if kind in ("ensembles", "panels"):
        for folder in sorted((data / kind).iterdir() if data else ()):
            yield folder.name, lambda folder=folder: read(folder)
    elif kind in ("crowds", "paper"):
        for name in (CROWDS if kind == "crowds" else PAPER_SETS) if data else ():
            yield name, lambda name=name: load(name, root=data)
    else:
        for number in range(FIRST_SEED, FIRST_SEED + sets):
            yield f"{kind}/{number}", lambda number=number: draw(kind, number, items)


def read(folder: Path) -> Dataset:
    """Votes and truth of a folder; a class may be nobody's vote."""
    votes, truth = (pd.read_csv(folder / name, dtype=str, index_col="item") for name in ("votes.csv", "truth.csv"))
    classes = sorted({*map(str, votes.stack().dropna()), *truth["truth"].dropna()})
    return from_files(folder / "votes.csv", folder / "truth.csv", classes=classes)


def draw(kind: str, number: int, items: int) -> Dataset:
    """A simulated set."""
    family, _, classes = kind.partition(":")
    if not classes:
        return simulate_paper(family, number, items)
    params_key, key = jax.random.split(jax.random.key(number))
    model = Tree((0, 1, 2) * 4, int(classes)) if family == "tree" else DawidSkene(9, int(classes))
    drawn = simulate(model, items // 4, key=key, params=model.example_params(params_key))
    if family in ("tree", "independent"):
        return drawn
    generator = np.random.default_rng(number)
    matrix = np.array(drawn.votes.matrix)
    if family == "copies":
        repeated = generator.random((len(matrix), 3)) < 0.8
        matrix[:, 1:4] = np.where(repeated, matrix[:, :1], matrix[:, 1:4])
    else:  # on hard items each voter says, half of the time, what misleads all
        misleading = (drawn.labels + generator.integers(1, int(classes), len(matrix))) % int(classes)
        misled = (generator.random(len(matrix)) < 0.5)[:, None] & (generator.random(matrix.shape) < 0.5)
        matrix = np.where(misled, misleading[:, None], matrix)
    return Dataset(kind, Votes.from_matrix(matrix.astype(np.int8), num_classes=int(classes)), drawn.labels)


if __name__ == "__main__":
    run(main, __doc__)
