"""Rankings from pairs: strengths against a numerical maximum, intervals against simulated contestants."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import latentens as le
from latentens.errors import VotesError
from latentens.estimation.ranking import strengths
from latentens.methods import DawidSkeneEM
from latentens.votes import Votes

KEY = jax.random.key(0)
STRENGTHS = np.array([1.2, 0.6, 0.0, -0.6, -1.2])
NAMES = [f"model {place}" for place in range(5)]


def judged_pairs(num_items=300, num_judges=5, seed=0):
    """Votes of judges on pairs of contestants, the pairs, and who won."""
    generator = np.random.default_rng(seed)
    pairs = np.array([generator.choice(5, 2, replace=False) for _ in range(num_items)])
    apart = STRENGTHS[pairs[:, 0]] - STRENGTHS[pairs[:, 1]]
    right_wins = generator.random(num_items) > 1 / (1 + np.exp(-apart))
    wrong = generator.random((num_items, num_judges)) > np.linspace(0.7, 0.9, num_judges)
    words = np.where(right_wins[:, None] ^ wrong, "right", "left")
    return Votes.from_matrix(words), [(NAMES[a], NAMES[b]) for a, b in pairs], right_wins


def log_likelihood_by_loops(strength, wins):
    """Half a win and half a loss against a contestant of strength zero included."""
    total = 0.0
    for a in range(len(wins)):
        total -= 0.5 * np.log(1 + np.exp(strength[a])) + 0.5 * np.log(1 + np.exp(-strength[a]))
        for b in range(len(wins)):
            if a != b:
                total -= wins[a, b] * np.log(1 + np.exp(strength[b] - strength[a]))
    return total


def test_strengths_are_at_the_maximum():
    generator = np.random.default_rng(1)
    tables = generator.gamma(1.0, 3.0, (3, 5, 5)) * (1 - np.eye(5))
    tables[1, 0, 1:], tables[1, 1:, 0] = 40.0, 0.0  # who never loses
    tables[2, 4], tables[2, :, 4] = 0.0, 0.0  # who never plays
    for wins, found in zip(tables, strengths(tables), strict=True):
        best = minimize(lambda point, wins=wins: -log_likelihood_by_loops(point, wins), np.zeros(5), tol=1e-12)
        np.testing.assert_allclose(found, best.x, atol=1e-4)
        assert log_likelihood_by_loops(found, wins) >= -best.fun - 1e-10
    assert strengths(tables)[2, 4] == pytest.approx(0, abs=1e-10)


def test_strengths_are_those_of_choix():
    choix = pytest.importorskip("choix")
    wins = np.random.default_rng(2).gamma(1.0, 3.0, (6, 6)) * (1 - np.eye(6))
    with_average = np.pad(wins, (0, 1))
    with_average[:-1, -1] = with_average[-1, :-1] = 0.5
    found = choix.ilsr_pairwise_dense(with_average, max_iter=1000, tol=1e-12)
    np.testing.assert_allclose(strengths(wins), (found - found[-1])[:-1], atol=1e-6)


def test_contestants_are_ranked_by_the_posterior_of_the_labels():
    votes, pairs, _ = judged_pairs(800)
    fit = DawidSkeneEM().fit(votes, key=KEY)
    table = le.ranking(fit, pairs, key=KEY, num_draws=50)
    assert table["contestant"].tolist() == NAMES
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    # the maximum of the likelihood with winners summed out, by loops
    odds = fit.label_probs[:, 0] / fit.label_probs[:, 1] / (fit.label_probs[:, 0].mean() / fit.label_probs[:, 1].mean())

    def loss(strength):
        total = -log_likelihood_by_loops(strength, np.zeros((5, 5)))
        for (one, other), ratio in zip(pairs, odds, strict=True):
            chance = 1 / (1 + np.exp(strength[NAMES.index(other)] - strength[NAMES.index(one)]))
            total -= np.log(ratio * chance + 1 - chance)
        return total

    best = minimize(loss, np.zeros(5), tol=1e-10)
    np.testing.assert_allclose(table["strength"], best.x, atol=1e-3)
    assert loss(table["strength"].to_numpy()) <= best.fun + 1e-6
    assert ((table["low"] < table["strength"]) & (table["strength"] < table["high"])).all()
    frame = pd.DataFrame(pairs, columns=["left", "right"]).assign(item=[str(name) for name in fit.item_names])
    pd.testing.assert_frame_equal(le.ranking(fit, frame.sample(frac=1, random_state=0), key=KEY, num_draws=50), table)
    turned = [(other, one) for one, other in pairs]
    mirrored = le.ranking(fit, dict(zip(fit.item_names, turned, strict=True)), key=KEY, num_draws=50, left="right")
    np.testing.assert_allclose(mirrored["strength"], table["strength"], atol=1e-8)


def test_intervals_cover_the_strengths():
    covered = []
    for seed in range(15):
        votes, pairs, _ = judged_pairs(300, seed=seed)
        fit = DawidSkeneEM(random_starts=0).fit(votes, key=KEY)
        table = le.ranking(fit, pairs, key=jax.random.key(seed), num_draws=60, level=0.9).set_index("contestant")
        # strengths are relative to each other: compare them with their mean
        low, high = (table.loc[NAMES, end] - table["strength"].mean() for end in ("low", "high"))
        covered.append((low < STRENGTHS) & (high > STRENGTHS))
    assert 0.8 <= np.mean(covered) < 1


def test_pairs_that_do_not_fit_are_refused():
    votes, pairs, _ = judged_pairs(20)
    fit = DawidSkeneEM(random_starts=0).fit(votes, key=KEY)
    many = DawidSkeneEM(random_starts=0).fit(Votes.from_matrix([[0, 1, 2], [0, 0, 2]]), key=KEY)
    for given, words in (
        (pairs[:-1], "there are 19 pairs, but 20 items"),
        (dict(enumerate(pairs[:-1])), "item 19 has no pair"),
        ([("a", "a"), *pairs[1:]], "paired with itself"),
        (pd.DataFrame(pairs, columns=["left", "right"]), "no column 'item'"),
    ):
        with pytest.raises(VotesError, match=words):
            le.ranking(fit, given, key=KEY)
    with pytest.raises(VotesError, match="needs two classes"):
        le.ranking(many, pairs[:2], key=KEY)
    with pytest.raises(VotesError, match="is not a class of the fit"):
        le.ranking(fit, pairs, key=KEY, left="centre")
