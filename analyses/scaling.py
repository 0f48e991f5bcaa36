"""Time and memory against the numbers of items, votes, voters, hidden units and devices, and the physical limits.

    python analyses/scaling.py --out DIR [--seed 0] [--largest 2e7] [--axes items votes voters ...]

Writes `scaling.csv`, `scaling_limits.csv` and `scaling.png`. Every measurement is a process of its own, so that its
peak of memory is its own; data are simulated, so that no files are needed. `--largest` bounds the number of votes,
`--axes` what is varied. The column `ratio` is the processor time over that of the smallest size of the same axis and
method, `estimated_ratio` what the machines' own estimate of their cost says of it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pandas as pd
import psutil
from matplotlib import pyplot
from rich.console import Console
from rich.progress import track

from latentens.errors import LimitError
from latentens.inference.independent import VotePrior, count_rows, expectation, maximisation
from latentens.methods import DawidSkeneEM, MajorityVote, MaximumLikelihood, RBMStack, SpectralMetaLearner
from latentens.methods.dawid_skene_em import random_estimates
from latentens.models import DawidSkene
from latentens.rbm import Machine, Units, rows_from_votes
from latentens.rbm.exact import LogLikelihood, log_partition_slopes
from latentens.rbm.rows import RowSizes
from latentens.votes import Triplets, Votes

matplotlib.use("agg")

METHODS: dict[str, Callable[[int], Any]] = {
    "MajorityVote": lambda _: MajorityVote(),
    "DawidSkeneEM": lambda _: DawidSkeneEM(),
    "SpectralMetaLearner": lambda _: SpectralMetaLearner(),
    "MaximumLikelihood": lambda num_voters: MaximumLikelihood(DawidSkene(num_voters), starts=1, max_iterations=30),
}

VOTES_AN_ITEM = 5


def main(data: Path | None, out: Path, seed: int, largest: float, axes: list[str] | None = None) -> None:
    del data  # all data are simulated
    cells = [cell | {"seed": seed} for cell in plan() if cell.get("votes", 0) <= largest]
    cells = [cell for cell in cells if not axes or cell["axis"] in axes]
    table = with_ratios(pd.DataFrame([measure(cell) for cell in track(cells, description="scaling")]))
    limits = {"refused": refusals(seed)} | physical_limits(min(10**7, int(largest) // 15), seed)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "scaling.csv", index=False)
    words = pd.Series({name: value for name, value in limits.items() if name != "refused"}, name="value", dtype=float)
    words.rename_axis("limit").to_csv(out / "scaling_limits.csv")
    draw(table, out / "scaling.png")
    Console(soft_wrap=True).print(f"{table.to_string(index=False)}\n{json.dumps(limits, indent=1)}", highlight=False)


def plan() -> list[dict[str, Any]]:
    """What is measured: the axis that varies, its value, and what is run."""
    cells: list[dict[str, Any]] = [
        {"axis": "items", "size": n, "method": name, "votes": 15 * n}
        for n in (10**4, 10**5, 10**6, 10**7)
        for name in METHODS
    ]
    cells += [{"axis": "votes", "size": n, "method": "DawidSkeneEM", "votes": n} for n in (10**6, 10**7, 10**8)]
    cells += [
        {"axis": "votes", "size": 5 * 10**6, "method": name, "votes": 5 * 10**6}
        for name in ("MajorityVote", "SpectralMetaLearner", "MaximumLikelihood")
    ]
    cells += [
        {"axis": "voters", "size": d, "method": name, "votes": 10**4 * d}
        for d in (10, 100, 1000)
        for name in ("DawidSkeneEM", "SpectralMetaLearner")
    ]
    cells += [
        {"axis": "hidden units", "size": m, "method": f"log Z and gradient, {classes} classes", "classes": classes}
        for classes, sizes in ((2, (4, 12, 20)), (3, (2, 8, 12)), (4, (2, 8, 10)))
        for m in sizes
    ]
    cells += [
        {"axis": "hidden units, gaps", "size": m, "method": f"rows with gaps, {classes} classes", "classes": classes}
        for classes, sizes in ((2, (1, 2, 4, 6)), (3, (1, 2, 3, 4)), (4, (1, 2, 3)))
        for m in sizes
    ]
    cells += [{"axis": "devices", "size": k, "method": "MaximumLikelihood", "votes": 10**6} for k in (1, 2, 4)]
    return cells


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    devices = cell["size"] if cell["axis"] == "devices" else 1
    flags = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() or [json.dumps({"error": done.stderr.strip().splitlines()[-1:]})]
    return cell | json.loads(lines[-1]) | {"load_per_core": load_per_core()}


def load_per_core() -> float:
    return os.getloadavg()[0] / (psutil.cpu_count() or 1)


def run_cell(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["axis"].startswith("hidden units"):
        gaps = 2000 if cell["axis"].endswith("gaps") else 0
        return run_enumeration(cell["size"], cell["classes"], gaps, cell["seed"])
    votes = make_votes(cell)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, start_cpu = time.perf_counter(), time.process_time()
    fit = METHODS[cell["method"]](votes.num_voters).fit(votes, key=jax.random.key(cell["seed"]))
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "mib_beyond_input": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "iterations": fit.diagnostics.get("iterations"),
        "log_likelihood": fit.diagnostics.get("log_likelihood"),
    }


def run_enumeration(num_hidden: int, num_classes: int, gaps: int, seed: int) -> dict[str, Any]:
    """The normaliser of a machine with 24 voters, or the likelihood of rows with gaps, and its gradient, compiled."""
    units = Units(num_classes)
    visible, hidden = 24 * units.width, num_hidden * units.width
    generator = np.random.default_rng(seed)
    rows = rows_from_votes(Votes.from_matrix(generator.integers(-1, num_classes, (max(gaps, 1), 24))))

    likelihood = LogLikelihood(rows, num_hidden)
    machine = Machine(*(generator.normal(size=size) for size in ((visible, hidden), visible, hidden)), units, units)

    def evaluate() -> None:
        if gaps:
            likelihood.loss(likelihood.flat(machine))
        else:
            log_partition_slopes(machine)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    evaluate()
    start, start_cpu = time.perf_counter(), time.process_time()
    for _ in range(5):
        evaluate()
    seconds, cpu = (time.perf_counter() - start) / 5, (time.process_time() - start_cpu) / 5
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sizes = rows.sizes if gaps else RowSizes(1, 24, num_classes, num_classes, gaps=False, num_votes=24)
    entries = sizes.entries(num_hidden)
    return {"seconds": seconds, "cpu_seconds": cpu, "mib_beyond_input": grown, "entries": entries}


def with_ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Times over those of the smallest size of the same axis and method, measured and estimated."""
    for name, value in (("ratio", "cpu_seconds"), ("estimated_ratio", "entries")):
        if value in table:
            table[name] = table[value] / table.groupby(["axis", "method"])[value].transform("first")
    return table


