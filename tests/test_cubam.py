import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from latentens.methods import Cubam, cubam
from latentens.methods.cubam import SIGNAL_GRID, Voters, estimate_signals, estimate_voters
from latentens.scores.scores import balanced_accuracy
from latentens.votes.layout import Cells, vote_indicator
from tests.reference import KEY, independent_votes, load_or_skip, percent


@pytest.mark.parametrize(("name", "expected"), [("magic/1", 70.06), ("magic/2", 65.16)])
def test_published_accuracy(name, expected):
    assert percent(Cubam(), name) == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("S1", 92.32), ("S3", 87.65)])
def test_published_accuracy_on_large_sets(name, expected):
    assert percent(Cubam(), name) == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "mean", "deviation"),
    [("condInd", 91.96, 0.36), ("Tree", 91.96, 0.6), ("LG", 77.12, 0.6), ("TG", 83.43, 0.62)],
)
@pytest.mark.parametrize("number", [1, 2])
def test_accuracy_scatters_around_the_published_mean(family, mean, deviation, number):
    assert percent(Cubam(), f"{family}/{number}") == pytest.approx(mean, abs=deviation)


def log_prior_of_signal(signal):
    centre = np.ones_like(signal)
    return np.logaddexp(*(norm.logpdf(signal, side * centre, 0.8).sum() for side in (-1, 1)))


def row_objective(signal, row, voters):
    """Log-posterior of one row's signal, vote by vote."""
    total = log_prior_of_signal(signal)
    for vote, weight, threshold in zip(row, voters.weight, voters.threshold, strict=True):
        if vote >= 0:
            total += norm.logcdf((2 * vote - 1) * (weight @ signal - threshold))
    return total


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_signals_maximise_the_posterior_of_their_row(dimensions, missing):
    votes, _ = independent_votes(12, np.full(6, 0.8), np.full(6, 0.7), missing=missing)
    generator = np.random.default_rng(0)
    voters = Voters(1 + 0.2 * generator.normal(size=(6, dimensions)), 0.3 * generator.normal(size=6))
    found = estimate_signals(Cells.of(votes), vote_indicator(votes, 2), voters)
    for row, signal in zip(votes.matrix, found, strict=True):
        starts = [np.full(dimensions, side) for side in (-1.0, 1.0)]
        best = min(
            (minimize(lambda z, row=row: -row_objective(z, row, voters), s) for s in starts), key=lambda r: r.fun
        )
        assert row_objective(signal, row, voters) >= -best.fun - 1e-6


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_voters_maximise_the_posterior_given_the_signals(missing):
    votes, _ = independent_votes(40, np.full(3, 0.8), np.full(3, 0.7), missing=missing)
    rows, counts, _ = votes.patterns
    signals = np.random.default_rng(0).normal(size=(rows.num_items, 1))
    start = Voters(np.ones((3, 1)), np.zeros(3))
    found = estimate_voters(Cells.of(rows), counts, signals, start)
    for j in range(3):

        def objective(parameters, j=j):
            weight, threshold = parameters
            cast = rows.matrix[:, j] >= 0
            margin = (2 * rows.matrix[cast, j] - 1) * (weight * signals[cast, 0] - threshold)
            return counts[cast] @ norm.logcdf(margin) + norm.logpdf(weight, 1, 1) + norm.logpdf(threshold, 0, 3)

        best = minimize(lambda p: -objective(p), [1.0, 0.0])
        assert objective((found.weight[j, 0], found.threshold[j])) == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("top", [-4.99, -0.4, 0.013, 3.049, 7.0])
def test_the_top_between_points_of_the_grid_is_near(top):
    heights = -np.cosh(SIGNAL_GRID - top) - (SIGNAL_GRID - top) ** 3 / 10
    inside = np.clip(top, -5.0, 5.0)
    assert cubam._top_near_grid(heights[None]) == pytest.approx(inside, abs=1e-6 if abs(top) < 4.9 else 0.05)


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_few_newton_steps_lead_where_many_do(dimensions, missing, monkeypatch):
    votes, _ = independent_votes(300, np.linspace(0.6, 0.9, 8), np.full(8, 0.7), missing=missing)
    few = Cubam(dimensions).fit(votes, key=KEY)
    monkeypatch.setattr(cubam, "NEWTON_TOLERANCE", 1e-12)
    monkeypatch.setattr(cubam, "_top_near_grid", lambda heights: SIGNAL_GRID[heights.argmax(axis=1)])
    many = Cubam(dimensions).fit(votes, key=KEY)
    np.testing.assert_allclose(few.params["weight"], many.params["weight"], atol=1e-4)
    np.testing.assert_array_equal(few.codes, many.codes)


def test_the_number_of_rounds_matters_and_is_reported():
    dataset = load_or_skip("magic/1")
    fits = {rounds: Cubam(rounds=rounds).fit(dataset.votes, key=KEY) for rounds in (2, 30)}
    scores = {rounds: balanced_accuracy(dataset.labels, fit.codes) for rounds, fit in fits.items()}
    assert scores[2] != scores[30]
    assert fits[30].diagnostics.iterations == 30
    assert not fits[30].diagnostics.converged
