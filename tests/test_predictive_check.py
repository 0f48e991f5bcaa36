"""Predictive checks: expectations by enumeration, deviations by refitting, verdicts on votes of known origin."""

from dataclasses import replace
from itertools import combinations, product

import jax
import numpy as np
import pytest

from latentens import Votes, simulate
from latentens.checks import check_fit
from latentens.checks.statistics import Agreement, VoteCounts, VoteRates, VoteRows, states_of, statistics_of
from latentens.errors import LatentensError
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.models import DawidSkene
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from tests.conftest import arbitrary_params
from tests.reference import two_class

KEY = jax.random.key(0)
MODEL = DawidSkene(4)
TRUTH = two_class(0.4, np.full(4, 0.8), np.array([0.7, 0.8, 0.9, 0.6]))
EM = DawidSkeneEM(diagonal=0.0, off_diagonal=0.0, random_starts=0)


def states_at(model, params):
    return double_precision(lambda: states_of(checked_tables(model, params)))()


def by_enumeration(states, cast, statistic):
    """The mean of a statistic over all ways in which voters who vote so many times can vote."""
    voters = np.repeat(np.arange(len(cast)), cast)
    num_classes, total = states.emission.shape[2], 0.0
    for votes in product(range(num_classes), repeat=len(voters)):
        counts = np.zeros((1, len(cast), num_classes))
        np.add.at(counts, (0, voters, list(votes)), 1)
        chance = states.share @ np.prod([states.emission[:, v, x] for v, x in zip(voters, votes, strict=True)], axis=0)
        total = total + chance * statistic.values(counts)[0]
    return total


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("cast", [(1, 1, 1, 1), (1, 0, 2, 1)], ids=["once", "gap and repetition"])
def test_expectations_are_those_of_all_rows(num_classes, cast):
    model = DawidSkene(4, num_classes)
    states = states_at(model, arbitrary_params(model, seed=1))
    counts = np.zeros((1, 4, num_classes))
    counts[0, :, 0] = cast
    bins = VoteCounts(np.array([1, 1, 1, 0]), np.array([0, 1, 3, 2]), np.array([0, 2, 4, 2]))
    pairs, triples = (Agreement("", np.array(list(combinations([0, 2, 3], size)))) for size in (2, 3))
    for statistic in (bins, VoteRates(num_classes), pairs, triples):
        expected = by_enumeration(states, cast, statistic)
        np.testing.assert_allclose(statistic.expected(states, counts)[0], expected, atol=1e-12)


def test_bins_hold_enough_items_and_all_of_them():
    votes = simulate(MODEL, 300, key=KEY, params=TRUTH).votes
    rows, states = VoteRows.of(votes, 2), states_at(MODEL, TRUTH)
    histogram = statistics_of(states, rows, 40.0)[0]
    expected = rows.total(lambda counts: histogram.expected(states, counts))
    assert expected.sum() == pytest.approx(300)
    assert expected.min() >= 40
    assert rows.total(histogram.values).sum() == 300


@pytest.fixture(scope="module")
def votes():
    matrix = simulate(MODEL, 600, key=KEY, params=TRUTH).votes.matrix.copy()
    matrix[::7, 2] = -1
    return Votes.from_matrix(matrix, num_classes=2)


@pytest.fixture(scope="module")
def check(votes):
    return check_fit(EM.fit(votes, key=KEY), votes, key=KEY)


