"""One run of everything: every table and figure of the page, from the present code.

    python analyses/all.py --data ROOT [--out out] [--only table_1 table_2 …]

Each analysis runs in a process of its own; one that fails is reported and the others continue. Versions, seed, seconds
and outcome of each are kept in DIR/runs.csv. Tables that the page shows are copied to `analyses/results/`, figures to
`analyses/figures/`, and the page is written from them.
"""

import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from common import run
from pages import FOLDER, PAGE, TABLES, written

ANALYSES = (
    *("table_1", "table_2", "magic", "calibration", "cross_fit", "latent_spectral_guard", "layered_graph_params"),
    *("figure_correlations", "figure_rbm_weights", "figure_recovery", "figure_singular_values", "figure_tree"),
    *("figure_s3_correlations", "appendix_variational", "appendix_top_down", "sbc", "published", "rbm_accuracy"),
)
"""What stands on the page, the tables first."""

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
    """Copy tables and figures that the page shows, and write the page from them."""
    shown = {name for name, _ in TABLES.values()}
    for name in names:
        if name in shown:
            shutil.copy(out / f"{name}.csv", FOLDER / "results")
        if (FOLDER / "figures" / f"{name}.png").is_file():
            shutil.copy(out / f"{name}.png", FOLDER / "figures")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


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
    print(f"the page is {PAGE}, its tables and figures are in {out}")
    return table


if __name__ == "__main__":
    run(main, __doc__)
