import numpy as np
import pytest

from latentens.methods import MajorityVote
from latentens.votes import Votes
from tests.reference import KEY, percent


@pytest.mark.parametrize(("name", "expected"), [("S1", 97.20), ("S3", 95.73), ("magic/1", 77.18), ("magic/2", 76.97)])
def test_published_accuracy(name, expected):
    assert percent(MajorityVote(), name) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("family", "mean", "deviation"),
    [("condInd", 75.93, 0.5), ("Tree", 93.45, 0.19), ("LG", 76.61, 0.09), ("TG", 80.14, 0.4)],
)
@pytest.mark.parametrize("number", [1, 2])
def test_accuracy_scatters_around_the_published_mean(family, mean, deviation, number):
    assert percent(MajorityVote(), f"{family}/{number}") == pytest.approx(mean, abs=2 * deviation)


def test_missing_votes_do_not_count_and_ties_go_to_the_lowest_class():
    fit = MajorityVote().fit(Votes.from_matrix([[1, 1, -1], [1, 0, -1], [0, 1, 1], [-1, -1, -1]]), key=KEY)
    np.testing.assert_allclose(fit.label_probs[:, 1], [1, 1 / 2, 2 / 3, 1 / 2])
    assert np.array_equal(fit.codes, [1, 0, 1, 0])
