"""Weights of an RBM with one hidden unit on conditionally independent voters.

    python analyses/figure_rbm_weights.py [--data ROOT] [--out DIR]

By the lemma the machine at its maximum is the Dawid–Skene model, so the weights have exact values that the fit should
find: large ones for the five informative voters, zero for the ten that guess.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import PAPER_ITEMS
from latentens.methods import RBMStack
from latentens.rbm.lemma import dawid_skene_to_rbm


def main(data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS) -> pd.DataFrame:
    dataset = known_set("condInd", data, items)
    fit = RBMStack(hidden=(1,)).fit(dataset.votes, key=jax.random.key(seed))
    exact = np.asarray(dawid_skene_to_rbm(**dataset.params).weights)[:, 0]
    voters = pd.RangeIndex(1, dataset.votes.num_voters + 1, name="voter")
    table = pd.DataFrame({"fitted": fit.params["weights_1"][:, 0], "exact": exact}, voters)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.bar(voters, table["fitted"], color="tab:blue", alpha=0.7, label="fitted")
    axes.plot(voters, table["exact"], "k_", markersize=14, label="exact, from the true parameters")
    axes.set(xlabel="voter", ylabel="weight to the hidden unit", title=f"{dataset.name}: RBM 15-1", xticks=voters)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.legend()
    write(out, "figure_rbm_weights", tree=table.to_xarray(), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