def test_deviations_are_those_of_refitted_data(votes, check):
    """Data are drawn from the fit, fitted again, and compared with what the refit expects."""
    fit = EM.fit(votes, key=KEY)
    rows = VoteRows.of(votes, 2)
    statistics = statistics_of(states_at(MODEL, fit.params), rows, 10.0)
    drawn = {statistic.name: [] for statistic in statistics}
    for seed in range(60):
        matrix = simulate(MODEL, 600, key=jax.random.key(seed), params=fit.params).votes.matrix.copy()
        matrix[votes.matrix == -1] = -1
        again = Votes.from_matrix(matrix, num_classes=2)
        states, other = states_at(MODEL, EM.fit(again, key=KEY).params), VoteRows.of(again, 2)
        for statistic in statistics:
            expected = other.total(lambda counts, one=statistic, at=states: one.expected(at, counts))
            drawn[statistic.name].append(other.total(statistic.values) - expected)
    for part in check.statistics:
        found = np.std(drawn[part.name], axis=0)[part.tested]
        np.testing.assert_allclose(part.deviation[part.tested], found, rtol=0.4)
    rates = next(part for part in check.statistics if "casts" in part.name)
    assert not rates.tested[[0, 1, 2, 3, 6, 7]].any()  # without gaps maximum likelihood fits them whatever they are


def test_a_right_program_reproduces_the_votes(check):
    assert not check.rejected
    assert "reproduces the votes" in check.summary
    table = check.table
    assert (table.loc[table["deviation"] > 0, "z_score"].abs() < 4).all()


@pytest.mark.slow
def test_p_values_hold_their_level():
    """Refitted to data of its own a program is rejected about as often as it should be."""
    rejected = 0
    for seed in range(40):
        drawn = simulate(MODEL, 600, key=jax.random.key(seed), params=TRUTH).votes
        rejected += check_fit(EM.fit(drawn, key=KEY), drawn, key=KEY, level=0.2, num_draws=199).rejected
    assert rejected <= 14  # of 40 at 20 %: more would have a chance below 1 in 100


@pytest.fixture(scope="module")
def hard_items():
    """Half of the items are tossed, so that four votes agree or disagree more than independent voters' would."""
    generator = np.random.default_rng(0)
    labels = generator.integers(2, size=(600, 1))
    right = generator.random((600, 4)) < np.where(generator.random((600, 1)) < 0.5, 0.97, 0.6)
    return Votes.from_matrix(np.where(right, labels, 1 - labels))


def test_a_wrong_program_is_found_out(hard_items):
    copied = hard_items.matrix.copy()
    copied[:300, 1] = copied[:300, 0]
    votes = Votes(copied, 600, 4, 2, voter_names=("ann", "bob", "eve", "joe"), class_names=("no", "yes"))
    check = check_fit(EM.fit(votes, key=KEY), votes, key=KEY)
    assert check.rejected
    assert check.misfits
    assert "does not reproduce the votes" in check.summary
    assert "ann" in check.summary or "yes" in check.summary


def test_a_sampled_fit_is_checked_by_its_draws(votes):
    fit, generator = EM.fit(votes, key=KEY), np.random.default_rng(0)
    for shift, rejected in ((0.0, False), (0.15, True)):
        draws = {}
        for name, value in fit.params.items():  # of each pair the second is moved, and the first is the rest
            moved = value[..., 1] - shift + generator.normal(0, 0.02, (2, 60, *value.shape[:-1]))
            draws[name] = np.stack([1 - moved, moved], axis=-1).clip(0.05, 0.95)
        assert check_fit(replace(fit, draws=draws), votes, key=KEY).rejected == rejected


def test_repeated_votes_are_counted():
    item, voter = np.indices((200, 3)).reshape(2, -1)
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=200)
    again = {"item": np.append(item, np.arange(200)), "voter": np.append(voter, np.zeros(200, dtype=int))}
    right = rng.random(len(again["item"])) < 0.8
    again["vote"] = np.where(right, label[again["item"]], 1 - label[again["item"]])
    votes = Votes.from_long(again, duplicates="keep")
    check = check_fit(EM.fit(votes, key=KEY), votes, key=KEY)
    assert not check.rejected
    assert check.statistics[1].observed.sum() == 800


def test_a_method_without_a_program_is_refused(votes):
    with pytest.raises(LatentensError, match="has no generative model"):
        check_fit(MajorityVote().fit(votes, key=KEY), votes, key=KEY)
