"""How voters and hidden units of DREAM S3 correlate within each class, before and after a layer of 25 units.

    python analyses/figure_s3_correlations.py --data ROOT [--out DIR] [--epochs 20] [--trainings NAME …]

The layer is trained by sampling, without labels; these only divide the items into classes. Training and what is passed
on to the next layer are varied one by one, from the package's way to the authors': which of these makes units that are
uncorrelated given the label? A unit that is constant in a class has no correlation there and is counted as constant.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from common import run, write

from latentens.datasets import load
from latentens.rbm import Machine, SampledTraining, VisibleRows, rows_from_votes
from latentens.rbm.stack import hidden_sample, marginal_hidden_probs
from latentens.runtime.blocks import fetch
from latentens.runtime.numerics import double_precision

NUM_HIDDEN = 25
DIVERGENCE = {"persistent": False, "jumps": False, "held_out": 0.0}
RANDOM_START = DIVERGENCE | {"informed": False, "input_scale": 0.1}
CONSTANT_STEPS = RANDOM_START | {"schedule": "constant", "batch_size": 100, "gibbs_steps": 10}
TRAININGS = {
    "persistent chains": {},
    "contrastive divergence": DIVERGENCE,
    "from a small random start": RANDOM_START,
    "ten sweeps, constant steps": CONSTANT_STEPS,
    "without weight cost": CONSTANT_STEPS | {"penalty": 0.0},
    "with weight cost 0.01": CONSTANT_STEPS | {"penalty": 0.01},
    "with the authors' step of 0.5": CONSTANT_STEPS | {"penalty": 0.0, "learning_rate": 0.5 * 99},
}
"""The package's way first; up to the fourth each adds a step towards the authors' way, then weight costs and step."""

SHOWN = "persistent chains", "random states"


@dataclass(frozen=True)
class Unchecked(SampledTraining):
    """Training that goes on where the likelihood falls, as contrastive divergence lets it."""

    def _check(self, scores: list[float]) -> None:
        del scores


def main(
    data: Path | None, out: Path, seed: int, epochs: int = 20, trainings: tuple[str, ...] = tuple(TRAININGS)
) -> pd.DataFrame:
    dataset = load("S3", root=data)
    rows, row_of_items = rows_from_votes(dataset.votes), dataset.votes.patterns.inverse
    fit_key, sample_key = jax.random.split(jax.random.key(seed))
    voters = correlations(dataset.votes.matrix, dataset.labels, "voter")
    records, matrices = [("votes", "", *mean_size(voters), 0, np.nan)], xr.Dataset({"voter_correlation": voters})
    for name in trainings:
        trained = Unchecked(**{"epochs": epochs, **TRAININGS[name]}).train(rows, NUM_HIDDEN, key=fit_key)
        for passed_on, states in passed(trained.machine, rows, row_of_items, sample_key).items():
            found = correlations(states, dataset.labels, "hidden")
            constant = sum(int((np.ptp(states[dataset.labels == label], axis=0) == 0).sum()) for label in (0, 1))
            records.append((name, passed_on, *mean_size(found), constant, float(trained.curve[-1])))
            print(*records[-1], flush=True)
            if (name, passed_on) == SHOWN:
                matrices["hidden_correlation"] = found
    columns = ["training", "passed_on", "given_label_0", "given_label_1", "constant_units", "log_likelihood"]
    table = pd.DataFrame(records, columns=columns).set_index(["training", "passed_on"])
    write(out, "figure_s3_correlations", tree=matrices, table=table, figure=drawn(matrices))
    return table


@double_precision
def passed(machine: Machine, rows: VisibleRows, row_of_items: np.ndarray, key: jax.Array) -> dict[str, np.ndarray]:
    """What the next layer may be given of each item: random states, probabilities, or the more probable states."""
    probs = fetch(marginal_hidden_probs(machine, rows, key))[row_of_items]
    states = hidden_sample(machine, rows, row_of_items, key=key)
    return {"random states": states, "probabilities": probs, "more probable states": (probs > 0.5).astype(int)}


def correlations(states: np.ndarray, labels: np.ndarray, unit: str) -> xr.DataArray:
    """The correlation matrix of the units given each label; zero for units that are constant there."""
    with np.errstate(invalid="ignore", divide="ignore"):
        matrices = [np.nan_to_num(np.corrcoef(states[labels == label], rowvar=False)) for label in (0, 1)]
    return xr.DataArray(np.stack(matrices), dims=("label", unit, f"other_{unit}"), coords={"label": [0, 1]})


def mean_size(matrices: xr.DataArray) -> list[float]:
    """The mean absolute correlation of two different units, given each label."""
    return [float(np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).mean()) for matrix in matrices.values]


def drawn(matrices: xr.Dataset) -> plt.Figure:
    """One matrix a panel: voters above, hidden units below, a column for each label."""
    figure, axes = plt.subplots(len(matrices), 2, figsize=(8, 3.5 * len(matrices)), layout="constrained", squeeze=False)
    for row, (name, matrix) in zip(axes, matrices.items(), strict=True):
        for panel, label, size in zip(row, (0, 1), mean_size(matrix), strict=True):
            image = panel.imshow(matrix.sel(label=label), vmin=-1, vmax=1, cmap="RdBu_r")
            panel.set_title(f"{str(name).split('_')[0]}s given label {label}: mean size {size:.3f}")
    figure.colorbar(image, ax=axes, label="correlation")
    return figure


if __name__ == "__main__":
    run(main, __doc__)
