"""L-SML where there are groups and where there are none: does it find groups in noise, and does it keep real ones?

    python analyses/latent_spectral_guard.py [--out DIR] [--sets 10] [--keys 2] [--families condInd Tree]

On sets drawn anew from the paper's parameters, each with several keys: the mean and, above all, the worst balanced
accuracy, exact Bayes beside it, and in how many percent of the fits groups were kept.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run, write

from latentens.datasets import PAPER_ITEMS, Dataset, simulate_paper
from latentens.methods import LatentSpectral
from latentens.runtime.progress import track_late
from latentens.scores.scores import balanced_accuracy

FIRST_SET = 101
"""Sets are numbered from here, so that they are none of those that other analyses use."""


def scored(dataset: Dataset, key: int, imbalance: str) -> dict[str, float]:
    fit = LatentSpectral(imbalance=imbalance).fit(dataset.votes, key=jax.random.key(key))
    exact = dataset.bayes_posterior().argmax(axis=1)
    return {
        "balanced_accuracy": 100 * balanced_accuracy(dataset.labels, fit.codes),
        "exact": 100 * balanced_accuracy(dataset.labels, exact),
        "grouped": 100.0 * fit.diagnostics.get("tree_supported", False),
    }


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 10,
    keys: int = 2,
    items: int = PAPER_ITEMS,
    families: tuple[str, ...] = ("condInd", "Tree"),
    imbalances: tuple[str, ...] = ("likelihood",),
) -> pd.DataFrame:
    del data  # nothing is read
    cases = [(f, n, b, k) for f in families for n in range(sets) for b in imbalances for k in range(keys)]
    rows = []
    for family, number, imbalance, key in track_late(cases, lambda case: f"{case[0]}, set {case[1] + 1}"):
        dataset = simulate_paper(family, FIRST_SET + number, items)
        found = scored(dataset, seed + key, imbalance)
        rows.append({"family": family, "imbalance": imbalance, "set": number, "key": key} | found)
    groups = pd.DataFrame(rows).groupby(["family", "imbalance"], sort=False)
    table = (
        groups[["exact", "balanced_accuracy"]]
        .mean()
        .assign(
            worst=groups["balanced_accuracy"].min(),
            worst_gap=groups[["exact", "balanced_accuracy"]].apply(
                lambda part: np.max(part.exact - part.balanced_accuracy)
            ),
            grouped=groups["grouped"].mean(),
            fits=groups.size(),
            items=items,
        )
    )
    write(out, "latent_spectral_guard", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
