"""Are the labels identified? Warnings of `TopDownMLE` beside how far its labels are below exact Bayes.

    python analyses/label_stability.py [--data DATA] [--out DIR] [--seed 0] [--sets 40] [--items 10000]
        [--families TG Tree condInd] [--criteria aic bic]

Sets are drawn anew with the true parameters of the authors' sets. A fit is bad if its accuracy is more than 2 points
below that of the exact posterior; a good warning flags the bad ones, and none where the chain contains the truth.
`bic` is the rule that was used before. Finished sets are kept in the results' folder and not done again.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import known_set, run, write

from latentens.datasets import Dataset, simulate
from latentens.inference.stability import UNSTABLE
from latentens.methods import TopDownMLE
from latentens.runtime.progress import track_late

BAD = 0.02
"""An accuracy this far below exact Bayes is bad."""


def drawn(known: Dataset, number: int, items: int) -> Dataset:
    """A set with the parameters of another one."""
    assert known.model is not None
    return simulate(known.model, items, key=jax.random.key(1000 + number), params=known.params)


def judge(dataset: Dataset, criterion: str, seed: int) -> dict[str, float]:
    """How good a fit is, and what it says of itself."""
    fit = TopDownMLE(criterion=criterion).fit(dataset.votes, key=jax.random.key(seed))  # type: ignore[arg-type]
    exact = dataset.bayes_posterior()
    assert exact is not None
    right = {
        "exact": np.mean(exact.argmax(axis=1) == dataset.labels),
        "accuracy": np.mean(fit.labels == dataset.labels),
    }
    units = fit.diagnostics["architecture"][1] if len(fit.diagnostics["architecture"]) > 2 else 0
    return {**right, "units": units, "label_change": fit.diagnostics["label_change"]}


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 40,
    items: int = 10_000,
    families: tuple[str, ...] = ("TG", "Tree", "condInd"),
    criteria: tuple[str, ...] = ("aic", "bic"),
) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    kept = out / f"label_stability_{items}.json"
    done = {tuple(row[:3]): row[3] for row in pd.read_json(kept).to_numpy().tolist()} if kept.exists() else {}
    for family in families:
        known = known_set(family, data, items)
        for number in track_late(range(sets), f"{family}"):
            for criterion in criteria:
                if (family, criterion, number) not in done:
                    found = judge(drawn(known, number, items), criterion, seed + number)
                    done[family, criterion, number] = {name: float(value) for name, value in found.items()}
                    pd.Series([[*address, found] for address, found in done.items()]).to_json(kept, orient="values")
    frame = pd.DataFrame([{"family": f, "size by": c, "set": n, **found} for (f, c, n), found in done.items()])
    frame["gap"] = frame["exact"] - frame["accuracy"]
    frame["bad"], frame["flagged"] = frame["gap"] > BAD, frame["label_change"] > UNSTABLE
    frame["missed"] = frame["bad"] & ~frame["flagged"]
    columns = {"set": "size", "exact": "mean", "accuracy": "mean", "gap": "max"}
    columns |= dict.fromkeys(("bad", "flagged", "missed"), "sum")
    table = (
        frame.groupby(["family", "size by"], sort=False).agg(columns).rename(columns={"set": "sets", "gap": "worst"})
    )
    write(out, "label_stability_sets", table=frame)
    write(out, "label_stability", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
