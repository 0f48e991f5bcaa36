"""What the analyses share: the command line, the paper's sets and methods, tables and files."""

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from layers import LayerCorrelations, decorrelation
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from paper import Reported
from supervised import Supervised

from latentens.cli.methods import OWN_PROGRAM, fitted_program, own_program
from latentens.comparison import EXACT, compare, save_comparison
from latentens.comparison.sweep import MethodFactory
from latentens.datasets import PAPER_ITEMS, Dataset, load, simulate_paper
from latentens.errors import DataNotFoundError, LatentensError
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    LatentSpectral,
    MajorityVote,
    RBMStack,
    RestrictedLikelihood,
    SpectralMetaLearner,
    TopDownMLE,
)
from latentens.methods.base import Estimate, Method, Posterior
from latentens.models import TruncatedGaussian
from latentens.runtime.parallel import available_cores
from latentens.runtime.store import fingerprint
from latentens.votes import Votes

CROWDS = ("bluebird", "dog", "rte", "zencrowd_us")
"""The crowds that a data root may have."""

METHODS: dict[str, Method] = {
    "Vote": MajorityVote(),
    "SML": SpectralMetaLearner(),
    "RL": RestrictedLikelihood(),
    "RL, published grid": RestrictedLikelihood(grid="published"),
    "iMLE": IterativeMaximumLikelihood(start=RestrictedLikelihood(grid="published")),
    "DS-EM": DawidSkeneEM(),
    "L-SML": LatentSpectral(),
    "L-SML, published grid": LatentSpectral(imbalance="published"),
    "CUBAM": Cubam(),
    "GLAD": Glad(),
    "EBCC": Ebcc(),
    "RBM stack": RBMStack(),
    "RBM stack, map": RBMStack(prediction="map"),
    "top-down MLE": TopDownMLE(),
}
"""Every method at its defaults; both spectral rows and both predictions of the stack, none picked by label."""

PROGRAMS = (OWN_PROGRAM, "truncated Gaussian")
"""Rows of programs fitted by likelihood: each family's own, and one program for all of them."""


def chosen_methods(names: Iterable[str], datasets: Sequence[Dataset]) -> dict[str, Method | MethodFactory]:
    """Methods and fitted programs by their names in tables."""
    programs = {
        OWN_PROGRAM: own_program(datasets),
        "truncated Gaussian": lambda votes: fitted_program(TruncatedGaussian(votes.num_voters)),
    }
    return {name: METHODS.get(name) or programs[name] for name in names}


PAPER_ROWS = {
    "Vote": "Vote",
    "SML": "DS",
    "RL": "DS",
    "RL, published grid": "DS",
    "iMLE": "DS",
    "L-SML": "L-SML",
    "L-SML, published grid": "L-SML",
    "CUBAM": "CUBAM",
    "RBM stack": "DNN",
    "RBM stack, map": "DNN",
    "supervised": "supervised",
    EXACT: "Bayes",
}
"""The row of the paper's tables that a method belongs to."""


def run(main: Callable[..., Any], doc: str | None) -> None:
    """Call `main(data, out, seed, …)` from the command line; its further settings become options."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the paper's data")
    parser.add_argument("--out", type=Path, default=Path("out") / Path(sys.argv[0]).stem, help="folder of the results")
    parser.add_argument("--seed", type=int, default=0)
    for setting in list(inspect.signature(main).parameters.values())[3:]:
        several = isinstance(setting.default, tuple)
        kind = type(setting.default[0] if several else setting.default)
        name = f"--{setting.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=setting.default, nargs="+" if several else None)
    try:
        main(**vars(parser.parse_args()))
    except LatentensError as error:
        parser.error(str(error))


def find(names: Iterable[str], data: Path | None) -> list[Dataset]:
    """The sets of these names that are there."""
    found = []
    for name in names:
        try:
            found.append(load(name, root=data))
        except DataNotFoundError:
            continue
    return found


def paper_sets(family: str, data: Path | None, sets: int = 5, items: int = PAPER_ITEMS) -> list[Dataset]:
    """As many of the authors' simulated sets as are there; without data as many new ones."""
    numbers = range(1, sets + 1)
    if data is None:
        return [simulate_paper(family, number, items) for number in numbers]
    return find([f"{family}/{number}" for number in numbers], data)


def known_set(family: str, data: Path | None, items: int = PAPER_ITEMS) -> Dataset:
    """The first of the authors' sets if its parameters are known; else a new one, whose parameters are."""
    found = paper_sets(family, data, 1, items)
    return found[0] if found and found[0].params is not None else simulate_paper(family, 1, items)


def compared(
    datasets: Sequence[Dataset],
    methods: Mapping[str, Method | MethodFactory],
    out: Path,
    seed: int,
    repetitions: int = 1,
) -> xr.DataTree:
    """A comparison of as many fits at a time as there are cores, kept beside DIR for all analyses."""
    kept = {"folder": out.parent / "fits", "workers": available_cores()}
    return compare(datasets, methods, key=jax.random.key(seed), repetitions=repetitions, resamples=200, **kept)


def family_of(name: str) -> str:
    """`Tree` of `Tree/1`."""
    return name.partition("/")[0]


