"""Which results differ from those of another revision: what a run of all analyses has changed.

    python analyses/moved.py REVISION [--least 0.5]

Rows are matched by their words, or by their order if words do not tell them apart. For each column of numbers the
largest change is printed with its row, in units of the error where the table has one (a column `deviation` beside the
accuracy, over `sets`), and as it is otherwise. Times are left out. `--least` hides changes below this many percent of
the column's range.
"""

import argparse
import io
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

RESULTS = Path(__file__).parent / "results"
TIMES = re.compile(r"second|processor|time|memory|mib|ratio_to|cold|warm|load|faster", re.IGNORECASE)


def at_revision(revision: str, path: Path) -> pd.DataFrame | None:
    """A table as it was committed, or None if there was none."""
    command = ["git", "show", f"{revision}:./{path.name}"]
    shown = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    return pd.read_csv(io.StringIO(shown.stdout)) if shown.returncode == 0 else None


def matched(before: pd.DataFrame, after: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that both tables have, in one order."""
    words = [*after.select_dtypes(exclude="number").columns.intersection(before.columns)]
    if words and not before[words].duplicated().any() and not after[words].duplicated().any():
        one, other = (table.set_index(words) for table in (before, after))
        common = other.index[other.index.isin(one.index)]
        return one.loc[common], other.loc[common]
    size = min(len(before), len(after))
    return before[:size], after[:size]


def changes(before: pd.DataFrame, after: pd.DataFrame, least: float) -> list[str]:
    """The largest change of each column of numbers."""
    before, after = matched(before, after)
    said = []
    for name in after.select_dtypes("number").columns.intersection(before.select_dtypes("number").columns):
        if TIMES.search(name) or name == "deviation":
            continue
        one, other = before[name].to_numpy(float), after[name].to_numpy(float)
        step, unit = np.nan_to_num(np.abs(other - one)), ""
        if not step.max(initial=0.0) > least / 100 * max(np.nanmax(np.abs(one), initial=0.0), 1e-12):
            continue
        if name == "balanced_accuracy" and "deviation" in after:
            sets = after.get("sets", 2)
            error = np.maximum(after["deviation"].fillna(np.inf) / np.sqrt(sets), 0.01)
            step, unit = step / error.to_numpy(), " errors"
        at = int(step.argmax())
        said.append(f"{name}: {one[at]:.4g} -> {other[at]:.4g} ({step[at]:.2g}{unit}) at {after.index[at]}")
    return said


def main() -> None:
    """Print the changes, file by file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--least", type=float, default=0.5)
    given = parser.parse_args()
    for path in sorted(RESULTS.glob("*.csv")):
        before, after = at_revision(given.revision, path), pd.read_csv(path)
        said = ["new"] if before is None else changes(before, after, given.least)
        if before is not None and len(before) != len(after):
            said.insert(0, f"{len(before)} rows, now {len(after)}")
        if said:
            print(f"{path.name}:", *said, sep="\n    ")


if __name__ == "__main__":
    main()
