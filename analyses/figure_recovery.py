"""Recovery of the voters' sensitivities and specificities by an RBM with one hidden unit.

    python analyses/figure_recovery.py [--data ROOT] [--out DIR]

The lemma turns the fitted machine into Dawid–Skene parameters; they are drawn against the true ones.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import PAPER_ITEMS
from latentens.methods import RBMStack


def main(data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS) -> pd.DataFrame:
    dataset = known_set("condInd", data, items)
    fit = RBMStack(hidden=(1,)).fit(dataset.votes, key=jax.random.key(seed))
    figure, axes = plt.subplots(figsize=(5, 4.6), layout="constrained")
    voters, parts = pd.RangeIndex(1, dataset.votes.num_voters + 1), {}
    for name, label, marker in (("sensitivity", 1, "o"), ("specificity", 0, "s")):
        true, estimated = (params["confusion"][:, label, label] for params in (dataset.params, fit.params))
        parts[name] = pd.DataFrame({"true": true, "estimated": estimated}, voters)
        axes.scatter("true", "estimated", data=parts[name], marker=marker, alpha=0.7, label=name)
    table = pd.concat(parts, names=["parameter", "voter"])
    ends = table.min(axis=None) - 0.03, table.max(axis=None) + 0.03
    axes.plot(ends, ends, "k-", linewidth=0.8, label="identity")
    error = np.sqrt(np.mean((table["true"] - table["estimated"]) ** 2))
    axes.set(xlabel="true value", ylabel="estimate", title=f"{dataset.name}: root mean square error {error:.4f}")
    axes.set_aspect("equal")
    axes.grid(alpha=0.3)
    axes.legend()
    write(out, "figure_recovery", tree=table.to_xarray(), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
