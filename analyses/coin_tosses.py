"""Is there a signal at all? False alarms of the test on coin tosses, and its power on weak voters.

    python analyses/coin_tosses.py [--out DIR] [--seed 0] [--sets 100]

Coins are fair, uneven (each voter with a share of its own), tossed for a part of the items only, or have three sides;
a test at the level of 5 % should find a signal in 5 % of such sets. Weak voters are right with probability .55. Beside
the test stands what Dawid & Skene's model says of the fair coins.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run, write
from scipy.stats import binomtest

from latentens.checks import check_signal
from latentens.methods import DawidSkeneEM
from latentens.runtime.progress import track_late
from latentens.votes import Votes

COINS = {"fair": (0.5, 0.0, 2), "uneven": (0.0, 0.0, 2), "half missing": (0.5, 0.5, 2), "three classes": (0.5, 0.0, 3)}
"""Share of ones (0: each voter's own), share of missing votes, number of classes."""

WEAK = ((400, 8), (1000, 8), (400, 16), (2000, 8), (1000, 16))
"""Items and voters of the sets of weak voters."""


def toss(kind: str, num_items: int, num_voters: int, generator: np.random.Generator) -> Votes:
    """Votes that have nothing to do with the items."""
    share, missing, classes = COINS[kind]
    shares = generator.uniform(0.1, 0.9, num_voters) if share == 0 else share
    fair = generator.integers(classes, size=(num_items, num_voters))
    matrix = fair if classes > 2 else (generator.random((num_items, num_voters)) < shares).astype(int)
    return Votes.from_matrix(np.where(generator.random(matrix.shape) < missing, -1, matrix), num_classes=classes)


def weak(num_items: int, num_voters: int, generator: np.random.Generator, accuracy: float = 0.55) -> Votes:
    """Votes that are right with a probability little above one half."""
    labels = generator.integers(2, size=(num_items, 1))
    right = generator.random((num_items, num_voters)) < accuracy
    return Votes.from_matrix(np.where(right, labels, 1 - labels))


def main(data: Path | None, out: Path, seed: int, sets: int = 100, items: int = 400, voters: int = 8) -> pd.DataFrame:
    del data  # everything is simulated
    key, records = jax.random.key(seed), []
    settings = [("coin", kind, (items, voters)) for kind in COINS] + [("weak", "55 %", shape) for shape in WEAK]
    for source, kind, shape in track_late(settings, "Testing"):
        generator = np.random.default_rng([seed, *shape, len(records)])
        for number in range(sets):
            votes = toss(kind, *shape, generator) if source == "coin" else weak(*shape, generator)
            check = check_signal(votes, key=jax.random.fold_in(key, number), num_permutations=199)
            sure = np.nan
            if kind == "fair" and number < 20:  # enough to see what a fit makes of nothing
                sure = np.mean(DawidSkeneEM().fit(votes, key=key).label_probs.max(axis=1) > 0.99)
            records.append((source, kind, *shape, check.p_value, check.found, sure))
    columns = ["source", "kind", "items", "voters", "p_value", "found", "share above .99"]
    frame = pd.DataFrame(records, columns=columns)
    groups = frame.groupby(columns[:4], sort=False)
    table = groups.agg(found=("found", "mean"), sets=("found", "size"), sure=("share above .99", "mean"))
    ends = [binomtest(round(r.found * r.sets), int(r.sets)).proportion_ci(method="wilson") for r in table.itertuples()]
    write(out, "coin_tosses", table=table.assign(low=[e.low for e in ends], high=[e.high for e in ends]))
    return table


if __name__ == "__main__":
    run(main, __doc__)
