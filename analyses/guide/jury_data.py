"""A simulated jury of five LLM judges: `python -m analyses.guide.jury_data FOLDER` writes judges.csv and gold.csv.

The second judge copies the first on six of ten items, the last one guesses, a tenth of the votes is missing, and the
true answers of 200 of the 1,000 items are known.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

JUDGES = ("atlas", "atlas-mini", "boreal", "cirrus", "dune")
ACCURACY = (0.88, 0.80, 0.85, 0.72, 0.52)


def jury(num_items: int = 1000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Votes, one column per judge with gaps, and the truth of every item."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, num_items)
    right = rng.random((num_items, len(JUDGES))) < ACCURACY
    right[:, 1] = np.where(rng.random(num_items) < 0.6, right[:, 0], right[:, 1])
    votes = np.where(right, truth[:, None], 1 - truth[:, None])
    votes[rng.random(votes.shape) < 0.1] = -1
    words = np.array(["fail", "pass", None], dtype=object)
    items = pd.Index([f"q{number}" for number in range(num_items)], name="item")
    return pd.DataFrame(words[votes], columns=list(JUDGES), index=items), pd.Series(words[truth], items, name="gold")


def write_jury(folder: str | Path, num_items: int = 1000, num_gold: int = 200) -> None:
    """Write the votes, and the truth of some items drawn at random."""
    votes, truth = jury(num_items)
    votes.to_csv(Path(folder) / "judges.csv")
    truth.sample(num_gold, random_state=0).to_csv(Path(folder) / "gold.csv")


if __name__ == "__main__":
    write_jury(sys.argv[1])
