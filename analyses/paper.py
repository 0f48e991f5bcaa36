"""The tables of Shaham et al. 2016, *A Deep Learning Approach to Unsupervised Ensemble Learning*, to compare with.

Balanced accuracy in percent. The simulated sets have 10,000 items and 15 voters; mean and standard deviation are over
five sets of each. `DS` is the better of two spectral methods on each set, picked by label; `Bayes` was found by
counting the rows it was scored on, and is therefore optimistic.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Reported(NamedTuple):
    """A figure of the paper.

    Attributes:
        mean: Balanced accuracy in percent.
        deviation: Its standard deviation, where given.
    """

    mean: float
    deviation: float | None = None


TABLE_1: Mapping[str, Mapping[str, Reported]] = {
    "condInd": {
        "Vote": Reported(75.93, 0.5),
        "DS": Reported(94.78, 0.13),
        "CUBAM": Reported(91.96, 0.18),
        "L-SML": Reported(55.94, 21.88),
        "DNN": Reported(94.78, 0.13),
        "supervised": Reported(94.45, 0.11),
        "Bayes": Reported(95.32),
    },
    "Tree": {
        "Vote": Reported(93.45, 0.19),
        "DS": Reported(92.68, 0.14),
        "CUBAM": Reported(90.74, 0.3),
        "L-SML": Reported(95.83, 0.15),
        "DNN": Reported(95.13, 0.71),
        "supervised": Reported(95.54, 0.27),
        "Bayes": Reported(96.12),
    },
    "LG": {
        "Vote": Reported(76.61, 0.09),
        "DS": Reported(86.36, 0.2),
        "CUBAM": Reported(77.12, 0.26),
        "L-SML": Reported(85.87, 0.21),
        "DNN": Reported(86.83, 0.2),
        "supervised": Reported(87.01, 0.18),
        "Bayes": Reported(87.05),
    },
    "TG": {
        "Vote": Reported(80.14, 0.4),
        "DS": Reported(82.03, 0.27),
        "CUBAM": Reported(83.43, 0.31),
        "L-SML": Reported(79.5, 1.35),
        "DNN": Reported(88.09, 0.52),
        "supervised": Reported(90.8, 0.4),
        "Bayes": Reported(91.39),
    },
}
"""Simulated sets, by the names of their folders."""

TABLE_2: Mapping[str, Mapping[str, Reported]] = {
    "S1": {
        "Vote": Reported(97.2),
        "DS": Reported(98.3),
        "CUBAM": Reported(92.31),
        "L-SML": Reported(98.4),
        "DNN": Reported(98.42, 0.0),
    },
    "S2": {
        "Vote": Reported(96.0),
        "DS": Reported(97.2),
        "CUBAM": Reported(69.19),
        "L-SML": Reported(97.7),
        "DNN": Reported(97.55, 0.01),
    },
    "S3": {
        "Vote": Reported(95.7),
        "DS": Reported(97.7),
        "CUBAM": Reported(87.65),
        "L-SML": Reported(98.2),
        "DNN": Reported(98.51, 0.01),
    },
}
"""The DREAM challenges."""

ARCHITECTURES: Mapping[str, tuple[int, ...]] = {
    "condInd": (15, 1),
    "Tree": (15, 3, 1),
    "LG": (15, 4, 1),
    "TG": (15, 3, 1),
    "S1": (124, 1),
    "S2": (114, 1),
    "S3": (99, 25, 1),
    "magic": (16, 3, 1),
}
"""Sizes of the layers of the paper's network, found with settings tuned for each set."""
