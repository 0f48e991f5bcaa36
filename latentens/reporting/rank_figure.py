"""The figure of a simulation-based calibration."""

from typing import TYPE_CHECKING

import xarray as xr

from latentens.evaluation.sbc import SimulationRanks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def rank_figure(ranks: SimulationRanks) -> "Figure":
    """Distribution functions of the true parameters' ranks less the diagonal, by ArviZ.

    ArviZ adds a simultaneous band, which a curve leaves if the draws are wrong, or, from version 1 on, a p-value.

    Args:
        ranks: What `simulation_based_calibration` has found.
    """
    from arviz_plots import plot_ecdf_pit

    columns = zip(ranks.names, ranks.uniforms.T, strict=True)
    values = xr.Dataset({name: (("chain", "draw"), column[None]) for name, column in columns})
    size = (2.6 * COLUMNS, 2.2 * -(-len(ranks.names) // COLUMNS))
    collection = plot_ecdf_pit(
        xr.DataTree.from_dict({"prior_sbc": values}),
        backend="matplotlib",
        col_wrap=COLUMNS,
        figure_kwargs={"figsize": size, "layout": "constrained"},
        visuals={"xlabel": {"text": "normalised rank"}},
    )
    return collection.viz["figure"].item()
