"""Cumulative share of the singular values of the first RBM's weights: how many hidden units each set calls for.

    python analyses/figure_singular_values.py [--data ROOT] [--out DIR]

The stack takes the smallest number of units whose share passes the threshold of its rule.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pandas as pd
from common import family_of, find, paper_sets, run, write
from matplotlib.ticker import MaxNLocator
from paper import ARCHITECTURES

from latentens.datasets import PAPER_ITEMS, PAPER_MODELS
from latentens.rbm import SingularValueRule, rows_from_votes
from latentens.runtime.progress import track_late


def main(data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS) -> pd.DataFrame:
    datasets = [dataset for family in PAPER_MODELS for dataset in paper_sets(family, data, 1, items)]
    datasets += find(["magic/1"], data)
    rule, curves = SingularValueRule(), {}
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for dataset in track_late(datasets, "Training"):
        family = family_of(dataset.name)
        chosen = rule.choose(rows_from_votes(dataset.votes), key=jax.random.key(seed))
        curves[family] = pd.Series(chosen.cumulative, range(1, len(chosen.cumulative) + 1))
        paper = ARCHITECTURES[family][1]
        label = f"{dataset.name}: rank {chosen.effective_rank:.2f}, {chosen.num_hidden} (paper {paper})"
        axes.plot(curves[family], "o-", markersize=4, label=label)
    axes.set(xlabel="number of singular values", ylabel="cumulative share of their sum")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(title="effective rank, hidden units")
    table = pd.DataFrame(curves).rename_axis("singular_value")
    write(out, "figure_singular_values", tree=table.to_xarray(), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
