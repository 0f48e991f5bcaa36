"""Simulation-based calibration of NUTS: where true parameters rank among posterior draws.

    python analyses/sbc.py [--out DIR] [--simulations 100] [--items 200] [--draws 99] [--models NAME …]

Parameters come from the priors, votes from the parameters. If the draws are right the ranks are uniform, and the
distribution function of each parameter's ranks stays in the band around the diagonal. An interrupted run
resumes where it stopped.
"""

from pathlib import Path

import jax
import pandas as pd
import xarray as xr
from common import run, write

from latentens.checks import simulation_based_calibration
from latentens.methods import Nuts
from latentens.models import (
    ClassConditional,
    Confounder,
    DawidSkene,
    HierarchicalDawidSkene,
    ItemDifficulty,
    Mace,
    OneCoin,
    Tree,
)
from latentens.reporting import figures as rank_figure

MODELS = {
    "DawidSkene": DawidSkene(5),
    "Tree": Tree((0, 0, 0, 1, 1, 1, 2, 2, 2)),
    "OneCoin": OneCoin(5, num_classes=3),
    "ClassConditional": ClassConditional(5, num_classes=3),
    "HierarchicalDawidSkene": HierarchicalDawidSkene(6),
    "Mace": Mace(5, num_classes=3),
    "ItemDifficulty": ItemDifficulty(5),
    "Confounder": Confounder(5),
}


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
    tables, ranks = {}, {}
    for name in models:
        method = Nuts(MODELS[name], num_chains=2, num_warmup=warmup, num_samples=2 * draws)
        settings = {"num_simulations": simulations, "num_items": items, "num_draws": draws}
        folder = out / "sbc" / name
        found = simulation_based_calibration(MODELS[name], method, key=jax.random.key(seed), folder=folder, **settings)
        write(out, f"sbc_{name}", figure=rank_figure(found))
        tables[name] = pd.DataFrame({"p_value": found.p_values}, pd.Index(found.names, name="parameter"))
        ranks[name] = xr.Dataset({"rank": (("simulation", "parameter"), found.ranks)}, {"parameter": list(found.names)})
    table = pd.concat(tables, names=["model"])
    write(out, "sbc", tree=xr.DataTree.from_dict(ranks), table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
