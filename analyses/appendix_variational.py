"""The paper's appendix on deep belief nets: how near the stack comes to the exact posterior of the net it stands for.

    python analyses/appendix_variational.py [--out DIR] [--sets 1]

Votes come from an RBM whose hidden units are coupled through their voters; the label hangs on the hidden units by the
weights that the second machine of a stack has for infinitely many items. The hidden units are independent given the
votes, so the stack is right in the limit; the figure shows the distance as the number of items, the number of hidden
units and the coupling grow, with expectations over hidden states (`exact`) and with their most probable state (`map`).
"""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write

from latentens.comparison import compare
from latentens.datasets import simulate
from latentens.methods import RBMStack
from latentens.models import DeepBeliefNet
from latentens.programs.distributions import BoltzmannHidden
from latentens.rbm import ExactTraining, VisibleRows
from latentens.runtime.numerics import double_precision

SWEEPS = {"items": (300, 1000, 3000, 10_000), "hidden units": (3, 4, 5), "coupling": (1.0, 1.5, 2.0, 3.0)}
BASE = {"items": 3000, "hidden units": 3, "coupling": 2.0}


@double_precision
def net_params(model: DeepBeliefNet, coupling: float, key: jax.Array) -> dict[str, np.ndarray]:
    """Strong weights to a unit's own voters, weak ones to all others; symmetric in 0 and 1."""
    own_unit = np.arange(model.num_voters) * model.num_hidden // model.num_voters
    weights = coupling * np.where(np.eye(model.num_hidden, dtype=bool)[own_unit], 1.0, 0.25)
    net = {"weights": weights, "visible_bias": -weights.sum(axis=1) / 2, "hidden_bias": -weights.sum(axis=0) / 2}
    hidden = BoltzmannHidden(**net)
    states = hidden.enumerate_support().astype(float)
    top = ExactTraining().train(VisibleRows(states, jnp.exp(hidden.log_prob(states)), len(states)), 1, key=key).machine
    side = np.sign(top.weights.sum())  # of the two names that the label can have, the voters' own
    label = {"label_weights": side * top.weights[:, 0], "label_bias": side * top.hidden_bias[0]}
    return {name: np.asarray(value) for name, value in (net | label).items()}


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 1,
    most_items: int = 10_000,
    sweeps: tuple[str, ...] = tuple(SWEEPS),
) -> pd.DataFrame:
    del data  # everything is simulated
    parts = {}
    for sweep in sweeps:
        for value in SWEEPS[sweep]:
            setting = {**BASE, sweep: value}
            model = DeepBeliefNet(15, setting["hidden units"])
            stacks = {kind: RBMStack((model.num_hidden, 1), prediction=kind) for kind in ("exact", "map")}
            params = net_params(model, setting["coupling"], jax.random.key(seed))
            items = min(most_items, setting["items"])
            keys = jax.random.split(jax.random.key(seed + 1), sets)
            drawn = [simulate(model, items, key=key, params=params) for key in keys]
            named = [replace(dataset, name=f"set {number}") for number, dataset in enumerate(drawn, start=1)]
            tree = compare(named, stacks, key=keys[0], resamples=10)
            scores = tree["scores"].to_dataset().sel(estimator=list(stacks))
            parts[sweep, value] = scores[["mean_kl", "balanced_accuracy", "accuracy_regret"]].to_dataframe()
    frame = pd.concat(parts, names=["sweep", "value"])
    table = frame.groupby(["sweep", "value", "estimator"], sort=False).mean()
    figure, panels = plt.subplots(1, len(sweeps), figsize=(11, 3.8), layout="constrained", sharey=True, squeeze=False)
    for axes, sweep in zip(panels[0], sweeps, strict=True):
        for kind in ("exact", "map"):
            series = table.loc[sweep].xs(kind, level="estimator")["mean_kl"]
            axes.plot(series.index.astype(float), series, "o-", label=f"stack, {kind}")
        fixed = ", ".join(f"{name} {value}" for name, value in BASE.items() if name != sweep)
        axes.set(xlabel=sweep, yscale="log", xscale="log" if sweep == "items" else "linear")
        axes.set_title(fixed, fontsize="medium")
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("mean KL from the exact posterior (nats)")
    panels[0, 0].legend()
    write(out, "appendix_variational", tree=frame.to_xarray(), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
