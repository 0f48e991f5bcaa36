"""Estimates from gold labels and votes: exact intervals, textbook estimators, coverage, and what is refused."""

import math
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import binom, hypergeom

import latentens as le
from latentens.errors import LatentensWarning, VotesError
from latentens.estimation.quantities import list_quantities
from latentens.estimation.rectified import Sample, draw_urn, rectify

KEY = jax.random.key(0)
BINARY = np.array([[0.0, 1.0], [1.0, 1.0]])


def simulated(num_items=600, accuracies=(0.9, 0.8, 0.75, 0.7), prevalence=0.3, seed=0, missing=0.0):
    generator = np.random.default_rng(seed)
    labels = (generator.random(num_items) < prevalence).astype(int)
    right = generator.random((num_items, len(accuracies))) < accuracies
    matrix = np.where(right, labels[:, None], 1 - labels[:, None])
    matrix[generator.random(matrix.shape) < missing] = -1
    return le.Votes.from_matrix(matrix, num_classes=2), labels


def some_gold(labels, number, seed=0):
    gold = np.full(len(labels), -1)
    chosen = np.random.default_rng(1000 + seed).choice(len(labels), number, replace=False)
    gold[chosen] = labels[chosen]
    return gold


def first_row(votes, gold, **settings):
    cheap = {"key": KEY, "method": le.methods.MajorityVote(), "draws": 1000}
    return le.estimate(votes, gold, **cheap, **settings).iloc[1]


def without_proxies(values, weights=None):
    size = len(values)
    none = np.zeros((size, 0)), np.zeros((size, 0)), np.zeros((1, 0)), np.zeros((1, 0))
    weights = np.ones(size) if weights is None else weights
    return Sample(np.asarray(values, float), np.ones(size), *none, weights, BINARY, np.arange(size))


@pytest.mark.parametrize(("hits", "size"), [(0, 20), (1, 20), (7, 30), (30, 30)])
def test_interval_of_a_proportion_is_exact_mid_p(hits, size):
    urn = draw_urn(np.random.default_rng(0), 200_000, size, math.inf)
    found = rectify([without_proxies(np.arange(size) < hits)], urn)[0].gold
    grid = np.linspace(0, 1, 20_001)
    above = binom.sf(hits, size, grid) + binom.pmf(hits, size, grid) / 2  # mid-P of a value this large
    inside = grid[(above > 0.025) & (above < 0.975)] if 0 < hits < size else None
    low = inside[0] if inside is not None else (0.0 if hits == 0 else grid[above > 0.025][0])
    high = inside[-1] if inside is not None else (1.0 if hits == size else grid[above < 0.975][-1])
    np.testing.assert_allclose([found.low, found.high], [low, high], atol=0.003)


@pytest.mark.parametrize("hits", [0, 2, 15, 40])
def test_interval_of_a_finite_population_is_exact_mid_p(hits):
    size, items = 40, 100
    urn = draw_urn(np.random.default_rng(0), 200_000, size, items)
    found = rectify([without_proxies(np.arange(size) < hits)], urn)[0].gold
    totals = np.arange(items + 1)
    above = hypergeom.sf(hits, items, totals, size) + hypergeom.pmf(hits, items, totals, size) / 2
    possible = (totals >= hits) & (totals <= items - size + hits)
    inside = totals[possible & (above > 0.025) & (above < 0.975)]
    # The quantile of a discrete distribution is one step beyond the last value that is not rejected, or at it.
    np.testing.assert_allclose([found.low, found.high], inside[[0, -1]] / items, atol=1.001 / items)


def test_all_items_labelled_leaves_no_doubt():
    votes, labels = simulated(80)
    table = le.estimate(votes, labels, key=KEY)
    first = table.iloc[1]
    np.testing.assert_allclose(first[["low", "estimate", "high"]].astype(float), labels.mean())
    assert first["standard_error"] == 0
    beyond = le.estimate(votes, labels, key=KEY, population=math.inf).iloc[1]
    assert beyond["low"] < labels.mean() < beyond["high"]


