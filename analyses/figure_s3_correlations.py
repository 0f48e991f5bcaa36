"""How voters and hidden units of DREAM S3 correlate within each class, before and after a layer of 25 units.

Run: python analyses/figure_s3_correlations.py --data ROOT --out DIR
The stack 99-25-1 is trained by sampling, without labels; these only divide the items into classes. A hidden unit is
taken as it is passed on to the next layer, as one random state for each item.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from common import run

from latentens.datasets import load
from latentens.evaluation.scores import balanced_accuracy
from latentens.methods import RBMStack
from latentens.methods.rbm_stack import stack_machines
from latentens.rbm import rows_from_votes
from latentens.rbm.stack import hidden_sample

NUM_HIDDEN = 25


def main(data: Path | None, out: Path, seed: int) -> None:
    dataset = load("S3", root=data)
    fit_key, sample_key = jax.random.split(jax.random.key(seed))
    fit = RBMStack(hidden=(NUM_HIDDEN, 1)).fit(dataset.votes, key=fit_key)
    rows, row_of_items = rows_from_votes(dataset.votes), dataset.votes.patterns.inverse
    states = hidden_sample(stack_machines(fit.params)[0], rows, row_of_items, key=sample_key)
    matrices = xr.Dataset(
        {
            "voter_correlation": correlations(dataset.votes.matrix, dataset.labels, "voter"),
            "hidden_correlation": correlations(states, dataset.labels, "hidden"),
        },
        attrs={
            "log_likelihood": fit.diagnostics["log_likelihood"],
            "log_likelihood_error": fit.diagnostics["log_likelihood_error"],
            "balanced_accuracy": balanced_accuracy(dataset.labels, fit.labels),
            "seed": seed,
        },
    )
    out.mkdir(parents=True, exist_ok=True)
    matrices.to_netcdf(out / "figure_s3_correlations.nc", engine="h5netcdf")
    table = pd.DataFrame({name: mean_size(matrix) for name, matrix in matrices.items()})
    table.rename_axis("label").to_csv(out / "figure_s3_correlations.csv")
    draw(matrices, out / "figure_s3_correlations.png")
    print(table, matrices.attrs)


def correlations(states: np.ndarray, labels: np.ndarray, unit: str) -> xr.DataArray:
    """The correlation matrix of the units given each label; zero for units that are constant there."""
    with np.errstate(invalid="ignore", divide="ignore"):
        matrices = [np.nan_to_num(np.corrcoef(states[labels == label], rowvar=False)) for label in (0, 1)]
    return xr.DataArray(np.stack(matrices), dims=("label", unit, f"other_{unit}"), coords={"label": [0, 1]})


def mean_size(matrices: xr.DataArray) -> list[float]:
    """The mean absolute correlation of two different units, given each label."""
    return [float(np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).mean()) for matrix in matrices.values]


def draw(matrices: xr.Dataset, file: Path) -> None:
    """One matrix a panel: voters above, hidden units below, a column for each label."""
    figure, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
    for row, (name, matrix) in zip(axes, matrices.items(), strict=True):
        for panel, label, size in zip(row, (0, 1), mean_size(matrix), strict=True):
            image = panel.imshow(matrix.sel(label=label), vmin=-1, vmax=1, cmap="RdBu_r")
            panel.set_title(f"{str(name).split('_')[0]}s given label {label}: mean size {size:.3f}")
    figure.colorbar(image, ax=axes, label="correlation")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    run(main, __doc__)
