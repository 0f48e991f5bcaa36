"""The far end: sparse crowds of many voters and classes, many distinct rows, and votes in files beyond memory.

    python analyses/scaling_sparse.py --out DIR [--seed 0] [--smallest 0] [--largest 1e9] [--axes …] [--methods …]

Writes `scaling_sparse.csv`. Every measurement is a process of its own, so that its peak of memory is its own. Data are
simulated; those of the axis `files` stand in Parquet files in DIR while they are measured. `--smallest` and
`--largest` bound the number of votes.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from scaling import dense_votes, load_per_core

from latentens.errors import LimitError
from latentens.inference.density import density_by_name
from latentens.inference.nuts_chains import gradient_seconds
from latentens.methods import DawidSkeneEM, Ebcc, Glad, MaximumLikelihood, Nuts, SpectralMetaLearner
from latentens.methods.base import Method
from latentens.methods.persistence import write_labels
from latentens.models import DawidSkene, HierarchicalDawidSkene
from latentens.programs.likelihood import observe
from latentens.programs.parameters import to_point
from latentens.runtime.numerics import double_precision
from latentens.votes import Triplets, Votes, count_votes_in

CLASSES, VOTES_AN_ITEM, FILE_VOTERS, MANY_VOTERS = 4, 5, 15, 40

METHODS: dict[str, Callable[[int], Method]] = {
    "DawidSkeneEM": lambda _: DawidSkeneEM(),
    "MaximumLikelihood(DawidSkene)": lambda voters: MaximumLikelihood(DawidSkene(voters, CLASSES)),
    "MaximumLikelihood(Hierarchical)": lambda voters: MaximumLikelihood(HierarchicalDawidSkene(voters, CLASSES)),
    "Glad": lambda _: Glad(),
    "Ebcc": lambda _: Ebcc(),
    "Nuts(DawidSkene)": lambda voters: Nuts(DawidSkene(voters, CLASSES)),
    "Nuts(Hierarchical)": lambda voters: Nuts(HierarchicalDawidSkene(voters, CLASSES)),
}


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sizes: tuple[float, float],
    axes: Container[str] | None = None,
    methods: Container[str] | None = None,
) -> None:
    del data  # all data are simulated
    out.mkdir(parents=True, exist_ok=True)
    cells = [cell | {"seed": seed, "out": str(out)} for cell in plan() if sizes[0] <= cell["votes"] <= sizes[1]]
    cells = [
        cell for cell in cells if (not axes or cell["axis"] in axes) and (not methods or cell["method"] in methods)
    ]
    rows = []
    for cell in track(cells, description="scaling"):
        rows.append(measure(cell))
        table = pd.DataFrame(rows).drop(columns="out")
        table.to_csv(out / "scaling_sparse.csv", index=False)
    Console(soft_wrap=True).print(table.to_string(index=False), highlight=False)


def plan() -> list[dict[str, Any]]:
    """What is measured: the axis, the number of items and voters, and what is run."""
    cells: list[dict[str, Any]] = [
        {"axis": "crowd", "items": items, "voters": voters, "method": name, "votes": VOTES_AN_ITEM * items}
        for items, voters in ((10**5, 10**3), (10**6, 10**4))
        for name in METHODS
    ]
    cells += [
        {"axis": "rows", "items": n, "voters": MANY_VOTERS, "method": "SpectralMetaLearner", "votes": MANY_VOTERS * n}
        for n in (10**6, 10**7)
    ]
    for votes in (10**7, 10**8, 10**9):
        shape = {"axis": "files", "items": votes // FILE_VOTERS, "voters": FILE_VOTERS, "votes": votes}
        cells += [shape | {"method": name} for name in ("count and DawidSkeneEM", "write labels")]
    cells += [
        {"axis": "communication", "items": 10**5, "voters": voters, "method": "gradient", "votes": 5 * 10**5}
        for voters in (100, 1000)
    ]
    return cells


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in a process of its own; files are there only meanwhile."""
    folder = Path(cell["out"]) / "votes"
    if cell["axis"] == "files":
        write_votes(folder, cell["items"], cell["seed"])
    devices = 2 if cell["axis"] == "communication" else 1
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    lines = done.stdout.splitlines() or [json.dumps({"error": done.stderr.strip().splitlines()[-1:]})]
    return cell | json.loads(lines[-1]) | {"load_per_core": load_per_core()}


def run_cell(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["axis"] == "communication":
        return communication(cell)
    work = {"crowd": fit_crowd, "rows": fit_rows, "files": read_files}[cell["axis"]](cell)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    before = peak_mib()
    start, start_cpu = time.perf_counter(), time.process_time()
    try:
        found = work()
    except LimitError as error:
        found = {"refused": str(error)}
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - start_cpu,
        "mib_beyond_input": peak_mib() - before,
        **found,
    }


