"""How many independent voters are these worth? Estimates beside the value of the true model, and their intervals.

    python analyses/effective_voters.py [--data DATA] [--out DIR] [--seed 0] [--sets 2] [--items 3000]
        [--resamples 10] [--families condInd Tree LG TG]

Sets of the paper's four families are drawn anew. The true worth is that of the model that they come from. The estimate
is that of `effective_voters`, which chooses among independent voters, a common factor and hidden units; the interval
has a level of 90 %. Finished sets are kept in the results' folder and not done again.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from common import run, write

from latentens.checks import effective_number, effective_voters
from latentens.datasets import simulate_paper
from latentens.runtime.progress import track_late


def judge(family: str, number: int, items: int, resamples: int, key: jax.Array) -> dict[str, Any]:
    """The worth of the voters of one set, true and estimated."""
    drawn = simulate_paper(family, 1000 + number, items)
    assert drawn.model is not None
    assert drawn.params is not None
    true = effective_number(drawn.model, drawn.params, key=jax.random.key(0))
    found = effective_voters(drawn.votes, key=key, resamples=resamples)
    return {
        "family": family,
        "true": true.by_information,
        "true by correlation": true.by_correlation,
        "estimate": found.number.by_information,
        "by correlation": found.number.by_correlation,
        "low": found.low,
        "high": found.high,
        "model": str(found.model),
    }


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 3000,
    resamples: int = 10,
    families: tuple[str, ...] = ("condInd", "Tree", "LG", "TG"),
) -> pd.DataFrame:
    del data  # everything is simulated
    out.mkdir(parents=True, exist_ok=True)
    kept, key = out / f"effective_voters_{items}.json", jax.random.key(seed)
    done = json.loads(kept.read_text()) if kept.exists() else {}
    for number, family in track_late([(n, family) for n in range(sets) for family in families], "Estimating"):
        if f"{family}/{number}" in done:
            continue
        done[f"{family}/{number}"] = judge(family, number, items, resamples, jax.random.fold_in(key, number))
        kept.write_text(json.dumps(done))
    frame = pd.DataFrame.from_dict(done, orient="index")
    frame["covered"] = (frame["low"] <= frame["true"]) & (frame["true"] <= frame["high"])
    frame["error"] = np.abs(frame["estimate"] - frame["true"])
    table = frame.groupby("family", sort=False).agg(
        sets=("covered", "size"),
        true=("true", "mean"),
        estimate=("estimate", "mean"),
        deviation=("estimate", "std"),
        largest_error=("error", "max"),
        covered=("covered", "sum"),
        true_by_correlation=("true by correlation", "mean"),
        by_correlation=("by correlation", "mean"),
    )
    write(out, "effective_voters_sets", table=frame)
    write(out, "effective_voters", table=table)
    return table


if __name__ == "__main__":
    run(main, __doc__)
