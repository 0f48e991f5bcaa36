"""Agreement statistics against brute force, scikit-learn, krippendorff and irrCAC."""

from itertools import combinations, permutations

import jax
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import latentens as le
from latentens import Votes
from latentens.errors import VotesError

KEY = jax.random.key(0)


def noisy_votes(num_items, num_voters, num_classes, seed=0, share_missing=0.25):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=(num_items, 1))
    shape = num_items, num_voters
    matrix = np.where(rng.random(shape) < 0.6, labels, rng.integers(num_classes, size=shape))
    matrix[rng.random(shape) < share_missing] = -1
    return matrix


def found(matrix, num_classes, resamples=20, **options):
    table = le.agreement(Votes.from_matrix(matrix, num_classes=num_classes), key=KEY, resamples=resamples, **options)
    return table.set_index(["statistic", "of"])


def alpha_by_loops(matrix, distance):
    """1 − (mean distance of two votes on one item) / (mean distance of any two votes), over items with two votes."""
    items = [row[row >= 0] for row in matrix if (row >= 0).sum() > 1]
    everyone = np.concatenate(items)
    within = sum(distance(a, b) / (len(row) - 1) for row in items for a, b in permutations(row, 2)) / len(everyone)
    among = np.mean([distance(a, b) for a, b in permutations(everyone, 2)])
    return 1 - within / among


@pytest.mark.parametrize("num_classes", [2, 4])
def test_statistics_by_loops(num_classes):
    matrix = noisy_votes(40, 4, num_classes)
    table = found(matrix, num_classes)["value"]
    usable = np.concatenate([row[row >= 0] for row in matrix if (row >= 0).sum() > 1])
    counts = np.bincount(usable, minlength=num_classes)

    def ordinal(a, b):
        low, high = min(a, b), max(a, b)
        return (counts[low : high + 1].sum() - (counts[a] + counts[b]) / 2) ** 2 if a != b else 0

    distances = {"nominal": lambda a, b: float(a != b)}
    if num_classes > 2:
        distances |= {"ordinal": ordinal, "interval": lambda a, b: float(a - b) ** 2}
    assert list(table.loc["Krippendorff's alpha"].index) == list(distances)
    for metric, distance in distances.items():
        assert table["Krippendorff's alpha", metric] == pytest.approx(alpha_by_loops(matrix, distance)), metric
    rows = [row[row >= 0] for row in matrix if (row >= 0).any()]
    observed = np.mean([np.mean([a == b for a, b in combinations(row, 2)]) for row in rows if len(row) > 1])
    shares = np.array([np.mean([np.mean(row == label) for row in rows]) for label in range(num_classes)])
    for name, chance in (
        ("Fleiss' kappa", np.sum(shares**2)),
        ("Gwet's AC1", np.sum(shares * (1 - shares)) / (num_classes - 1)),
    ):
        assert table[name, "all voters"] == pytest.approx((observed - chance) / (1 - chance)), name
    for one, other in combinations(range(4), 2):
        both = matrix[(matrix[:, one] >= 0) & (matrix[:, other] >= 0)]
        expected = cohen_kappa_score(both[:, one], both[:, other])
        assert table["Cohen's kappa", f"{one}, {other}"] == pytest.approx(expected)


def test_alpha_is_that_of_the_package_krippendorff():
    krippendorff = pytest.importorskip("krippendorff")
    matrix = noisy_votes(100, 6, 5, seed=1)
    table = found(matrix, 5)["value"]
    ratings = np.where(matrix < 0, np.nan, matrix).T
    for metric in ("nominal", "ordinal", "interval"):
        expected = krippendorff.alpha(reliability_data=ratings, level_of_measurement=metric)
        assert table["Krippendorff's alpha", metric] == pytest.approx(expected, abs=1e-9)


def test_values_of_irrcac():
    """Computed with irrCAC 0.4.4, which needs an older NumPy; it rounds to five digits."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=(40, 1))
    matrix = np.where(rng.random((40, 5)) < 0.6, labels, rng.integers(3, size=(40, 5)))
    matrix[rng.random((40, 5)) < 0.25] = -1
    matrix[0], matrix[1] = -1, [-1, -1, -1, -1, 1]
    table = found(matrix, 3)["value"]
    assert table["Fleiss' kappa", "all voters"] == pytest.approx(0.36871, abs=1e-5)
    assert table["Gwet's AC1", "all voters"] == pytest.approx(0.36902, abs=1e-5)
    assert table["Krippendorff's alpha", "nominal"] == pytest.approx(0.35683, abs=1e-5)


def test_intervals_and_undefined_values():
    matrix = noisy_votes(60, 3, 2)
    table = found(matrix, 2, resamples=200)
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()
    assert "Cohen's kappa" not in found(matrix, 2, max_paired=2).index.get_level_values("statistic")
    same = found(np.ones((5, 3), dtype=int), 2)
    assert np.isnan(same.loc[("Krippendorff's alpha", "nominal"), "value"])
    assert same.loc[("Gwet's AC1", "all voters"), "value"] == 1
    votes = Votes.from_matrix([["bad", "good", "good"], ["fair", "fair", "fair"], ["bad", "fair", "good"]])
    assert "interval" not in le.agreement(votes, key=KEY, resamples=5)["of"].tolist()
    with pytest.raises(VotesError, match="agreement cannot be measured"):
        found(np.array([[0, -1], [-1, 1]]), 2)


@pytest.mark.slow
def test_intervals_hold_the_value_of_all_items():
    population = noisy_votes(20_000, 5, 3, seed=2)
    truth = found(population, 3, resamples=1, max_paired=2)["value"]
    rng = np.random.default_rng(3)
    held = []
    for _ in range(200):
        table = found(population[rng.integers(20_000, size=100)], 3, resamples=300, level=0.9, max_paired=2)
        held.append((table["low"] <= truth) & (truth <= table["high"]))
    assert (np.mean(held, axis=0) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 200)).all()