def refusals(seed: int) -> list[str]:
    """What is said of a crowd that gets one unit, and of machines that are too large for time and for memory."""
    crowd = sparse_votes(20_000, 760, seed)
    words = RBMStack().fit(crowd, key=jax.random.key(seed)).diagnostics.notes
    for variable, limit, hidden in (("LATENTENS_SECONDS", "60", (8, 1)), ("LATENTENS_MEMORY", "10MiB", (3, 1))):
        os.environ[variable] = limit
        try:
            RBMStack(hidden=hidden).fit(crowd, key=jax.random.key(seed))
        except LimitError as error:
            words.append(str(error))
        del os.environ[variable]
    return words


def make_votes(cell: dict[str, Any]) -> Votes:
    if cell["axis"] in ("votes", "devices"):
        return sparse_votes(cell["votes"] // VOTES_AN_ITEM, 10**4 if cell["axis"] == "votes" else 100, cell["seed"])
    shape = (cell["size"], 15) if cell["axis"] == "items" else (10**4, cell["size"])
    return dense_votes(*shape, cell["seed"])


def dense_votes(num_items: int, num_voters: int, seed: int) -> Votes:
    """Votes of voters who are right with probabilities between .55 and .95."""
    generator = np.random.default_rng(seed)
    accuracy = generator.uniform(0.55, 0.95, num_voters).astype(np.float32)
    matrix = np.empty((num_items, num_voters), dtype=np.int8)
    for start in range(0, num_items, 2**16):
        part = matrix[start : start + 2**16]
        labels = generator.random((len(part), 1), dtype=np.float32) < 0.4
        part[:] = labels == (generator.random(part.shape, dtype=np.float32) < accuracy)
    return Votes.from_matrix(matrix, num_classes=2)


def sparse_votes(num_items: int, num_voters: int, seed: int) -> Votes:
    """Triplets of such voters, five different ones at random on each item."""
    generator = np.random.default_rng(seed)
    accuracy = generator.uniform(0.55, 0.95, num_voters).astype(np.float32)
    size = num_items * VOTES_AN_ITEM
    item = np.repeat(np.arange(num_items, dtype=np.int32), VOTES_AN_ITEM)
    voter, vote = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int8)
    stride = num_voters // VOTES_AN_ITEM  # one voter of each fifth, so that nobody votes twice
    for start in range(0, num_items, 2**18):
        shape = min(2**18, num_items - start), VOTES_AN_ITEM
        place = slice(start * VOTES_AN_ITEM, (start + shape[0]) * VOTES_AN_ITEM)
        chosen = generator.integers(0, stride, shape, dtype=np.int32) + stride * np.arange(
            VOTES_AN_ITEM, dtype=np.int32
        )
        labels = generator.random((shape[0], 1), dtype=np.float32) < 0.4
        voter[place] = chosen.ravel()
        vote[place] = (labels == (generator.random(shape, dtype=np.float32) < accuracy[chosen])).ravel()
    return Votes(Triplets(item, voter, vote), num_items, num_voters, 2)


