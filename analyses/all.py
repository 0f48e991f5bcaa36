"""One run of everything: every table and figure of the page, from the present code.

    python analyses/all.py --data ROOT [--out out] [--only table_1 table_2 …]

Each analysis runs in a process of its own; one that fails is reported and the others continue. Versions, seed, seconds
and outcome of each are kept in DIR/runs.csv. Tables that the pages show are copied to `analyses/results/`, figures to
`analyses/figures/`, and the pages are written from them.
"""

import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from common import run
from pages import FOLDER, PAGES, TABLES, rewrite

ANALYSES = (
    *("table_1", "table_2", "magic", "calibration", "cross_fit", "latent_spectral_guard", "layered_graph_params"),
    *("figure_correlations", "figure_rbm_weights", "figure_recovery", "figure_singular_values", "figure_tree"),
    *("figure_s3_correlations", "appendix_variational", "appendix_top_down", "sbc", "published", "rbm_accuracy"),
    *("recommend", "gold", "estimate", "real_votes", "rbm_real", "label_order", "approximations"),
    *("reference_posteriors",),
)
"""What stands on the pages, the tables first."""

PACKAGES = ("latentens", "jax", "numpyro", "numpy", "scipy")


def run_one(name: str, data: Path | None, out: Path, seed: int) -> dict[str, object]:
    """Run an analysis, its words in DIR/NAME.log, and say how it went."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--out", str(out), "--seed", str(seed)]
    command += ["--data", str(data)] if data else []
    start = time.perf_counter()
    with (out / f"{name}.log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    seconds = round(time.perf_counter() - start, 1)
    print(f"{'done' if code == 0 else f'FAILED, see {name}.log'} in {seconds} s", flush=True)
    return {"analysis": name, "exit": code, "seconds": seconds, "seed": seed}


def publish(names: list[str], out: Path) -> None:
    """Copy tables and figures of these analyses that the pages show, and write the pages from them."""
    shown = {FOLDER / "results" / f"{file}.csv" for file, _ in TABLES.values()} | set(
        (FOLDER / "figures").glob("*.png")
    )
    for path in shown:
        if (out / path.name).is_file() and path.name.startswith(tuple(names)):
            shutil.copy(out / path.name, path)
    rewrite()


def main(data: Path | None, out: Path, seed: int, only: tuple[str, ...] = ANALYSES) -> pd.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    versions = {name: version(name) for name in PACKAGES}
    records = []
    for number, name in enumerate(only, 1):
        print(f"{number} of {len(only)}: {name} … ", end="", flush=True)
        records.append(run_one(name, data, out, seed) | versions)
    table = pd.DataFrame(records).set_index("analysis")
    table.to_csv(out / "runs.csv")
    publish(list(table.index[table["exit"] == 0]), out)
    print(f"the pages are {' and '.join(map(str, PAGES))}, their tables and figures are in {out}")
    return table


if __name__ == "__main__":
    run(main, __doc__)
