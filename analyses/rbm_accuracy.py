"""Balanced accuracy of the RBM stack on the paper's data, one set of defaults for all, over several keys.

Run: python analyses/rbm_accuracy.py --data FOLDER --out FILE.csv
"""

import argparse
from pathlib import Path

import jax
import pandas as pd

from latentens.datasets import load
from latentens.errors import DataNotFoundError
from latentens.evaluation.scores import balanced_accuracy
from latentens.methods import RBMStack

NAMES = (*(f"{family}/{number}" for family in ("condInd", "Tree", "LG", "TG") for number in range(1, 6)), "S1", "S3")


def main(data: str | None, out: Path, seed: int, keys: int, names: list[str]) -> None:
    records = []
    for name in names or NAMES:
        try:
            dataset = load(name, root=data)
        except DataNotFoundError:
            continue
        for number in range(seed, seed + keys):
            fit = RBMStack().fit(dataset.votes, key=jax.random.key(number))
            accuracy = 100 * balanced_accuracy(dataset.labels, fit.labels)
            sizes = "-".join(map(str, fit.diagnostics["architecture"]))
            records.append((name.split("/")[0], name, number, sizes, accuracy, fit.diagnostics["seconds"]))
            print(*records[-1], flush=True)
    columns = ["family", "dataset", "key", "architecture", "balanced_accuracy", "seconds"]
    frame = pd.DataFrame(records, columns=columns)
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out, index=False)
    by_key = frame.groupby(["family", "key"])["balanced_accuracy"].mean().groupby("family")
    print(by_key.agg(["mean", "std"]).round(3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the paper's data; without it the simulated sets are drawn anew")
    parser.add_argument("--out", type=Path, default=Path("out/rbm_accuracy.csv"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("names", nargs="*", help="data sets, by default all")
    main(**vars(parser.parse_args()))