def physical_limits(num_items: int, seed: int) -> dict[str, float]:
    """An iteration of EM on distinct rows against one pass over the votes, a matrix product against the peak."""
    generator = np.random.default_rng(seed)
    votes = Votes.from_matrix(generator.integers(-1, 2, (num_items, 15), dtype=np.int8), num_classes=2)
    copy = np.empty_like(votes.matrix)
    stream = best_of(lambda: np.copyto(copy, votes.matrix), 5)
    prior = VotePrior.of_counts(np.full((2, 2), 0.01))
    results = {"stream_seconds": stream, "stream_gib_per_second": 2 * copy.nbytes / stream / 2**30}
    for name, some in (("distinct", votes), ("binary", dense_votes(num_items, 15, seed))):
        data = count_rows(*some.patterns[:2])
        estimates = random_estimates(generator, 1, 15, 2, 2)
        seconds = best_of(lambda: maximisation(expectation(data, estimates), prior), 10)  # noqa: B023
        results |= {f"{name}_rows": len(some.patterns.counts), f"{name}_iteration_seconds": seconds}
        results[f"{name}_iteration_over_stream"] = seconds / stream
    return results | product_limits(seed)


def product_limits(seed: int) -> dict[str, float]:
    """Floating-point operations a second: a product with tables (32 states, 30 votes, 8,192 rows) and a square one."""
    generator = np.random.default_rng(seed)
    results = {}
    with jax.enable_x64(True):
        product = jax.jit(jnp.matmul)
        for name, shape in (("tables", (32, 30, 8192)), ("square", (1024, 1024, 1024))):
            left, right = (jnp.asarray(generator.normal(size=s)) for s in (shape[:2], shape[1:]))
            jax.block_until_ready(product(left, right))
            seconds = best_of(lambda: jax.block_until_ready(product(left, right)), 10)  # noqa: B023
            results[f"{name}_gflops"] = 2 * np.prod(shape) / seconds / 1e9
    return results


def best_of(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def draw(table: pd.DataFrame, path: Path) -> None:
    axes_names = list(dict.fromkeys(table["axis"]))
    size = 3.2 * len(axes_names), 6
    figure, panels = pyplot.subplots(2, len(axes_names), figsize=size, layout="constrained", squeeze=False)
    for column, axis in enumerate(axes_names):
        for row, (value, unit) in enumerate((("seconds", "seconds"), ("mib_beyond_input", "MiB beyond the input"))):
            for method, part in table[table["axis"] == axis].groupby("method", sort=False):
                shown = part[["size", value]].clip(lower=1e-3).sort_values("size")
                panels[row, column].loglog(shown["size"], shown[value], "o-", label=method)
            scale = "linear" if axis.startswith(("hidden units", "devices")) else "log"
            panels[row, column].set(xlabel=axis, ylabel=unit if column == 0 else "", xscale=scale)
        panels[0, column].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/scaling"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=float, default=2e7)
    parser.add_argument(
        "--axes",
        nargs="+",
        default=["items", "votes", "voters", "hidden units"],
        help="such as 'hidden units' and 'hidden units, gaps'; by default four",
    )
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell))))
    else:
        main(arguments.data, arguments.out, arguments.seed, arguments.largest, arguments.axes)
