"""Balanced accuracy of every aggregator on the paper's data, in percent.

Run: python analyses/aggregators.py DATA --out out/aggregators.csv
DATA is the folder of the authors' files; sets that are not there are left out.
"""

from pathlib import Path

import jax
import pandas as pd
import typer
from rich.console import Console
from rich.progress import track

from latentens.datasets import load
from latentens.errors import DataNotFoundError
from latentens.methods import (
    Cubam,
    DawidSkeneEM,
    Ebcc,
    Glad,
    IterativeMaximumLikelihood,
    LatentSpectral,
    MajorityVote,
    RestrictedLikelihood,
    SpectralMetaLearner,
    Supervised,
)
from latentens.scores import balanced_accuracy
from latentens.simulation import Dataset

SIMULATED = tuple(f"{family}/{number}" for family in ("condInd", "Tree", "LG", "TG") for number in range(1, 6))
REAL = ("S1", "S2", "S3", *(f"magic/{block}" for block in range(1, 11)))

METHODS = {
    "Vote": MajorityVote(),
    "SML": SpectralMetaLearner(),
    "RL": RestrictedLikelihood(),
    "RL, published grid": RestrictedLikelihood(grid="published"),
    "RL, tensor": RestrictedLikelihood(imbalance="tensor"),
    "iMLE": IterativeMaximumLikelihood(start=RestrictedLikelihood(grid="published")),
    "DS-EM": DawidSkeneEM(),
    "L-SML": LatentSpectral(),
    "L-SML, likelihood": LatentSpectral(select="likelihood"),
    "EBCC": Ebcc(),
    "GLAD": Glad(),
    "CUBAM": Cubam(),
}


def main(data: Path, out: Path = Path("aggregators.csv"), seed: int = 0) -> None:
    found = {name: dataset for name in (*SIMULATED, *REAL) if (dataset := find(name, data)) is not None}
    key = jax.random.key(seed)
    columns = {
        name: {label: percent(dataset, method.fit(dataset.votes, key=key).labels) for label, method in METHODS.items()}
        for name, dataset in track(found.items(), description="Fitting", console=Console(stderr=True))
    }
    for name in set(SIMULATED) & found.keys():
        columns[name]["supervised"] = supervised_percent(name, found, key)
    table = pd.DataFrame(columns)
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index_label="method")
    Console(width=200).print(table.round(2).to_string(), highlight=False)


def find(name: str, data: Path) -> Dataset | None:
    try:
        return load(name, root=data)
    except DataNotFoundError:
        return None


def percent(dataset: Dataset, labels) -> float:
    return 100 * balanced_accuracy(dataset.labels, labels)


def supervised_percent(name: str, found: dict[str, Dataset], key: jax.Array) -> float:
    """Trained on another set of the same family."""
    family = name.partition("/")[0]
    others = [other for other in found if other.startswith(f"{family}/") and other != name]
    if not others:
        return float("nan")
    return percent(found[name], Supervised().fit(found[others[0]], key=key).predict(found[name].votes).argmax(axis=1))


if __name__ == "__main__":
    typer.run(main)
