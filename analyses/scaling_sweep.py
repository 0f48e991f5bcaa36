"""The sweep on a Dask cluster: throughput against workers, overhead of scheduling, a lost worker, a lost scheduler.

    python analyses/scaling_sweep.py --out DIR [--seed 0] [--cells 10000] [--fits 60] [--parts overhead throughput ...]

Writes `scaling_sweep.csv`. The cluster is one of processes on this machine. Cells of the overhead are so small that
scheduling is most of their time; those of the throughput are fits of Dawid & Skene's model.
"""

import argparse
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pandas as pd
import psutil
from distributed import Client, LocalCluster
from rich.console import Console
from scaling import load_per_core

from latentens.comparison.cell import Cell
from latentens.comparison.sweep import cells_of, run_cells
from latentens.datasets import simulate
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.models import DawidSkene

Row = dict[str, Any]


def main(data: Path | None, out: Path, seed: int, cells: int, fits: int, parts: Container[str] | None = None) -> None:
    del data  # all data are simulated
    rows: list[Row] = []
    for name, measure in PARTS.items():
        if parts is None or name in parts:
            rows += [{"part": name, **row, "load_per_core": load_per_core()} for row in measure(seed, cells, fits)]
    out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows)
    table.to_csv(out / "scaling_sweep.csv", index=False)
    Console(soft_wrap=True).print(table.to_string(index=False), highlight=False)


def overhead(seed: int, cells: int, fits: int) -> Iterator[Row]:
    """Trivial cells here and on one worker."""
    del fits
    work = trivial_cells(cells, seed)
    yield {"workers": 0, "cells": cells, **timed(lambda: run_cells(work))}
    with cluster(1) as client:
        run_cells(work[:2], client=client)  # imports and compiles
        yield {"workers": 1, "cells": cells, **timed(lambda: run_cells(work, client=client))}


def throughput(seed: int, cells: int, fits: int) -> Iterator[Row]:
    """Fits here and on one and two workers."""
    del cells
    work = fitted_cells(fits, seed)
    yield {"workers": 0, "cells": fits, **timed(lambda: run_cells(work))}
    for workers in (1, 2):
        with cluster(workers) as client:
            run_cells(fitted_cells(2 * workers, seed + 1), client=client)
            yield {"workers": workers, "cells": fits, **timed(lambda: run_cells(work, client=client))}


def lost_worker(seed: int, cells: int, fits: int) -> Iterator[Row]:
    """Of two workers one is killed when a fifth of the cells is done."""
    del cells
    with cluster(2) as client:
        victim = next(iter(client.run(os.getpid).values()))

        def watch(done: int, number: int) -> None:
            if done == number // 5:
                os.kill(victim, signal.SIGKILL)

        row = timed(lambda: run_cells(fitted_cells(fits, seed), client=client, on_progress=watch))
        yield {"workers": 2, "cells": fits, **row}


def lost_scheduler(seed: int, cells: int, fits: int) -> Iterator[Row]:
    """The cluster ends when a fifth of the cells is done, and another one resumes from the store."""
    del cells
    work = fitted_cells(fits, seed)
    with tempfile.TemporaryDirectory() as store:
        with cluster(2) as client:

            def watch(done: int, number: int) -> None:
                if done == number // 5:
                    threading.Thread(target=client.shutdown, daemon=True).start()

            yield {"workers": 2, "cells": fits, **timed(lambda: run_cells(work, store, client, on_progress=watch))}
        kept = len(list(Path(store).glob("*.npz")))
        with cluster(2) as client:
            row = timed(lambda: run_cells(work, store, client))
            yield {"workers": 2, "cells": fits, "from_store": kept, **row}


PARTS: dict[str, Callable[[int, int, int], Iterator[Row]]] = {
    "overhead": overhead,
    "throughput": throughput,
    "lost worker": lost_worker,
    "lost scheduler": lost_scheduler,
}


def timed(work: Callable[[], dict[Any, Any]]) -> Row:
    """Wall time, processor time of this process and of its workers unless some are lost, and how many cells failed."""
    start, cpu, processes = time.perf_counter(), processor_seconds(), num_processes()
    outcomes = work()
    used = processor_seconds() - cpu if num_processes() == processes else math.nan
    seconds = time.perf_counter() - start
    failed = sum(bool(outcome.error) for outcome in outcomes.values())
    return {"seconds": seconds, "cpu_seconds": used, "cpu_ms_a_cell": 1000 * used / len(outcomes), "failed": failed}


def num_processes() -> int:
    return len(psutil.Process().children(recursive=True))


def processor_seconds() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return sum(spent.user + spent.system for spent in times)


def trivial_cells(number: int, seed: int) -> list[Cell]:
    dataset = simulate(DawidSkene(5), 20, key=jax.random.key(seed))
    return cells_of(dataset, {"vote": MajorityVote()}, jax.random.key(seed), number)


def fitted_cells(number: int, seed: int) -> list[Cell]:
    dataset = simulate(DawidSkene(40), 20_000, key=jax.random.key(seed))
    return cells_of(dataset, {"em": DawidSkeneEM()}, jax.random.key(seed), number)


@contextmanager
def cluster(workers: int) -> Iterator[Client]:
    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as made, Client(made) as client:
        yield client


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/scaling_sweep"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--fits", type=int, default=60)
    parser.add_argument("--parts", nargs="+", help="such as overhead and 'lost worker'; by default all")
    arguments = parser.parse_args()
    main(arguments.data, arguments.out, arguments.seed, arguments.cells, arguments.fits, arguments.parts)
