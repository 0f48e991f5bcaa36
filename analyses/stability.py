"""Label stability of the top-down chain: is a fit with poor labels reported, and how often is a good one?

    python analyses/stability.py --data ROOT [--out DIR] [--seed 0] [--sets 40] [--families TG Tree condInd]

Sets are simulated with the true parameters of the paper's families (ROOT has `true_params.json`). A fit should be
reported if its accuracy is more than two points below exact Bayes; on condInd and Tree few fits should be.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import PAPER_ITEMS, simulate
from latentens.inference.stability import UNSTABLE
from latentens.methods import TopDownMLE
from latentens.runtime.progress import track_late


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 40,
    items: int = PAPER_ITEMS,
    families: tuple[str, ...] = ("TG", "Tree", "condInd"),
) -> pd.DataFrame:
    records = []
    for family in families:
        known = known_set(family, data, items)
        assert known.model is not None
        for number in track_late(range(sets), family):
            data_key, fit_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
            dataset = simulate(known.model, items, key=data_key, params=known.params)
            exact = dataset.bayes_posterior()
            fit = TopDownMLE(max_hidden=5).fit(dataset.votes, key=fit_key)
            accuracy = [100 * np.mean(labels == dataset.labels) for labels in (exact.argmax(axis=1), fit.labels)]
            records.append((family, number, *accuracy, fit.diagnostics["label_change"]))
    frame = pd.DataFrame(records, columns=["family", "set", "bayes", "fit", "change"])
    frame["reported"] = frame["change"] > UNSTABLE
    frame["poor"] = frame["bayes"] - frame["fit"] > 2
    frame["missed"] = frame["poor"] & ~frame["reported"]
    write(out, "stability", table=frame.groupby("family", sort=False).mean().drop(columns="set"))
    frame.to_csv(out / "stability_sets.csv", index=False)
    return frame


if __name__ == "__main__":
    run(main, __doc__)
