"""Is a fit ever on the wrong side in silence? Every method on every panel over many keys, and warnings on ensembles.

    python analyses/label_order.py --data ROOT [--out DIR] [--keys 5]

ROOT is as for `real_votes.py`. Every fit is kept in DIR/label_order.csv, so that a run resumes. Two tables:
accuracy over keys on each panel, with the share of fits that warn and the number of fits on two classes that are below
chance without a warning; and how often each method warns on the ensembles, where nothing is known to be wrong.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run
from real_votes import real_sets

from latentens.datasets import Dataset
from latentens.errors import LatentensError
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
    TreeMLE,
)
from latentens.methods.base import Method

METHODS: dict[str, Method] = {
    "MajorityVote": MajorityVote(),
    "SpectralMetaLearner": SpectralMetaLearner(),
    "RestrictedLikelihood": RestrictedLikelihood(),
    "IterativeMaximumLikelihood": IterativeMaximumLikelihood(),
    "Glad": Glad(),
    "Cubam": Cubam(),
    "LatentSpectral": LatentSpectral(),
    "DawidSkeneEM": DawidSkeneEM(),
    "Ebcc": Ebcc(),
    "TreeMLE": TreeMLE(),
    "RBMStack": RBMStack(),
    "TopDownMLE": TopDownMLE(),
}
NOT_RANDOM = (
    "MajorityVote",
    "SpectralMetaLearner",
    "RestrictedLikelihood",
    "IterativeMaximumLikelihood",
    "Glad",
    "Cubam",
)
SLOW = "TreeMLE", "TopDownMLE"
"""Methods that have one key."""
ON_ENSEMBLES = ("DawidSkeneEM", "Ebcc", "RBMStack")

SERIOUS = ("nearly tied", "opposing groups", "weakly identified", "not identified", "hardly support a label")
"""What a warning says that is about the label; others are about the climb."""


def main(data: Path | None, out: Path, seed: int, keys: int = 5, methods: tuple[str, ...] = tuple(METHODS)) -> None:
    path = out / "label_order.csv"
    out.mkdir(parents=True, exist_ok=True)
    for folder, dataset in real_sets(data, ("panels", "ensembles"), ("",)):
        for name in methods if folder == "panels" else [name for name in ON_ENSEMBLES if name in methods]:
            number = 1 if folder == "ensembles" or name in (*NOT_RANDOM, *SLOW) else keys
            for key in range(seed, seed + number):
                done = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["dataset", "method", "key"])
                if not ((done["dataset"] == dataset.name) & (done["method"] == name) & (done["key"] == key)).any():
                    row = pd.DataFrame([{"folder": folder, **measured(dataset, name, key)}])
                    row.to_csv(path, mode="a", header=not path.is_file(), index=False)
                    print(row.to_string(index=False, header=False), flush=True)
    found = pd.read_csv(path)
    panels, ensembles = (found[found["folder"] == folder] for folder in ("panels", "ensembles"))
    panel_table(panels).to_csv(out / "label_order_panels.csv", index=False)
    warning_table(ensembles).to_csv(out / "label_order_ensembles.csv", index=False)
    print(panel_table(panels).round(3).to_string(index=False))
    print(warning_table(ensembles).round(3).to_string(index=False))


def measured(dataset: Dataset, name: str, key: int) -> dict[str, object]:
    """One fit: its accuracy, its log-likelihood, and what it warns of."""
    row = {"dataset": dataset.name, "method": name, "key": key, "classes": dataset.votes.num_classes}
    try:
        fit = METHODS[name].fit(dataset.votes, key=jax.random.key(key))
    except LatentensError as error:
        return {**row, "accuracy": np.nan, "log_likelihood": np.nan, "seconds": np.nan, "warnings": str(error)}
    known = dataset.labels >= 0
    said = [words for words in SERIOUS if any(words in text for text in fit.diagnostics.all_warnings)]
    return {
        **row,
        "accuracy": float(np.mean(fit.codes[known] == dataset.labels[known])),
        "log_likelihood": fit.diagnostics.get("log_likelihood", np.nan),
        "seconds": fit.diagnostics.seconds,
        "warnings": "; ".join(said),
    }


def panel_table(found: pd.DataFrame) -> pd.DataFrame:
    """Accuracy in percent over keys, the share of fits that warn, and what is wrong in silence."""
    rows = []
    for (dataset, method), part in found.dropna(subset="accuracy").groupby(["dataset", "method"], sort=False):
        accuracy, silent = 100 * part["accuracy"], part["warnings"].isna()
        below = silent & (part["accuracy"] < 0.5) & (part["classes"] == 2)
        rows.append(
            {
                "panel": dataset,
                "method": method,
                "fits": len(part),
                "mean": accuracy.mean(),
                "worst": accuracy.min(),
                "best": accuracy.max(),
                "warned": f"{1 - silent.mean():.0%}",
                "below_chance_in_silence": int(below.sum()),
            }
        )
    return pd.DataFrame(rows)


def warning_table(found: pd.DataFrame) -> pd.DataFrame:
    """How many of the ensembles each method warns of, and why."""
    rows = []
    for method, part in found.dropna(subset="accuracy").groupby("method", sort=False):
        said = part["warnings"].fillna("")
        counts = {words.replace(" ", "_"): int(said.str.contains(words).sum()) for words in SERIOUS}
        rows.append({"method": method, "ensembles": len(part), "warned": int((said != "").sum()), **counts})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main, __doc__)
