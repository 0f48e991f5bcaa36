"""Trees of several classes with groups found from the votes, against exact Bayes and Dawid–Skene.

    python analyses/tree_groups.py [--out DIR] [--sets 5] [--items 10000] [--classes 3 4] [--sizes 8 4 3]

Opinions are right with probability uniform on [.6, .9], voters on [.5, .9], errors spread at random. Every set has
parameters of its own. Accuracies are in percent.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import xarray as xr
from common import run, write
from matplotlib import pyplot as plt
from sklearn.metrics import adjusted_rand_score

from latentens import simulate
from latentens.methods import DawidSkeneEM, MaximumLikelihood, TreeMLE
from latentens.models import Tree

WAYS = ["exact Bayes", "true groups", "TreeMLE", "DawidSkeneEM"]


def draw_confusion(generator: np.random.Generator, size: int, classes: int, low: float, high: float) -> np.ndarray:
    """Confusion matrices with random errors."""
    confusion = np.empty((size, classes, classes))
    for source, label in np.ndindex(size, classes):
        right = generator.uniform(low, high)
        wrong = (1 - right) * generator.dirichlet(np.full(classes - 1, 3.0))
        confusion[source, label] = np.insert(wrong, label, right)
    return confusion


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 5,
    items: int = 10_000,
    classes: tuple[int, ...] = (3, 4),
    sizes: tuple[int, ...] = (8, 4, 3),
) -> pd.DataFrame:
    del data  # everything is simulated
    groups = tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())
    records = {
        (size, number): one_set(groups, size, items, seed + number) for size in classes for number in range(sets)
    }
    table = pd.DataFrame(records).T.rename_axis(["classes", "set"])
    figure, axes = plt.subplots(layout="constrained")
    (table[WAYS].rsub(table["exact Bayes"], axis=0)).boxplot(ax=axes)
    axes.set_ylabel("points below exact Bayes")
    write(out, "tree_groups", tree=xr.Dataset.from_dataframe(table), table=table, figure=figure)
    print(table.groupby("classes").describe().T.xs("mean", level=1).round(2).to_string())
    return table


def one_set(groups: tuple[int, ...], classes: int, items: int, seed: int) -> dict[str, float]:
    """The accuracy of each way, and how well the groups were found (adjusted Rand index)."""
    model, generator = Tree(groups, classes), np.random.default_rng(seed)
    params = {
        "prevalence": generator.dirichlet(np.full(classes, 10.0)),
        "hidden_confusion": draw_confusion(generator, model.num_groups, classes, 0.6, 0.9),
        "voter_confusion": draw_confusion(generator, len(groups), classes, 0.5, 0.9),
    }
    data_key, fit_key = jax.random.split(jax.random.key(seed))
    drawn = simulate(model, items, key=data_key, params=params)
    oracle = MaximumLikelihood(model, starts=0, warm=(), initial=(params,))
    methods = dict(zip(WAYS[1:], (oracle, TreeMLE(starts=0), DawidSkeneEM()), strict=True))
    fits = {name: method.fit(drawn.votes, key=fit_key) for name, method in methods.items()}
    exact = drawn.bayes_posterior()
    assert exact is not None
    labels = {"exact Bayes": exact.argmax(axis=1), **{name: fit.codes for name, fit in fits.items()}}
    found = fits["TreeMLE"].params.get("groups", np.zeros(len(groups)))
    return {name: 100 * float(np.mean(label == drawn.labels)) for name, label in labels.items()} | {
        "rand_index": float(adjusted_rand_score(groups, found))
    }


if __name__ == "__main__":
    run(main, __doc__)
