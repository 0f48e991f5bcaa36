"""Balanced accuracy of the RBM stack on the paper's data, one set of defaults for all, over several keys.

    python analyses/rbm_accuracy.py [--data ROOT] [--out DIR] [--seed 0] [--keys 3] [--names Tree/1 S3 …]

Without `--data` the simulated sets are drawn anew, so that `--names Tree/300 Tree/301 …` are sets that nobody has seen.
"""

from pathlib import Path

import jax
import pandas as pd
from common import family_of, find, run, write

from latentens.methods import RBMStack
from latentens.scores.scores import balanced_accuracy

NAMES = (*(f"{family}/{number}" for family in ("condInd", "Tree", "LG", "TG") for number in range(1, 6)), "S1", "S3")


def main(data: Path | None, out: Path, seed: int, keys: int = 3, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    records = []
    for dataset in find(names, data):
        known = dataset.labels >= 0
        for number in range(seed, seed + keys):
            fit = RBMStack().fit(dataset.votes, key=jax.random.key(number))
            accuracy = 100 * balanced_accuracy(dataset.labels[known], fit.codes[known])
            sizes = "-".join(map(str, fit.diagnostics["architecture"]))
            seconds = fit.diagnostics.seconds
            records.append((family_of(dataset.name), dataset.name, number, sizes, accuracy, seconds))
            print(*records[-1], flush=True)
    columns = ["family", "dataset", "key", "sizes", "balanced_accuracy", "seconds"]
    frame = pd.DataFrame(records, columns=columns).set_index("family")
    write(out, "rbm_accuracy_sets", table=frame)
    by_key = frame.groupby(["family", "key"], sort=False)["balanced_accuracy"].mean().groupby("family", sort=False)
    groups = frame.groupby("family", sort=False)
    sizes = groups["sizes"].agg(lambda found: ", ".join(f"{n} × {name}" for name, n in found.value_counts().items()))
    table = by_key.agg(["mean", "std"]).assign(worst=groups["balanced_accuracy"].min(), sizes=sizes)
    write(out, "rbm_accuracy", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
