"""Are the labels identified? Warnings of `TopDownMLE` beside how far its labels are below exact Bayes.

    python analyses/label_stability.py [--data DATA] [--out DIR] [--seed 0] [--sets 6] [--items 10000]
        [--families TG Tree condInd]

Sets are drawn anew with the true parameters of the authors' sets. A fit is bad if its accuracy is more than 2 points
below that of the exact posterior; a good warning flags the bad ones, and none where the chain contains the truth.
`worst` is the largest loss of accuracy to exact Bayes. Finished sets are kept in the results' folder.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import Dataset, simulate
from latentens.inference.identification import UNSTABLE
from latentens.methods import TopDownMLE
from latentens.runtime.progress import track_late

BAD = 0.02
"""An accuracy this far below exact Bayes is bad."""


def judge(known: Dataset, items: int, key: jax.Array) -> dict[str, float]:
    """How good a fit to a new set with the parameters of another is, and what it says of itself."""
    assert known.model is not None
    data_key, fit_key = jax.random.split(key)
    dataset = simulate(known.model, items, key=data_key, params=known.params)
    fit = TopDownMLE().fit(dataset.votes, key=fit_key)
    exact = dataset.bayes_posterior()
    assert exact is not None
    return {
        "exact": float(np.mean(exact.argmax(axis=1) == dataset.labels)),
        "accuracy": float(np.mean(fit.codes == dataset.labels)),
        "units": len(fit.params.get("hidden_bias", ())),
        "label_change": fit.diagnostics.label_change,
    }


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 6,
    items: int = 10_000,
    families: tuple[str, ...] = ("TG", "Tree", "condInd"),
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    kept, key = out / f"label_stability_{items}_{seed}.json", jax.random.key(seed)
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for family in families:
        known = known_set(family, data, items)
        for number in track_late(range(sets), family):
            if (name := f"{family}/{number}") not in done:
                done[name] = {"family": family} | judge(known, items, jax.random.fold_in(key, number))
                kept.write_text(json.dumps(done))
    frame = pd.DataFrame.from_dict(done, orient="index")
    frame["worst"] = frame["exact"] - frame["accuracy"]
    frame["bad"], frame["flagged"] = frame["worst"] > BAD, frame["label_change"] > UNSTABLE
    frame["missed"] = frame["bad"] & ~frame["flagged"]
    columns = {"units": "size", "exact": "mean", "accuracy": "mean", "worst": "max"}
    columns |= dict.fromkeys(("bad", "flagged", "missed"), "sum")
    table = frame.groupby("family", sort=False).agg(columns).rename(columns={"units": "sets"})
    write(out, "label_stability_sets", table=frame)
    write(out, "label_stability", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
