"""Correlation matrices of the votes of the four simulated models, over all items and within classes.

    python analyses/figure_correlations.py [--data ROOT] [--out DIR]

Only voters of `condInd` are uncorrelated given the label: what separates the other models from Dawid–Skene.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from common import draw_matrix, paper_sets, run, vote_correlations, write

from latentens.datasets import PAPER_ITEMS, PAPER_MODELS


def main(data: Path | None, out: Path, seed: int, items: int = PAPER_ITEMS) -> xr.DataArray:
    del seed  # nothing here is random
    datasets = [dataset for family in PAPER_MODELS for dataset in paper_sets(family, data, 1, items)]
    found = [vote_correlations(dataset.votes, dataset.labels) for dataset in datasets]
    axes = {"family": list(PAPER_MODELS), "items": ["all", "within classes"]}
    matrices = xr.DataArray(np.array(found), axes, (*axes, "voter", "other_voter"), name="correlation")
    figure, panels = plt.subplots(2, 4, figsize=(11.5, 5.6), layout="constrained", sharex=True, sharey=True)
    for column, family in zip(panels.T, axes["family"], strict=True):
        for panel, kind in zip(column, axes["items"], strict=True):
            matrix = matrices.sel(family=family, items=kind)
            image = draw_matrix(panel, matrix, f"{family}, {kind}", ("voter", "voter"))
            panel.label_outer()
    figure.colorbar(image, ax=panels, label="correlation")
    table = matrices.where(~np.eye(15, dtype=bool)).mean(["voter", "other_voter"]).to_pandas()
    write(out, "figure_correlations", tree=matrices.to_dataset(), table=table, figure=figure)
    return matrices


if __name__ == "__main__":
    run(main, __doc__)
