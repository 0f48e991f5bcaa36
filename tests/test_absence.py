"""Missing votes: the check of whether they are related to other votes, and absence as a vote."""

import jax
import numpy as np
import pandas as pd
import pytest

from latentens.checks.absence import check_absence
from latentens.errors import VotesError
from latentens.methods import DawidSkeneEM
from latentens.votes import Votes

KEY = jax.random.key(0)


def panel(seed, *, informative=0.0, batches=False, num_items=400, num_classes=2):
    """Six voters; absence more frequent by `informative` on items of the last class, or by batches of items."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(num_classes, size=num_items)
    lean = generator.dirichlet(np.ones(num_classes), 6)  # what a voter says without looking
    guess = (generator.random((num_items, 6, 1)) > lean.cumsum(axis=1)).sum(axis=2).clip(max=num_classes - 1)
    votes = np.where(generator.random((num_items, 6)) < 0.6, truth[:, None], guess)
    absent = generator.random((num_items, 6)) < 0.2 + informative * (truth == num_classes - 1)[:, None]
    if batches:
        absent |= (np.arange(num_items) % 2 == 1)[:, None] == (np.arange(6) < 3)
        absent[:, [0, 3]] &= generator.random((num_items, 2)) < 0.5  # two work on both
    return Votes.from_matrix(np.where(absent, -1, votes), num_classes), truth


@pytest.mark.parametrize("options", [{}, {"batches": True}, {"num_classes": 3}])
def test_false_alarms_are_as_frequent_as_the_level_says(options):
    rejected = np.mean([check_absence(panel(seed, **options)[0]).rejected for seed in range(300)])
    assert rejected <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_power():
    found = [check_absence(panel(seed, informative=0.2)[0]) for seed in range(40)]
    assert np.mean([each.rejected for each in found]) > 0.9
    assert "absence is informative about the label" in found[0].summary
    assert check_absence(panel(0, informative=0.2, num_classes=3)[0]).rejected


def test_scores_are_those_of_loops():
    votes, _ = panel(3, num_items=60)
    matrix, scores = votes.matrix, np.zeros(60)
    means = [np.mean(matrix[matrix[:, b] >= 0, b] == 1) for b in range(6)]
    for a in range(6):
        others = [[b for b in range(6) if b != a and matrix[i, b] >= 0] for i in range(60)]
        items = [i for i in range(60) if others[i]]
        mean = np.mean([matrix[i, a] < 0 for i in items])
        for i in items:
            residuals = [(matrix[i, b] == 1) - means[b] for b in others[i]]
            scores[i] += ((matrix[i, a] < 0) - mean) * np.mean(residuals)
    from latentens.checks import absence

    seen = []
    original, absence._chance = absence._chance, lambda found: seen.append(found.sum()) or original(found)
    try:
        check_absence(votes, least=10**6)
    finally:
        absence._chance = original
    assert seen == [pytest.approx(scores.sum(), abs=1e-10)]


def test_voters_whose_names_look_alike_are_tested_one_by_one():
    votes, _ = panel(0, informative=0.2)
    alike = Votes.from_matrix(pd.DataFrame(votes.matrix, columns=[1, "1", 2, "2", 3, "3"]))
    assert check_absence(alike).num_tested == check_absence(votes).num_tested == 6


def test_nothing_to_check():
    assert check_absence(Votes.from_matrix([[0, 1], [1, 1]])) is None
    assert check_absence(Votes.from_matrix([[0, -1], [-1, 1]])) is None


def test_absence_as_a_vote_tells_something_about_the_label():
    votes, truth = panel(1, informative=0.6, num_items=1500)
    voted = votes.absence_as_vote()
    assert (voted.num_missing, voted.other_names, voted.num_categories) == (0, ("absent",), 3)
    assert voted.without_other_votes().matrix.tolist() == votes.matrix.tolist()
    accuracy = [np.mean(DawidSkeneEM().fit(each, key=KEY).codes == truth) for each in (votes, voted)]
    assert accuracy[1] > accuracy[0] + 0.03
    assert votes.absence_as_vote("skipped").other_names == ("skipped",)
    with pytest.raises(VotesError, match="'absent' is a vote already"):
        voted.absence_as_vote()


def test_the_command_says_it(invoke, tmp_path):
    votes, _ = panel(2, informative=0.4)
    votes.to_frame().to_csv(tmp_path / "votes.csv")
    code, shown, error = invoke("check", "votes.csv", cwd=tmp_path)
    assert code == 0, error
    assert "Missing votes are related to the other voters' votes" in shown
