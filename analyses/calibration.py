"""Is a stated probability worth its name? Every method against the exact posterior on the four simulated models.

    python analyses/calibration.py [--data ROOT] [--out DIR] [--methods NAME …]

On the first of the authors' sets where its parameters are known, on a newly simulated one elsewhere. Fits are shared
with `table_1.py` through DIR/fits.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pandas as pd
import xarray as xr
from common import METHODS, compared, known_set, run, score_table, write
from matplotlib.figure import Figure

from latentens.comparison import EXACT, data_trees
from latentens.datasets import PAPER_ITEMS, PAPER_MODELS
from latentens.scores.reliability import reliability

SCORES = ("balanced_accuracy", "log_score", "calibration_error_debiased", "confident_share", "confident_wrong")
DISTANCES = ("mean_kl", "total_variation", "root_mean_square_difference", "accuracy_regret")
DRAWN = (EXACT, "Vote", "DS-EM", "L-SML", "CUBAM", "EBCC", "RBM stack", "top-down MLE")


def main(
    data: Path | None,
    out: Path,
    seed: int,
    items: int = PAPER_ITEMS,
    families: tuple[str, ...] = tuple(PAPER_MODELS),
    methods: tuple[str, ...] = tuple(METHODS),
) -> pd.DataFrame:
    datasets = [known_set(family, data, items) for family in families]
    chosen = {name: METHODS[name] for name in methods}
    tree = compared(datasets, chosen, out, seed)
    table = score_table(tree, (*SCORES, *DISTANCES)).drop(columns="deviation")
    write(out, "calibration", tree=tree, table=table, figure=curves(tree, jax.random.key(seed)))
    return table


def curves(tree: xr.DataTree, key: jax.Array) -> Figure:
    """How often the label is 1 by the stated probability; the band is where the exact posterior's curve may lie."""
    parts = data_trees(tree)
    size = (2.9 * len(parts) + 1.5, 3.9)
    figure, (panels,) = plt.subplots(1, len(parts), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axes, (name, part) in zip(panels, parts.items(), strict=True):
        labels, estimates = part["truth/true_label"].values, part["estimates/label_prob"].sel(repetition=0)
        for method in DRAWN:
            if method != EXACT and method not in estimates["estimator"]:
                continue
            probs = part["truth/bayes_prob"] if method == EXACT else estimates.sel(estimator=method)
            found = reliability(labels, probs.values, key=key, resamples=200 if method == EXACT else 20)
            if method == EXACT:
                axes.fill_between(found.stated, found.low, found.high, color="black", alpha=0.2)
            style = {"color": "black", "linewidth": 2} if method == EXACT else {"linewidth": 1.2}
            axes.plot(found.stated, found.observed, label=method, **style)
        axes.plot([0, 1], [0, 1], "k:", linewidth=0.8)
        axes.set(title=name, xlabel="stated probability of label 1")
    panels[0].set_ylabel("observed share of label 1")
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    return figure


if __name__ == "__main__":
    run(main, __doc__)
