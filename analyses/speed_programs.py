"""Processor time of fitting programs: this code against another checkout of it, in one run.

    python analyses/speed_programs.py --data ROOT --before CHECKOUT --out DIR [--sets jury-0 cmc …] [--keys 3]

Every fit runs in a process of its own, first here and then with the checkout in front of the search path: once cold, so
that compilation is part of it, and once more with each key, warm. Rows that are in `programs.csv` already are not run
again. Log-likelihoods of models with a factor are evaluated by a finer quadrature than either side fits with.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SETS = ("jury-0", "cmc", "eucalyptus", "c2_boosting", "dog")
FRESH = tuple(f"fresh-{seed}" for seed in range(20))
METHODS = ("TreeMLE", "Confounder", "HierarchicalDawidSkene", "ItemDifficulty")


def jury(seed: int, num_items: int = 1200, num_voters: int = 7, num_classes: int = 3) -> np.ndarray:
    """Votes of a jury in which one judge repeats another on most items and one always says the same."""
    rng = np.random.default_rng(seed)
    labels, skill = rng.integers(num_classes, size=num_items), rng.uniform(0.55, 0.85, size=num_voters)
    guesses = rng.integers(num_classes, size=(num_items, num_voters))
    votes = np.where(rng.random(guesses.shape) < skill, labels[:, None], guesses)
    votes[:, 1] = np.where(rng.random(num_items) < 0.8, votes[:, 0], votes[:, 1])
    votes[:, -1] = 0
    return votes.astype(np.int8)


def fresh(seed: int) -> Any:
    """Votes of a program of one of five kinds with its own parameters, each with its own size."""
    import jax

    from latentens import simulate
    from latentens.models import Confounder, DawidSkene, HierarchicalDawidSkene, ItemDifficulty, Tree

    rng = np.random.default_rng(1000 + seed)
    voters, classes, items = int(rng.integers(5, 10)), int(rng.integers(2, 5)), int(rng.integers(300, 1500))
    groups = tuple(i % 3 for i in range(voters))
    makers = (
        lambda: Tree(groups, classes),
        lambda: Confounder(voters, classes),
        lambda: HierarchicalDawidSkene(voters, classes),
        lambda: ItemDifficulty(voters, classes),
        lambda: DawidSkene(voters, classes),
    )
    model = makers[seed % len(makers)]()
    params = model.example_params(jax.random.key(seed))
    return simulate(model, items, key=jax.random.key(2000 + seed), params=params).votes


def votes_of(name: str, root: Path | None) -> Any:
    from latentens import Votes
    from latentens.datasets import load

    kind, _, seed = name.partition("-")
    if kind == "jury":
        return Votes.from_matrix(jury(int(seed)), num_classes=3)
    if kind == "fresh":
        return fresh(int(seed))
    assert root is not None, "real sets need --data"
    file = root / "ensembles" / name / "votes.csv"
    return Votes.from_csv(file) if file.exists() else load(name, root=root).votes


def fit_all(name: str, method_name: str, keys: int, votes_file: Path) -> None:
    """Fit and print a line of JSON for each fit, the first one cold."""
    import jax

    import latentens.methods as methods
    import latentens.models as models
    from latentens import Votes, log_likelihood

    warnings.simplefilter("ignore")
    given = np.load(votes_file)
    votes = Votes.from_matrix(given["votes"], num_classes=int(given["classes"]))
    methods.MajorityVote().fit(votes, key=jax.random.key(0))
    if method_name == "TreeMLE":
        method = methods.TreeMLE()
    else:
        method = methods.MaximumLikelihood(getattr(models, method_name)(votes.num_voters, votes.num_classes))
    for number, key in enumerate([0, *range(keys)]):
        wall, processor = time.perf_counter(), time.process_time()
        fit = method.fit(votes, key=jax.random.key(key))
        row = {"set": name, "method": method_name, "key": key, "state": "cold" if number == 0 else "warm"}
        row |= {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
        height = fit.diagnostics.log_likelihood
        if hasattr(getattr(method, "model", None), "num_nodes"):
            height = log_likelihood(replace(method.model, num_nodes=1001), fit.params, votes)
        row |= {"log_likelihood": height, "items": votes.num_items}
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--before", type=Path, help="a checkout of the code to compare with")
    parser.add_argument("--out", type=Path, default=Path("out/speed_programs"))
    parser.add_argument("--sets", nargs="+", default=[*SETS, *FRESH])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for all fits of one method to one set")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        name, method, file = asked.worker
        fit_all(name, method, asked.keys, Path(file))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    table = asked.out / "programs.csv"
    rows = pd.read_csv(table).to_dict("records") if table.exists() else []
    here = Path(__file__).resolve().parents[1]
    sides = {"now": here} | ({"before": asked.before.resolve()} if asked.before else {})
    for name in asked.sets:
        votes = votes_of(name, asked.data)
        file = asked.out / "votes.npz"
        np.savez(file, votes=votes.matrix, classes=votes.num_classes)
        for method in asked.methods:
            for side, path in sides.items():
                if any((row["set"], row["method"], row["side"]) == (name, method, side) for row in rows):
                    continue
                command = [sys.executable, __file__, "--keys", str(asked.keys), "--worker", name, method, str(file)]
                environment = os.environ | {"PYTHONPATH": str(path)}
                try:
                    ran = subprocess.run(
                        command, env=environment, cwd=asked.out, capture_output=True, text=True, timeout=asked.limit
                    )
                    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
                except subprocess.TimeoutExpired as error:
                    text = (error.stdout or b"").decode()
                    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
                rows += [row | {"side": side, "load": os.getloadavg()[0]} for row in found]
                pd.DataFrame(rows).to_csv(table, index=False)
    summarise(pd.DataFrame(rows), asked.out)


def summarise(rows: pd.DataFrame, out: Path) -> None:
    """Ratios of processor time by set and method, and the difference in log-likelihood per item."""
    mean = rows.groupby(["set", "method", "state", "side"])["processor"].mean().unstack("side")
    if "before" not in mean:
        print(mean.round(2).to_string())
        return
    mean["ratio"] = mean["before"] / mean["now"]
    warm = rows[rows["state"] == "warm"].set_index(["set", "method", "key", "side"])
    height = warm["log_likelihood"].unstack("side")
    items = warm["items"].groupby(level=["set", "method", "key"]).first()
    gain = ((height["now"] - height["before"]) / items).rename("gain_per_item")
    best = height.groupby(level=["set", "method"]).max()
    best_gain = (best["now"] - best["before"]) / items.groupby(level=["set", "method"]).first()
    by_method = pd.DataFrame(
        {
            "worst_key": gain.groupby("method").min(),
            "share_worse": (gain < -1e-6).groupby("method").mean(),
            "share_better": (gain > 1e-6).groupby("method").mean(),
            "mean": gain.groupby("method").mean(),
            "worst_of_best_keys": best_gain.groupby("method").min(),
        }
    )
    mean.round(3).to_csv(out / "ratios.csv")
    gain.to_csv(out / "gains.csv")
    print(mean.round(2).to_string())
    print(mean["ratio"].groupby(["method", "state"]).describe()[["min", "50%", "max"]].round(2).to_string())
    print(by_method.to_string())


if __name__ == "__main__":
    main()
