"""What the README says of the paper's families, on small sets of our own: no data of others are needed.

`data/paper_sets.npz` has one simulated set of each family, with its labels and the accuracy of the exact posterior;
`python -m tests.test_published_fixture` writes it anew. The bounds are those of the paper's claims, not of one run:
where voters are independent all methods are at the exact posterior; where they are not, the majority is behind.
"""

from pathlib import Path

import numpy as np
import pytest

from latentens.datasets import simulate_paper
from latentens.methods import DawidSkeneEM, LatentSpectral, MajorityVote, RBMStack, SpectralMetaLearner
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes
from tests.reference import KEY

FILE = Path(__file__).parent / "data" / "paper_sets.npz"
FAMILIES = ("condInd", "Tree", "TG", "LG")


def write(num_items=2000):
    arrays = {}
    for family in FAMILIES:
        drawn = simulate_paper(family, 1, num_items)
        arrays[f"{family}_votes"] = np.packbits(drawn.votes.matrix.astype(bool), axis=1)
        arrays[f"{family}_labels"] = np.packbits(drawn.labels.astype(bool))
        arrays[f"{family}_exact"] = 100 * balanced_accuracy(drawn.labels, drawn.bayes_posterior().argmax(axis=1))
        arrays[f"{family}_shape"] = np.array(drawn.votes.shape)
    np.savez_compressed(FILE, **arrays)


@pytest.fixture(scope="module")
def sets():
    with np.load(FILE) as file:
        found = dict(file)
    made = {}
    for family in FAMILIES:
        items, voters = found[f"{family}_shape"]
        votes = np.unpackbits(found[f"{family}_votes"], axis=1, count=voters)
        labels = np.unpackbits(found[f"{family}_labels"], count=items).astype(int)
        made[family] = Votes.from_matrix(votes, num_classes=2), labels, float(found[f"{family}_exact"])
    return made


def percent(method, votes, labels):
    return 100 * balanced_accuracy(labels, method.fit(votes, key=KEY).codes)


METHODS = (MajorityVote(), SpectralMetaLearner(), DawidSkeneEM(), LatentSpectral(), RBMStack())
FIGURES = {
    "condInd": (75.25, 93.00, 94.42, 94.46, 94.42),
    "Tree": (93.75, 92.77, 90.16, 95.86, 95.77),
    "TG": (79.91, 81.36, 82.86, 80.07, 88.95),
    "LG": (76.52, 77.45, 87.15, 86.72, 87.77),
}
"""Balanced accuracies of the methods on the fixture when it was made."""


@pytest.mark.filterwarnings("ignore::latentens.errors.LatentensWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_methods_stand_where_the_paper_says(sets, family):
    votes, labels, exact = sets[family]
    found = dict(zip(map(type, METHODS), [percent(method, votes, labels) for method in METHODS], strict=True))
    assert [*found.values()] == pytest.approx(FIGURES[family], abs=0.3)  # six of 2,000 items
    assert max(found.values()) < exact + 0.5
    assert found[RBMStack] == pytest.approx(exact, abs=4 if family == "TG" else 0.5)
    assert found[MajorityVote] < found[RBMStack]
    if family == "condInd":  # independent voters: nothing is better than Dawid–Skene
        assert found[DawidSkeneEM] == pytest.approx(exact, abs=0.5)
    else:  # dependent ones: the stack is ahead of it
        assert found[DawidSkeneEM] < found[RBMStack]


if __name__ == "__main__":
    write()