def test_agrees_with_ppi_python(monkeypatch):
    # numba, which it imports, would take analyses/coverage.py for the package of that name
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if Path(folder).name != "analyses"])
    ppi = pytest.importorskip("ppi_py")
    generator = np.random.default_rng(1)
    truth = generator.integers(0, 2, 80).astype(float)
    proxy, others = truth * 0.6 + 0.2 * generator.random(80), generator.random(500)
    for power in (0.0, 0.3, 1.0):
        sample = Sample(
            truth, np.ones(80), proxy[:, None], np.zeros((80, 1)), others.mean(keepdims=True)[None],
            np.zeros((1, 1)), np.ones(80), BINARY, np.arange(80),
        )  # fmt: skip
        urn = draw_urn(generator, 4000, 80, math.inf)
        (found,) = rectify([sample], urn, slopes=np.array([power]))
        theirs = ppi.ppi_mean_pointestimate(truth, proxy, others, lam=power)
        assert found.rectified.estimate == pytest.approx(float(np.squeeze(theirs)), abs=1e-6)
    low, high = ppi.classical_mean_ci(truth, alpha=0.05)
    np.testing.assert_allclose([found.gold.low, found.gold.high], [low, high], atol=0.02)


def test_estimates_are_the_regression_estimator():
    """Against a plain least-squares computation, where labels are many and nothing is shrunk."""
    votes, labels = simulated(4000, seed=3)
    gold = some_gold(labels, 1500)
    fit = le.methods.DawidSkeneEM().fit(votes, key=KEY)
    known = gold >= 0
    shares = votes.tally / votes.tally.sum(axis=1, keepdims=True)
    proxies = np.stack([fit.label_probs[:, 1], shares[:, 1]], axis=1)
    design = np.column_stack([np.ones(known.sum()), proxies[known]])
    slopes = np.linalg.lstsq(design, labels[known], rcond=None)[0][1:]
    slopes /= max(np.abs(slopes).sum(), 1.0)  # together at most one
    expected = labels[known].mean() + (proxies.mean(axis=0) - proxies[known].mean(axis=0)) @ slopes
    residual = labels[known] - proxies[known] @ slopes
    error = residual.std(ddof=3) * np.sqrt((1 - 1500 / 4000) / 1500)
    row = le.estimate(votes, gold, key=KEY).iloc[1]
    assert row["estimate"] == pytest.approx(expected, abs=2e-4)
    assert row["standard_error"] == pytest.approx(error, rel=0.01)
    assert row["low"] == pytest.approx(expected - 1.96 * error, abs=0.1 * error)
    assert row["high"] == pytest.approx(expected + 1.96 * error, abs=0.1 * error)


