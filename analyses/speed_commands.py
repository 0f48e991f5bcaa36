"""Whole commands, from the start of the process to its end: without compiled programs, then with them.

    python analyses/speed_commands.py --out DIR [--seed 0] [--names fit-em fit-likelihood …]

Writes `speed_commands.csv`: seconds, seconds of processor time and exit code of each command. The user's file is of
1,000 items × 30 voters with three classes. To time other code, put its folder into PYTHONPATH.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import run, write
from scaling import load_per_core

COMMANDS = {
    "fit-em": ("fit", "DawidSkeneEM", "votes.csv", "--out", "labels.csv"),
    "fit-likelihood": ("fit", "MaximumLikelihood(DawidSkene)", "votes.csv", "--out", "labels.csv"),
    "simulate": ("simulate", "Tree", "--out", "simulated.csv"),
    "compare-file": ("compare", "--votes", "votes.csv"),
    "compare": ("compare",),
}


def main(data: Path | None, out: Path, seed: int, names: tuple[str, ...] = tuple(COMMANDS)[:-1]) -> pd.DataFrame:
    del data  # all data are simulated
    rows: list[dict[str, Any]] = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            write_votes(Path(folder, "votes.csv"), seed)
            call(("methods",), folder)  # so that Python's own bytecode is there
            for programs in ("none compiled", "compiled"):
                results = ("--out", programs.replace(" ", "_")) if name.startswith("compare") else ()
                rows.append({"command": name, "programs": programs} | call((*COMMANDS[name], *results), folder))
                table = pd.DataFrame(rows).set_index(["command", "programs"])
                write(out, "speed_commands", table=table)
    return table


def write_votes(path: Path, seed: int) -> None:
    """Voters who know the label in six of ten cases and else guess."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 1000)
    matrix = np.where(rng.random((1000, 30)) < 0.6, labels[:, None], rng.integers(0, 3, (1000, 30)))
    pd.DataFrame(matrix, columns=[f"voter{j}" for j in range(30)]).to_csv(path, index=False)


def call(arguments: tuple[str, ...], folder: str) -> dict[str, Any]:
    """Time one command in a folder that also keeps its compiled programs."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "PYTHONDONT"))}
    variables["LATENTENS_CACHE"] = str(Path(folder, "cache"))
    command = [sys.executable, "-m", "latentens", *arguments]
    start, before = time.perf_counter(), children_processor()
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=False)
    seconds, processor = time.perf_counter() - start, children_processor() - before
    return {"seconds": seconds, "processor": processor, "exit": done.returncode, "load_per_core": load_per_core()}


def children_processor() -> float:
    """Seconds of processor time of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run(main, __doc__)
