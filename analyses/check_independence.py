"""False alarms and power of the check of conditional independence.

    python analyses/check_independence.py [--data ROOT] [--out DIR] [--seed 0] [--simulations 50]

Writes a table of all sets, one of the p-value of every pair of voters, and a summary. Votes of condInd come from the
model that is checked: its share of rejections should be the level of 5 %, and the p-values of its pairs should be
uniform. ROOT is the folder of the authors' files; without it, or where a set is not there, simulated sets are
checked only.
"""

import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from common import run
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest, kstest

from latentens.checks import check_independence
from latentens.datasets import Dataset, load, simulate_paper
from latentens.errors import DataNotFoundError

DEPENDENT = ("Tree", "TG", "LG")
TREE_GROUPS = (tuple(range(5)), tuple(range(5, 10)), tuple(range(10, 15)))
NUM_DEPENDENT = 5


def main(data: Path | None, out: Path, seed: int, simulations: int = 50) -> pd.DataFrame:
    numbers = range(1, NUM_DEPENDENT + 1)
    sets = [("simulated", f"{family}/{number}") for family in DEPENDENT for number in numbers]
    sets += [("authors", f"{family}/{number}") for family in ("condInd", *DEPENDENT) for number in numbers if data]
    sets += [("simulated", f"condInd/{number}") for number in range(1, simulations + 1)]
    out.mkdir(parents=True, exist_ok=True)
    lines, pairs = [], []
    for source, name in track(sets, description="checking", console=Console(stderr=True)):
        if (dataset := find(source, name, data)) is None:
            continue
        line, p_values = check(dataset, jax.random.fold_in(jax.random.key(seed), len(lines)))
        lines.append({"source": source, "data": name, **line})
        pairs += [{"source": source, "data": name, "p_value": p_value} for p_value in p_values]
        checks, pair_table = pd.DataFrame(lines), pd.DataFrame(pairs)
        checks.to_csv(out / "check_independence_sets.csv", index=False)  # after every set: it outlasts an interruption
        pair_table.to_csv(out / "check_independence_pairs.csv", index=False)
    report(checks, pair_table).to_csv(out / "check_independence.csv", index=False)
    return checks


def find(source: str, name: str, data: Path | None) -> Dataset | None:
    family, number = name.split("/")
    try:
        return simulate_paper(family, int(number)) if source == "simulated" else load(name, root=data)
    except DataNotFoundError:
        return None


def check(dataset: Dataset, key: jax.Array) -> tuple[dict, np.ndarray]:
    start = time.perf_counter()
    found = check_independence(dataset.votes, key=key)
    line = {
        "p_value": found.p_value,
        "rejected": found.rejected,
        "significant_pairs": len(found.dependent_pairs),
        "groups": " ".join("+".join(map(str, group)) for group in found.groups),
        "tree_groups": found.groups == TREE_GROUPS,
        "all_voters": len(found.groups) == 1 and len(found.groups[0]) == dataset.votes.num_voters,
        "seconds": time.perf_counter() - start,
    }
    return line, found.pair_p_values[np.triu(found.checked)]


def report(checks: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    families = checks.assign(family=checks["data"].str.partition("/")[0], sets=1).groupby(["source", "family"])
    table = families[["sets", "rejected", "tree_groups", "all_voters"]].sum().reset_index()
    print(table)
    own, own_pairs = (
        table[(table["source"] == "simulated") & table["data"].str.startswith("condInd")] for table in (checks, pairs)
    )
    low, high = binomtest(int(own["rejected"].sum()), len(own)).proportion_ci(0.95)
    print(f"false alarms {own['rejected'].mean():.3f} (95 % interval {low:.3f} to {high:.3f}) at level 0.05")
    print(f"overall p-values uniform: Kolmogorov–Smirnov p = {kstest(own['p_value'], 'uniform').pvalue:.2f}")
    shares = [f"{(own_pairs['p_value'] <= level).mean():.4f} up to {level}" for level in (0.01, 0.05, 0.5)]
    print(f"p-values of {len(own_pairs):,} pairs: {', '.join(shares)}")
    print(f"seconds per check, median {checks['seconds'].median():.1f}")
    return table


if __name__ == "__main__":
    run(main, __doc__)
