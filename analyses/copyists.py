"""Who copies whom, without labels: is the pair that copies named on freshly simulated juries?

    python analyses/copyists.py [--out DIR] [--seed 0] [--sets 10]

The second judge copies the first on six of ten items; a tenth of the votes is missing. Counted are the sets on which
the check finds dependence, and of these those where the pair with the strongest residual is the one that copies, where
that pair is among the pairs that explain the votes, and where it is the only one. In two kinds of sets nobody copies,
or two pairs do.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from common import run, write

from latentens.checks import check_independence
from latentens.runtime.progress import track_late
from latentens.votes import Votes


class Jury(NamedTuple):
    """Accuracies, the pairs (who is copied, who copies), and the number of classes."""

    accuracy: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...] = ((0, 1),)
    classes: int = 2


JURIES = {
    "five, one guesses": Jury((0.88, 0.80, 0.85, 0.72, 0.52)),
    "five": Jury((0.88, 0.80, 0.85, 0.72, 0.75)),
    "five, weak copyists": Jury((0.65, 0.65, 0.85, 0.80, 0.75)),
    "five, three classes": Jury((0.80, 0.70, 0.75, 0.70, 0.70), classes=3),
    "seven": Jury((0.80, 0.75, 0.80, 0.70, 0.70, 0.75, 0.65)),
    "seven, two pairs": Jury((0.80, 0.75, 0.80, 0.70, 0.70, 0.75, 0.65), ((0, 1), (2, 3))),
    "five, nobody copies": Jury((0.88, 0.80, 0.85, 0.72, 0.75), ()),
}


def convene(jury: Jury, num_items: int, generator: np.random.Generator) -> Votes:
    """Votes of a jury."""
    shape = num_items, len(jury.accuracy)
    truth = generator.integers(jury.classes, size=(num_items, 1))
    wrong = (truth + generator.integers(1, jury.classes, size=shape)) % jury.classes
    matrix = np.where(generator.random(shape) < jury.accuracy, truth, wrong)
    for copied, copier in jury.pairs:
        matrix[:, copier] = np.where(generator.random(num_items) < 0.6, matrix[:, copied], matrix[:, copier])
    return Votes.from_matrix(np.where(generator.random(shape) < 0.1, -1, matrix), num_classes=jury.classes)


def main(data: Path | None, out: Path, seed: int, sets: int = 10, items: int = 1000) -> pd.DataFrame:
    del data  # everything is simulated
    records = []
    cases = [(kind, number) for kind in JURIES for number in range(sets)]
    for kind, number in track_late(cases, "Checking juries"):
        jury = JURIES[kind]
        generator = np.random.default_rng([seed, list(JURIES).index(kind), number])
        check = check_independence(convene(jury, items, generator), key=jax.random.key(number))
        strongest = bool(check.dependent_pairs) and check.dependent_pairs[0] in jury.pairs
        among, only = any(pair in check.candidate_pairs for pair in jury.pairs), len(check.candidate_pairs) == 1
        records.append(
            (kind, check.rejected, strongest, bool(check.candidate_pairs), among, among and only, only and not among)
        )
    columns = ["found", "strongest residual", "one pair explains", "pair among them", "pair alone", "wrong pair alone"]
    table = pd.DataFrame(records, columns=["jury", *columns]).groupby("jury", sort=False).sum()
    write(out, "copyists", table=table.assign(sets=sets))
    return table


if __name__ == "__main__":
    run(main, __doc__)
