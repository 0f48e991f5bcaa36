"""The tree 15-3-1: correlations within classes before and after the first RBM, and its weights.

    python analyses/figure_tree.py [--data ROOT] [--out DIR]

Voters of a group are correlated given the label; the three hidden units that the stack finds are not, and each unit's
weights point at one group. Labels serve the figure only.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from common import draw_matrix, known_set, run, write
from layers import decorrelation

from latentens.datasets import PAPER_ITEMS
from latentens.methods import RBMStack


def main(data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS) -> xr.Dataset:
    dataset = known_set("Tree", data, items)
    fit_key, hidden_key = jax.random.split(jax.random.key(seed))
    fit = RBMStack().fit(dataset.votes, key=fit_key)
    votes, hidden = decorrelation(fit, dataset.votes, dataset.labels, key=hidden_key)[:2]
    weights = fit.params["weights_1"]
    units = np.argsort(np.abs(weights).argmax(axis=0))  # in the order of their groups
    sides = np.sign(weights.sum(axis=0))[units]  # a unit's 0 and 1 are exchangeable: here 1 goes with a vote for 1
    numbers = {"voter": np.arange(1, len(weights) + 1), "unit": np.arange(1, len(units) + 1)}
    found = xr.Dataset(
        {
            "votes": (("voter", "other_voter"), votes.given_label),
            "hidden": (("unit", "other_unit"), hidden.given_label[np.ix_(units, units)] * np.outer(sides, sides)),
            "weights": (("voter", "unit"), weights[:, units] * sides),
        },
        numbers,
    )
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
    image = draw_matrix(panels[0], found["votes"], "votes: correlation within classes", ("voter", "voter"))
    draw_matrix(panels[1], found["hidden"], "hidden units: correlation within classes", ("hidden unit", "hidden unit"))
    figure.colorbar(image, ax=panels[:2], label="correlation")
    limit = float(np.abs(weights).max())
    image = draw_matrix(panels[2], found["weights"], "weights of the first RBM", ("voter", "hidden unit"), limit)
    figure.colorbar(image, ax=panels[2], label="weight")
    write(out, "figure_tree", tree=found, table=found["weights"].to_pandas(), figure=figure)
    return found


if __name__ == "__main__":
    run(main, __doc__)
