"""Every time of `speed.py` on cores that are free, shared, few, or bound from outside.

    python analyses/speed_cores.py --data ROOT --out DIR [--seed 0] [--quick]

Writes `cores.csv`: the seconds of this project's side in each state of the machine, and the worst over the best of
them. Each state is a process of its own. What the baselines take long for is left out.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich.console import Console

STATES = ("free", "one core busy", "pinned to one core", "OPENBLAS_NUM_THREADS=1")


def main(data: Path, out: Path, seed: int, quick: bool) -> None:
    columns = {}
    for state in STATES:
        folder = out / state.replace(" ", "_")
        command = [sys.executable, str(Path(__file__).with_name("speed.py")), "--alone", "--seed", str(seed)]
        command += ["--data", str(data), "--out", str(folder)] + quick * ["--quick"]
        with cores(state) as variables:
            subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)
        columns[state] = pd.read_csv(folder / "speed.csv").set_index(["what", "unit"])["ours"]
        table = pd.DataFrame(columns)
        table["worst over best"] = table.max(axis=1) / table.min(axis=1)
        table.to_csv(out / "cores.csv")
    Console(soft_wrap=True).print(table.round(4).to_string(), highlight=False)


@contextmanager
def cores(state: str) -> Iterator[dict[str, str]]:
    """Put the machine into a state for processes that are started inside, with these variables."""
    variables = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    allowed, other = os.sched_getaffinity(0), None
    if "=" in state:
        variables |= dict([state.split("=")])
    elif state == "pinned to one core":
        os.sched_setaffinity(0, {min(allowed)})
    elif state == "one core busy":
        other = multiprocessing.Process(target=spin, daemon=True)
        other.start()
    try:
        yield variables
    finally:
        os.sched_setaffinity(0, allowed)
        if other:
            other.terminate()


def spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the paper's data")
    parser.add_argument("--out", type=Path, default=Path("out/speed_cores"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    main(**vars(parser.parse_args()))
