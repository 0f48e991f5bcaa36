"""The times of fits in two checkouts, side by side: what a refactoring costs.

    python analyses/speed_checkouts.py BEFORE [AFTER] [--repeats 3] [--out DIR]

Each checkout fits the same votes, drawn by NumPy, in processes of its own, which take turns; compiled programs are not
kept between them. *Cold* is the first fit of a process, *warm* the least of two later ones, in processor seconds. A
ratio above one means that AFTER is slower; it is the median over the repeats. Writes `speed_checkouts.csv`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

FITS = {
    "MajorityVote, 10,000 x 15": ("dense", "methods.MajorityVote()"),
    "SpectralMetaLearner, 10,000 x 15": ("dense", "methods.SpectralMetaLearner()"),
    "DawidSkeneEM(4, 1), 10,000 x 15": ("dense", "methods.DawidSkeneEM(4.0, 1.0)"),
    "Ebcc, 10,000 x 15": ("dense", "methods.Ebcc()"),
    "Glad, 10,000 x 15": ("dense", "methods.Glad()"),
    "Cubam, 10,000 x 15": ("dense", "methods.Cubam()"),
    "LatentSpectral, 10,000 x 15": ("dense", "methods.LatentSpectral()"),
    "RBMStack, 10,000 x 15": ("dense", "methods.RBMStack()"),
    "MaximumLikelihood(DawidSkene), 10,000 x 15": ("dense", "methods.MaximumLikelihood(models.DawidSkene(15))"),
    "MaximumLikelihood(Tree), 10,000 x 15": ("dense", "methods.MaximumLikelihood(models.Tree())"),
    "Nuts(DawidSkene), 10,000 x 15": (
        "dense",
        "methods.Nuts(models.DawidSkene(15), num_chains=2, num_warmup=100, num_samples=100)",
    ),
    "DawidSkeneEM(4, 1), 97,000 votes": ("crowd", "methods.DawidSkeneEM(4.0, 1.0)"),
    "Ebcc, 97,000 votes": ("crowd", "methods.Ebcc()"),
    "Glad, 97,000 votes": ("crowd", "methods.Glad()"),
    "MaximumLikelihood(DawidSkene), 97,000 votes": (
        "crowd",
        "methods.MaximumLikelihood(models.DawidSkene(762, num_classes=3))",
    ),
}
"""Votes and method of each fit, as written in both checkouts."""

PROBE = """
import json, time
import jax, numpy as np
import latentens as le
from latentens import methods, models
rng = np.random.default_rng(0)
def dense():
    label = rng.integers(0, 2, (10_000, 1))
    opinion = np.where(rng.random((10_000, 3)) < .9, label, 1 - label)[:, np.arange(15) // 5]
    return le.Votes.from_matrix(np.where(rng.random((10_000, 15)) < rng.uniform(.6, 1, 15), opinion, 1 - opinion))
def crowd():
    label, skill = rng.integers(0, 3, 19_400), rng.beta(4, 2, 762)
    item = np.repeat(np.arange(19_400), 5)
    voter = np.argsort(rng.random((19_400, 762)), axis=1)[:, :5].ravel()
    vote = np.where(rng.random(len(item)) < skill[voter], label[item], rng.integers(0, 3, len(item)))
    return le.Votes.from_long(dict(item=item, voter=voter, vote=vote))
votes, method = {votes}(), {method}
seconds = []
for number in range(3):
    start = time.process_time()
    method.fit(votes, key=jax.random.key(number))
    seconds.append(time.process_time() - start)
print(json.dumps({{"cold": seconds[0], "warm": min(seconds[1:])}}))
"""


def seconds_in(checkout: Path, votes: str, method: str) -> dict[str, float]:
    """Cold and warm seconds of one fit in a new process of a checkout; NaN where it has no such method."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "LATENTENS_CACHE": "off"}
    probe = PROBE.format(votes=votes, method=method)
    command = [sys.executable, "-c", probe]  # in the checkout: Python looks in the present folder first
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(checkout, done.stderr.strip().rpartition("\n")[2], file=sys.stderr)
        return {"cold": float("nan"), "warm": float("nan")}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/speed_checkouts"))
    given = parser.parse_args()
    rows = []
    for fit, (votes, method) in FITS.items():
        runs = pd.DataFrame(
            seconds_in(checkout.resolve(), votes, method) | {"side": side}
            for _ in range(given.repeats)
            for side, checkout in (("before", given.before), ("after", given.after))
        )
        before, after = (runs[runs["side"] == side].drop(columns="side").median() for side in ("before", "after"))
        row = {f"{when}, seconds": round(float(after[when]), 3) for when in before.index}
        row |= {f"{when}, ratio": round(float(after[when] / before[when]), 2) for when in before.index}
        rows.append({"fit": fit} | row)
        print(rows[-1], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(given.out / "speed_checkouts.csv", index=False)


if __name__ == "__main__":
    main()
