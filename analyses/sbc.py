"""Simulation-based calibration of NUTS: where true parameters rank among posterior draws.

    python analyses/sbc.py [--out DIR] [--simulations 100] [--items 200] [--draws 99] [--models NAME …]

Parameters come from the priors, votes from the parameters. If the draws are right the ranks are uniform, and the
distribution function of each parameter's ranks stays in the band around the diagonal. An interrupted run goes on.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from common import run, write
from scipy.stats import binom

from latentens.calibration import simulation_based_calibration
from latentens.methods import Nuts
from latentens.models import DawidSkene, Tree

MODELS = {"DawidSkene": DawidSkene(5), "Tree": Tree((0, 0, 0, 1, 1, 1, 2, 2, 2))}


def main(
    data: Path | None,
    out: Path,
    seed: int,
    simulations: int = 100,
    items: int = 200,
    draws: int = 99,
    warmup: int = 300,
    models: tuple[str, ...] = tuple(MODELS),
) -> pd.DataFrame:
    del data  # everything is simulated
    size = (5 * len(models), 4)
    figure, (panels,) = plt.subplots(1, len(models), figsize=size, layout="constrained", sharey=True, squeeze=False)
    tables, ranks = {}, {}
    for axes, name in zip(panels, models, strict=True):
        model = MODELS[name]
        method = Nuts(model, num_chains=2, num_warmup=warmup, num_samples=2 * draws)
        settings = {"num_simulations": simulations, "num_items": items, "num_draws": draws}
        folder = out / "sbc" / name
        found = simulation_based_calibration(model, method, key=jax.random.key(seed), folder=folder, **settings)
        grid = np.linspace(0, 1, 101)
        shares = (found.uniforms[:, None] <= grid[:, None]).mean(axis=0)
        low, high = (binom.ppf(end, simulations, grid) / simulations - grid for end in (0.005, 0.995))
        axes.fill_between(grid, low, high, color="black", alpha=0.15, label="99 % at each point")
        axes.plot(grid, shares - grid[:, None], linewidth=0.8)
        title = f"{name}: p = {found.p_value:.2f} for all {len(found.names)} parameters"
        axes.set(title=title, xlabel="normalised rank of the truth")
        tables[name] = pd.DataFrame({"p_value": found.p_values}, pd.Index(found.names, name="parameter"))
        ranks[name] = xr.Dataset({"rank": (("simulation", "parameter"), found.ranks)}, {"parameter": list(found.names)})
    panels[0].set_ylabel("distribution function − diagonal")
    panels[0].legend(loc="upper left", fontsize="small")
    table = pd.concat(tables, names=["model"])
    write(out, "sbc", tree=xr.DataTree.from_dict(ranks), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
