"""Accuracy of the RBM stack on sparse crowds, beside Dawid–Skene and the vote.

python analyses/rbm_crowds.py --data FOLDER --out DIR [--seed 0]
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import CROWDS, find, run

from latentens.methods import DawidSkeneEM, MajorityVote, RBMStack

METHODS = {"RBM stack": RBMStack(), "Dawid–Skene": DawidSkeneEM(), "vote": MajorityVote()}


def main(data: Path | None, out: Path, seed: int, names: tuple[str, ...] = CROWDS) -> pd.DataFrame:
    records = []
    for dataset in find(names, data):
        fits = {name: method.fit(dataset.votes, key=jax.random.key(seed)) for name, method in METHODS.items()}
        known = dataset.labels >= 0
        record: dict[str, object] = {"set": dataset.name, "classes": dataset.votes.num_classes}
        for name, fit in fits.items():
            record[name] = round(100 * float(np.mean(fit.codes[known] == dataset.labels[known])), 2)
        stack = fits["RBM stack"].diagnostics
        record["sizes"] = "-".join(map(str, stack["architecture"]))
        record |= {"notes": stack.notes, "seconds": round(stack.seconds or 0.0, 1), "warnings": stack.all_warnings}
        records.append(record)
        print(record, flush=True)
    table = pd.DataFrame(records)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "rbm_crowds.csv", index=False)
    return table


if __name__ == "__main__":
    run(main, __doc__)
