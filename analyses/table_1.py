"""Table 1 of the paper: every method on the four simulated models, beside the paper's figures.

    python analyses/table_1.py [--data ROOT] [--out DIR] [--sets 5] [--methods NAME …]

On the authors' files, as many as are there; without `--data` on newly simulated sets, where the exact posterior of the
layered graph is known as well. Finished fits are kept in DIR/fits, so that an interrupted run resumes.
"""

from pathlib import Path

import pandas as pd
from common import (
    METHODS,
    PROGRAMS,
    SupervisedElsewhere,
    accuracy_panels,
    chosen_methods,
    compared,
    paper_sets,
    run,
    score_table,
    write,
)
from paper import TABLE_1

from latentens.datasets import PAPER_ITEMS, PAPER_MODELS

SCORES = ("balanced_accuracy", "log_score", "mean_kl", "seconds")


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 5,
    items: int = PAPER_ITEMS,
    families: tuple[str, ...] = tuple(PAPER_MODELS),
    methods: tuple[str, ...] = (*METHODS, *PROGRAMS),
) -> pd.DataFrame:
    datasets = [dataset for family in families for dataset in paper_sets(family, data, sets, items)]
    chosen = chosen_methods(methods, datasets) | {"supervised": SupervisedElsewhere(tuple(datasets))}
    tree = compared(datasets, chosen, out, seed)
    table = score_table(tree, SCORES, TABLE_1)
    write(out, "table_1", tree=tree, table=table, figure=accuracy_panels(table))
    return table


if __name__ == "__main__":
    run(main, __doc__)