@pytest.mark.parametrize("settings", [{}, {"population": math.inf}, {"cluster": np.arange(600) // 2}])
def test_intervals_cover(settings):
    """A biased, dependent panel: the label-free value is off, the intervals are not."""
    votes, labels = simulated(accuracies=(0.9, 0.6, 0.6, 0.6), prevalence=0.15)
    truth = 0.15 if "population" in settings else labels.mean()
    hits, wider = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LatentensWarning)
        for seed in range(40):
            if "population" in settings:
                votes, labels = simulated(accuracies=(0.9, 0.6, 0.6, 0.6), prevalence=0.15, seed=seed)
            row = first_row(votes, some_gold(labels, 50, seed), **settings)
            hits.append(row["low"] <= truth <= row["high"])
            wider.append((row["high"] - row["low"]) / (row["gold_high"] - row["gold_low"]))
    assert sum(hits) >= 35  # below 35 of 40 has probability 0.01 at 95 %
    assert np.mean(wider) < 0.98


def test_rare_class_with_one_label_of_it_is_covered():
    """One positive among the labels, predicted perfectly: there may be errors that the sample does not show."""
    truth = np.zeros(50)
    truth[0] = 1
    proxies = truth[:, None]
    sample = Sample(
        truth,
        np.ones(50),
        proxies,
        np.zeros((50, 1)),
        np.full((1, 1), 0.03),
        np.zeros((1, 1)),
        np.ones(50),
        BINARY,
        np.arange(50),
    )
    found = rectify([sample], draw_urn(np.random.default_rng(0), 4000, 50, 10_000))[0].rectified
    assert found.low < 0.01
    assert found.high > 0.05


def test_steep_piece_of_a_curve_is_not_extended():
    """Proxies between 0.9 and 1 in the sample, as low as 0 elsewhere: a slope of five would move the mean by half."""
    proxy = np.linspace(0.9, 1.0, 40)
    truth = (proxy > 0.93).astype(float)
    none, means = np.zeros((40, 1)), np.full((1, 1), 0.85)
    sample = Sample(
        truth, np.ones(40), proxy[:, None], none, means, np.zeros((1, 1)), np.ones(40), BINARY, np.arange(40)
    )
    (found,) = rectify([sample], draw_urn(np.random.default_rng(0), 1000, 40, math.inf), slopes=None)
    assert abs(found.rectified.estimate - truth.mean()) <= abs(0.85 - proxy.mean()) + 1e-9


def test_useless_votes_cost_nothing():
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 2, 500)
    votes = le.Votes.from_matrix(generator.integers(0, 2, (500, 5)), num_classes=2)
    widths = []
    for seed in range(10):
        row = le.estimate(votes, some_gold(labels, 30, seed), key=KEY, method=le.methods.MajorityVote()).iloc[0]
        widths.append((row["high"] - row["low"]) / (row["gold_high"] - row["gold_low"]))
    assert max(widths) <= 1


def test_quantities_against_counting():
    """With every label known the table is plain counting, missing and repeated votes included."""
    votes, labels = simulated(200, missing=0.3)
    table = le.estimate(votes, labels, key=KEY, compare=(0, 1), functions={"cost": [1.0, 5.0]}).set_index(
        ["quantity", "of"]
    )
    value = table["estimate"]
    matrix = votes.matrix
    voted = matrix >= 0
    right = matrix == labels[:, None]
    assert value["prevalence", "1"] == pytest.approx(labels.mean())
    assert value["mean", "cost"] == pytest.approx(np.where(labels == 1, 5.0, 1.0).mean())
    for voter in range(4):
        mine = voted[:, voter]
        assert value["accuracy", str(voter)] == pytest.approx(right[mine, voter].mean())
        assert value["sensitivity", str(voter)] == pytest.approx(right[mine & (labels == 1), voter].mean())
        assert value["specificity", str(voter)] == pytest.approx(right[mine & (labels == 0), voter].mean())
    both = voted[:, 0] & voted[:, 1]
    assert value["difference", "0 − 1"] == pytest.approx((right[both, 0] * 1.0 - right[both, 1]).mean())
    wins = le.estimate(votes, labels, key=KEY, compare=("1", "0"), functions={}).set_index("quantity")
    assert "difference" in wins.index  # voters come before classes
    long = le.Votes.from_long(
        {"item": [0, 0, 1, 1], "voter": ["a"] * 4, "vote": ["x", "y", "x", "x"]}, duplicates="keep", classes=("x", "y")
    )
    (accuracy,) = (found for found in list_quantities(long) if found.name == "accuracy")
    np.testing.assert_allclose(accuracy.top, [[0.5, 0.5], [1, 0]])


def test_win_rate_counts_ties_half():
    frame = {"item": range(60), "voter": ["j"] * 60, "vote": ["A", "B", "tie"] * 20}
    votes = le.Votes.from_long(frame)
    gold = dict(zip(range(60), ["A", "A", "tie"] * 20, strict=True))
    row = le.estimate(votes, gold, key=KEY, compare=("A", "B"), method=le.methods.MajorityVote()).set_index("quantity")
    assert row.loc["win rate", "estimate"] == pytest.approx(2 / 3 + 1 / 6)
    assert row.loc["win rate", "p_value"] < 0.01


def test_weights_undo_unequal_sampling():
    votes, labels = simulated(3000, seed=5)
    probability = np.where(votes.matrix[:, 0] == 1, 0.3, 0.05)
    estimates, naive, hits = [], [], 0
    for seed in range(30):
        chosen = np.random.default_rng(100 + seed).random(3000) < probability
        gold = np.where(chosen, labels, -1)
        row = first_row(votes, gold, weights=1 / probability)
        estimates.append(row["gold_only"])
        naive.append(labels[chosen].mean())
        hits += row["low"] <= labels.mean() <= row["high"]
    assert np.mean(estimates) == pytest.approx(labels.mean(), abs=0.01)
    assert np.mean(naive) > labels.mean() + 0.1
    assert hits >= 26


def test_clusters_widen_intervals():
    """Copies of one item in each cluster: the interval is that of the clusters."""
    votes, labels = simulated(100, seed=7)
    copied = le.Votes.from_matrix(np.repeat(votes.matrix, 4, axis=0), num_classes=2)
    gold, repeated = some_gold(labels, 40), np.repeat(some_gold(labels, 40), 4)
    settings = {"key": KEY, "method": le.methods.MajorityVote(), "population": math.inf}
    once = le.estimate(votes, gold, **settings).iloc[1]
    with_clusters = le.estimate(copied, repeated, cluster=np.arange(400) // 4, **settings).iloc[1]
    without = le.estimate(copied, repeated, **settings).iloc[1]
    width = once["gold_high"] - once["gold_low"]
    assert with_clusters["gold_high"] - with_clusters["gold_low"] == pytest.approx(width, rel=0.05)
    assert with_clusters["standard_error"] == pytest.approx(once["standard_error"], rel=0.05)
    assert without["gold_high"] - without["gold_low"] < 0.6 * width


def test_segments_are_separate_and_tested_together():
    generator = np.random.default_rng(8)
    labels = (generator.random(900) < np.repeat([0.2, 0.25, 0.7], 300)).astype(int)
    matrix = np.where(generator.random((900, 5)) < 0.8, labels[:, None], 1 - labels[:, None])
    votes = le.Votes.from_matrix(matrix, num_classes=2)
    segment = np.repeat(["x", "y", "z"], 300)
    table = le.estimate(votes, some_gold(labels, 200), key=KEY, by=segment)
    rows = table[(table["quantity"] == "prevalence") & (table["of"] == "1")].set_index("segment")
    assert rows.index.tolist() == ["all", "x", "y", "z"]
    assert 3 * 2 / 4001 <= rows.loc["z", "p_value"] < 0.01  # three times the smallest that 4,000 draws can show
    assert rows.loc["z", "low"] > rows.loc["x", "high"]
    assert rows.loc[["x", "y", "z"], "labels"].sum() == rows.loc["all", "labels"] == 200


def test_method_that_sees_gold_labels_is_cross_fitted():
    """A method that repeats the labels it was given and guesses otherwise must not seem certain."""
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 2, 300)
    votes = le.Votes.from_matrix(generator.integers(0, 2, (300, 4)), num_classes=2)
    row = le.estimate(votes, some_gold(labels, 60), key=KEY, method=le.methods.Stacked(), folds=5).iloc[1]
    assert row["worth_labels"] < 75
    assert row["high"] - row["low"] > 0.9 * (row["gold_high"] - row["gold_low"])


def test_same_key_same_result():
    votes, labels = simulated(200)
    gold = some_gold(labels, 40)
    assert le.estimate(votes, gold, key=KEY).equals(le.estimate(votes, gold, key=KEY))


def test_bad_input_is_refused_in_a_sentence():
    votes, labels = simulated(200)
    gold = some_gold(labels, 40)
    refused = {
        "at least 2": {"gold": some_gold(labels, 1)},
        "at least 1": {"weights": np.full(200, 0.5)},
        "one cluster": {"cluster": np.zeros(200)},
        "two voters or two classes": {"compare": ("a", "b")},
        "same twice": {"compare": (0, 0)},
        "between 0 and 1": {"level": 95},
        "folds=1": {"folds": 1},
        "one finite value": {"functions": {"x": [1.0]}},
        "there are 200 items": {"by": ["x", "y"]},
    }
    for words, settings in refused.items():
        with pytest.raises(VotesError, match=words):
            le.estimate(votes, **({"gold": gold, "key": KEY} | settings))


def test_doubtful_input_is_warned_of():
    votes, labels = simulated(400)
    easy = np.where(votes.tally.max(axis=1) == 4, labels, -1)
    with pytest.warns(LatentensWarning, match="random sample"):
        le.estimate(votes, easy, key=KEY)
    with pytest.warns(LatentensWarning, match="are few"):
        le.estimate(votes, some_gold(labels, 10), key=KEY)
    segments = np.where(some_gold(labels, 40) >= 0, "x", np.where(np.arange(400) % 2, "x", "y"))
    with pytest.warns(LatentensWarning, match="no gold labels in segment 'y'"):
        table = le.estimate(votes, some_gold(labels, 40), key=KEY, by=segments)
    empty = table[table["segment"] == "y"].iloc[0]
    assert np.isnan(empty["estimate"])
    assert not np.isnan(empty["label_free"])
    positive = np.flatnonzero(labels == 1)[:25]
    with pytest.warns(LatentensWarning, match="all 25 gold labels are 1"):
        table = le.estimate(votes, {int(item): 1 for item in positive}, key=KEY, cluster=np.arange(400))
    table = table.set_index(["quantity", "of"])
    assert np.isnan(table.loc[("specificity", "0"), "estimate"])
    assert table.loc[("prevalence", "0"), "high"] > 0.05


def test_sentences():
    votes, labels = simulated(600)
    table = le.estimate(votes, some_gold(labels, 100), key=KEY)
    assert any("as precise as" in words for words in le.estimation.explain(table))