def peak_mib() -> float:
    """The most memory of this process so far; that of resource usage may be its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def fit_crowd(cell: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    votes, labels = crowd(cell["items"], cell["voters"], cell["seed"])

    def work() -> dict[str, Any]:
        fit = METHODS[cell["method"]](cell["voters"]).fit(votes, key=jax.random.key(cell["seed"]))
        names = ("iterations", "converged", "log_likelihood", "evidence_bound", "log_posterior")
        return {name: fit.diagnostics.get(name) for name in names} | {"accuracy": float((fit.codes == labels).mean())}

    return work


def fit_rows(cell: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    votes = dense_votes(cell["items"], cell["voters"], cell["seed"])

    def work() -> dict[str, Any]:
        SpectralMetaLearner().fit(votes, key=jax.random.key(cell["seed"]))
        return {"distinct": len(votes.patterns.counts)}

    return work


def read_files(cell: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    folder, key = Path(cell["out"]) / "votes", jax.random.key(cell["seed"])
    if cell["method"] == "write labels":
        fit = DawidSkeneEM().fit(count_votes_in(next(folder.iterdir())), key=key)

    def work() -> dict[str, Any]:
        if cell["method"] == "write labels":
            written = folder.parent / "labels.parquet"
            write_labels(fit, folder, written)
            size = written.stat().st_size
            written.unlink()
            return {"bytes": size}
        counted = count_votes_in(folder)
        fitted = DawidSkeneEM().fit(counted, key=key)
        size = sum(path.stat().st_size for path in folder.iterdir())
        return {
            "distinct": len(counted.counts),
            "bytes": size,
            "fit_seconds": fitted.diagnostics.seconds,
            "log_likelihood": fitted.diagnostics.log_likelihood,
        }

    return work


def crowd(num_items: int, num_voters: int, seed: int) -> tuple[Votes, np.ndarray]:
    """Triplets for four classes: five different voters on each item, right with probabilities between .4 and .95."""
    generator = np.random.default_rng(seed)
    accuracy = generator.uniform(0.4, 0.95, num_voters)
    shape, stride = (num_items, VOTES_AN_ITEM), num_voters // VOTES_AN_ITEM
    voter = generator.integers(0, stride, shape, dtype=np.int32) + stride * np.arange(VOTES_AN_ITEM, dtype=np.int32)
    labels = generator.choice(CLASSES, num_items, p=(0.4, 0.3, 0.2, 0.1))[:, None]
    right = generator.random(shape) < accuracy[voter]
    vote = np.where(right, labels, (labels + generator.integers(1, CLASSES, shape)) % CLASSES).astype(np.int8)
    item = np.repeat(np.arange(num_items, dtype=np.int32), VOTES_AN_ITEM)
    return Votes(Triplets(item, voter.ravel(), vote.ravel()), num_items, num_voters, CLASSES), labels[:, 0]


def write_votes(folder: Path, num_items: int, seed: int, rows_a_file: int = 10**7) -> None:
    """Wide Parquet files, one column per voter, a tenth of the votes missing in the last third of the voters."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, num_items, rows_a_file)):
        matrix = dense_votes(min(rows_a_file, num_items - first), FILE_VOTERS, seed + number).matrix
        generator, columns = np.random.default_rng(seed + number), {}
        for voter in range(FILE_VOTERS):
            gaps = generator.random(len(matrix), dtype=np.float32) < 0.1 if voter >= 2 * FILE_VOTERS // 3 else None
            columns[f"voter{voter}"] = pyarrow.array(matrix[:, voter].copy(), mask=gaps)
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"part{number}.parquet", row_group_size=2**20)


@double_precision
def communication(cell: dict[str, Any]) -> dict[str, Any]:
    """Bytes that devices exchange for one likelihood with gradient, read off the compiled program."""
    votes, _ = crowd(cell["items"], cell["voters"], cell["seed"])
    model = DawidSkene(cell["voters"], CLASSES)
    observations, _ = observe(model, votes)
    point = to_point(model, model.example_params(jax.random.key(cell["seed"])))
    gradient = jax.jit(jax.value_and_grad(lambda at, seen: density_by_name(model, seen, at)))
    compiled = gradient.lower(point, observations).compile()
    text = compiled.as_text()
    jax.block_until_ready(compiled(point, observations))
    start = time.process_time()
    jax.block_until_ready([compiled(point, observations) for _ in range(10)])
    seconds = (time.process_time() - start) / 10
    sizes = [
        exchanged(line) for line in text.splitlines() if re.search(r"= .*\b(all-reduce|all-gather)(-start)?\(", line)
    ]
    return {
        "cpu_seconds": seconds,
        "bytes": sum(sizes),
        "parameters": sum(np.size(value) for value in point.values()),
        "exchanges": len(sizes),
        "estimated_seconds": gradient_seconds(model, observations),
    }


def exchanged(line: str) -> int:
    """Bytes of the result of an instruction, such as `(f64[4,100,4]{2,1,0}, f64[]) all-reduce(…)`."""
    result = re.split(r"\ball-(?:reduce|gather)", line.split("=", 1)[1])[0]
    widths = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "pred": 1}
    shapes = re.findall(r"(f64|s64|f32|s32|pred)\[([\d,]*)\]", result)
    return sum(
        widths[kind] * int(np.prod([int(n) for n in shape.split(",") if n], dtype=int)) for kind, shape in shapes
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/scaling_sparse"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=float, default=1e9)
    parser.add_argument("--axes", nargs="+", help="crowd, rows, files, communication; by default all")
    parser.add_argument("--methods", nargs="+", help="as in the table, such as Glad; by default all")
    parser.add_argument("--smallest", type=float, default=0)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(run_cell(json.loads(arguments.cell))))
    else:
        sizes = arguments.smallest, arguments.largest
        main(arguments.data, arguments.out, arguments.seed, sizes, arguments.axes, arguments.methods)