@dataclass(frozen=True)
class SupervisedElsewhere(Method):
    """The supervised network, trained on another set of the same family than the votes it is shown.

    Attributes:
        sets: All sets of the comparison.
    """

    sets: tuple[Dataset, ...] = field(repr=False)

    def has_fixed_order(self, estimate: Estimate) -> bool:
        del estimate
        return True

    def estimate(self, votes: Votes, key: jax.Array, gold: np.ndarray | None = None) -> Estimate:
        del gold
        shown = fingerprint(votes)  # by content: sent to another process, votes are a copy
        same = [dataset for dataset in self.sets if fingerprint(dataset.votes) == shown]
        if not same:
            raise LatentensError("the supervised network knows only the sets of its comparison, and not these votes")
        own = next((dataset for dataset in same if dataset.votes is votes), same[0])
        others = [other for other in self.sets if other is not own and family_of(other.name) == family_of(own.name)]
        if not others:
            raise LatentensError(f"there is no other set like {own.name} to train on")
        return Supervised().estimate(others[0], key)

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        return Supervised().posterior(estimate, votes)


def score_table(
    tree: xr.DataTree, scores: Iterable[str], reported: Mapping[str, Mapping[str, Reported]] | None = None
) -> pd.DataFrame:
    """Mean and deviation of scores over the sets of each family, beside the paper's figures; accuracy in percent."""
    found = tree["scores"].to_dataset()
    found["balanced_accuracy"] = 100 * found["balanced_accuracy"]
    wanted = [name for name in scores if name in found]
    by_family = found[wanted].assign_coords(
        family=("dataset", [family_of(str(name)) for name in found["dataset"].values])
    )
    frame = by_family.to_dataframe().reset_index()
    groups = frame.groupby(["family", "estimator"], sort=False)
    table = groups[wanted].mean().assign(deviation=groups["balanced_accuracy"].std())
    for family, method in table.index if reported is not None else ():
        figure = reported.get(family, {}).get(PAPER_ROWS.get(method, ""))
        if figure is not None:
            table.loc[(family, method), "paper"] = figure.mean
            table.loc[(family, method), "paper_deviation"] = np.nan if figure.deviation is None else figure.deviation
    return table


class Records:
    """Finished fits, one line of a file each, by their first columns."""

    def __init__(self, path: Path, by: tuple[str, ...]) -> None:
        self.path, self.by = path, by
        lines = path.read_text().splitlines() if path.is_file() else []
        self.found = {self._place(record): record for record in map(json.loads, lines)}

    def _place(self, record: dict[str, object]) -> tuple[object, ...]:
        return tuple(record[name] for name in self.by)

    def has(self, *place: object) -> bool:
        """Whether this fit is finished."""
        return place in self.found

    def add(self, record: dict[str, object]) -> None:
        """Keep a fit."""
        self.found[self._place(record)] = record
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def frame(self) -> pd.DataFrame:
        """All of them."""
        return pd.DataFrame([*self.found.values()])


def write(
    out: Path,
    name: str,
    *,
    tree: xr.DataTree | xr.Dataset | None = None,
    table: pd.DataFrame | None = None,
    figure: Figure | None = None,
) -> None:
    """Write `name.nc`, `name.csv` and `name.png`, and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    if tree is not None:
        save_comparison(tree if isinstance(tree, xr.DataTree) else xr.DataTree(tree), out / f"{name}.nc")
    if table is not None:
        table.to_csv(out / f"{name}.csv")
        print(table.round(3).to_string())
    if figure is not None:
        figure.savefig(out / f"{name}.png", dpi=100)
        plt.close(figure)


def accuracy_panels(table: pd.DataFrame) -> Figure:
    """One panel a family: balanced accuracy of every method with its deviation, and the paper's figures."""
    families = list(dict.fromkeys(table.index.get_level_values("family")))
    size = (3.2 * len(families) + 1.5, 4.6)
    figure, panels = plt.subplots(1, len(families), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axes, family in zip(panels[0], families, strict=True):
        rows = table.loc[family]
        places = np.arange(len(rows))
        ours = rows["balanced_accuracy"], places
        axes.errorbar(*ours, xerr=rows["deviation"].fillna(0), fmt="o", markersize=5, label="here")
        if "paper" in rows:
            axes.plot(rows["paper"], places, "kx", markersize=6, label="paper")
        axes.set(title=family, xlabel="balanced accuracy (%)", yticks=places, yticklabels=rows.index)
        axes.grid(axis="x", alpha=0.3)
    panels[0, 0].invert_yaxis()
    panels[0, -1].legend(fontsize="small")
    return figure


def draw_matrix(axes: Axes, matrix: Any, title: str, sides: tuple[str, str], limit: float = 1.0) -> Any:
    """A heat map with zero in white, rows and columns counted from one; returns what a colour bar needs."""
    rows, columns = matrix.shape
    extent = (0.5, columns + 0.5, rows + 0.5, 0.5)
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", extent=extent)
    axes.set_title(title, fontsize="medium")
    axes.set(ylabel=sides[0], xlabel=sides[1])
    axes.locator_params(integer=True)
    return image


def vote_correlations(votes: Votes, labels: np.ndarray) -> LayerCorrelations:
    """Correlations between voters, over all items and given the label."""
    key = jax.random.key(0)  # neither vote shares nor correlations of votes are random
    return decorrelation(MajorityVote().fit(votes, key=key), votes, labels, key=key)[0]
