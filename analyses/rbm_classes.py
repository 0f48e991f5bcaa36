"""Balanced accuracy of the RBM stack on three and four classes, beside Dawid–Skene, the vote and exact Bayes.

    python analyses/rbm_classes.py --out DIR [--seed 0] [--sets 3] [--items 10000] [--classes 3 4]

Sets are simulated: trees 15-3-1 whose hidden units have as many states as there are classes, and voters who are
independent given the label.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run

from latentens.datasets import Dataset, simulate
from latentens.methods import DawidSkeneEM, MajorityVote, RBMStack
from latentens.models import DawidSkene, Tree
from latentens.programs.model import GenerativeModel
from latentens.scores.scores import balanced_accuracy

METHODS = {"RBM stack": RBMStack(), "Dawid–Skene": DawidSkeneEM(), "vote": MajorityVote()}


def main(
    data: Path | None, out: Path, seed: int, sets: int = 3, items: int = 10_000, classes: tuple[int, ...] = (3, 4)
) -> pd.DataFrame:
    del data  # all sets are simulated
    records = []
    for num_classes in classes:
        models = {"independent": DawidSkene(15, num_classes), "tree": Tree((0, 1, 2) * 5, num_classes)}
        for (family, model), number in ((pair, n) for pair in models.items() for n in range(sets)):
            dataset = draw(model, items, seed + number)
            records.append({"classes": num_classes, "family": family, "set": number, **score(dataset, seed)})
            print(records[-1], flush=True)
    table = pd.DataFrame(records)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "rbm_classes.csv", index=False)
    print(table.groupby(["classes", "family"]).mean(numeric_only=True).drop(columns="set").round(2).to_string())
    return table


def draw(model: GenerativeModel, items: int, seed: int) -> Dataset:
    params_key, key = jax.random.split(jax.random.key(seed))
    return simulate(model, items, key=key, params=model.example_params(params_key))


def score(dataset: Dataset, seed: int) -> dict[str, float | str]:
    """Balanced accuracy of each method in percent, and the sizes and the time of the stack."""
    fits = {name: method.fit(dataset.votes, key=jax.random.key(seed)) for name, method in METHODS.items()}
    labels = {name: fit.codes for name, fit in fits.items()} | {"Bayes": np.argmax(dataset.bayes_posterior(), axis=1)}
    accuracy = {name: 100 * balanced_accuracy(dataset.labels, found) for name, found in labels.items()}
    stack = fits["RBM stack"].diagnostics
    return {**accuracy, "sizes": "-".join(map(str, stack["architecture"])), "seconds": stack["seconds"]}


if __name__ == "__main__":
    run(main, __doc__)
