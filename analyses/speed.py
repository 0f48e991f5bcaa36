"""Every speed comparison of the project in one run, as ratios, with the load of the machine beside each.

    python analyses/speed.py --data ROOT [--out DIR] [--seed 0] [--small 1]

Writes `speed.csv` and `speed.png`. Both sides of a comparison run one after the other in this process, on the same
votes; a ratio above one means that this project is faster. *Cold* times include what is done once in a process,
compilation above all. `--small 1` takes small sizes. Needs the extras `funsor` and `test` (crowd-kit).
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
import pandas as pd
import speed_aggregators
import speed_nuts
import speed_rbm
import speed_tables
from common import run
from matplotlib import pyplot
from rich.console import Console
from scaling import load_per_core, sparse_votes

from latentens.datasets import load, simulate
from latentens.models import DawidSkene, TopDown, Tree
from latentens.rbm import rows_from_votes

matplotlib.use("agg")


class Comparison(NamedTuple):
    """Two times for the same work, and what was reached in them where that may differ."""

    what: str
    unit: str
    ours: float
    baseline: str
    theirs: float
    our_log_likelihood: float = np.nan
    their_log_likelihood: float = np.nan


def main(data: Path | None, out: Path, seed: int, small: int = 0) -> pd.DataFrame:
    quick, rows = bool(small), []
    for comparisons in (
        compare_tables(seed, quick),
        compare_rbm(data, seed),
        compare_aggregators(data, seed, quick),
        compare_nuts(seed, quick),
    ):
        for found in comparisons:
            rows.append(found._asdict() | {"ratio": found.theirs / found.ours, "load_per_core": load_per_core()})
            Console(soft_wrap=True).print(rows[-1], highlight=False)
    table = pd.DataFrame(rows)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "speed.csv", index=False)
    draw(table, out / "speed.png")
    Console(soft_wrap=True).print(table.to_string(index=False), highlight=False)
    return table


def compare_tables(seed: int, quick: bool) -> Iterator[Comparison]:
    times = speed_tables.main(2_000 if quick else 10_000, seed + 1, repeats=5)
    yield Comparison("gradient, layered graph 15-5-5-1", "ms", times["tables"], "NumPyro with funsor", times["funsor"])


def compare_rbm(data: Path | None, seed: int) -> Iterator[Comparison]:
    key = jax.random.key(seed)
    dataset = load("TG/1", root=data)
    stack = speed_rbm.time_stack(dataset, key)
    divergence = speed_rbm.time_divergence(dataset.votes, key)
    for state in ("cold", "warm"):
        name = f"RBM stack on TG/1, {state}"
        yield Comparison(name, "s", stack[state], "contrastive divergence as in the paper", divergence[state])
    race = speed_rbm.race_scikit_learn(dataset.votes.matrix, rows_from_votes(dataset.votes), key)
    yield Comparison(
        "RBM with 3 units on TG/1, to the same likelihood",
        "s",
        race["exact_seconds_warm"],
        "scikit-learn BernoulliRBM",
        race["scikit_learn_seconds"],
        race["exact_log_likelihood"],
        race["log_likelihood"],
    )


def compare_aggregators(data: Path | None, seed: int, quick: bool) -> Iterator[Comparison]:
    key = jax.random.key(seed)
    sparse = sparse_votes(10**4 if quick else 10**5, 7_000, seed)
    for name, votes in (("DREAM S1", load("S1", root=data).votes), (f"{len(sparse.triplets.vote):,} triplets", sparse)):
        ours, theirs = speed_aggregators.compare_with_crowdkit(votes, key)
        for state in ("cold", "warm"):
            yield Comparison(
                f"Dawid–Skene EM on {name}, {state}",
                "s",
                ours["cold_seconds" if state == "cold" else "seconds"],
                "crowd-kit",
                theirs["seconds"],  # in which nothing is done once
                ours["log_likelihood"],
                theirs["log_likelihood"],
            )


def compare_nuts(seed: int, quick: bool) -> Iterator[Comparison]:
    items, draws = (1_000, 30) if quick else (10_000, 50)
    settings = speed_nuts.Settings(chains=1, warmup=draws, draws=draws)
    for model, program in ((DawidSkene(), speed_nuts.dawid_skene), (Tree(), speed_nuts.tree_by_unit)):
        params = model.example_params(jax.random.key(seed))
        votes = simulate(model, items, key=jax.random.key(seed + 1), params=params).votes
        with jax.enable_x64(True):
            tables = speed_nuts.by_tables(model, votes, params, settings)
            funsor = speed_nuts.by_funsor(partial(program, model), votes, params, settings)
        for measure, name in (("cold_seconds", "cold"), ("seconds", "warm")):
            ours, theirs = (side[measure] / max(side["ess"], 1.0) for side in (tables, funsor))
            what = f"NUTS, {type(model).__name__}, {name}"
            yield Comparison(what, "s per effective draw", ours, "NumPyro with funsor", theirs)
    chain = TopDown(num_hidden=8)
    params = chain.example_params(jax.random.key(seed))
    votes = simulate(chain, items, key=jax.random.key(seed + 1), params=params).votes
    with jax.enable_x64(True):
        times = speed_nuts.gradient_milliseconds(chain, votes, params)
    yield Comparison(
        "one gradient of NUTS, TopDown with 8 hidden units",
        "ms",
        times["tables"],
        "NumPyro with funsor",
        times["funsor"],
    )


def draw(table: pd.DataFrame, path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(table)), layout="constrained")
    names = [f"{what}\nagainst {other}" for what, other in zip(table["what"], table["baseline"], strict=True)]
    bars = axes.barh(names[::-1], table["ratio"][::-1])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="times as fast")
    axes.margins(x=0.15)
    axes.tick_params(axis="y", labelsize=7)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    run(main, __doc__)
