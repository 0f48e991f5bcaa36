"""Table 2 of the paper: every method on the DREAM challenges S1 to S3, beside the paper's figures.

    python analyses/table_2.py --data ROOT [--out DIR] [--repetitions 1] [--methods NAME …]

Takes as many of the three as are there. With several repetitions the deviation is over keys.
"""

from pathlib import Path

import pandas as pd
from common import METHODS, accuracy_panels, compared, find, run, score_table, write
from paper import TABLE_2

from latentens.errors import DataNotFoundError

SCORES = ("balanced_accuracy", "log_score", "seconds")


def main(
    data: Path | None, out: Path, seed: int, repetitions: int = 1, methods: tuple[str, ...] = tuple(METHODS)
) -> pd.DataFrame:
    datasets = find(TABLE_2, data)
    if not datasets:
        raise DataNotFoundError("the DREAM challenges cannot be simulated; say where they are with --data")
    chosen = {name: METHODS[name] for name in methods}
    tree = compared(datasets, chosen, out, seed, repetitions)
    table = score_table(tree, SCORES, TABLE_2)
    write(out, "table_2", tree=tree, table=table, figure=accuracy_panels(table))
    return table


if __name__ == "__main__":
    run(main, __doc__)
