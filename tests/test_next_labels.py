"""What to ask next, and what each judge is worth: against enumeration, closed forms and simulated sets."""

import jax
import numpy as np
import pandas as pd
import pytest

import latentens as le
from latentens.errors import VotesError
from latentens.estimation.next_labels import inclusion_probabilities, systematic_sample
from tests.test_estimate import KEY, simulated, some_gold


@pytest.fixture(scope="module")
def fitted():
    votes, labels = simulated(400, missing=0.3)
    return votes, labels, le.methods.DawidSkeneEM().fit(votes, key=KEY)


def test_inclusion_probabilities_sum_to_the_budget_and_stay_below_one():
    wanted = np.array([1.0, 1.0, 2.0, 50.0, 1.0])
    np.testing.assert_allclose(inclusion_probabilities(wanted, 2), [0.2, 0.2, 0.4, 1.0, 0.2])
    np.testing.assert_allclose(inclusion_probabilities(wanted, 5), np.ones(5))


def test_systematic_sample_has_these_probabilities():
    chance = np.array([0.1, 0.5, 0.9, 0.5, 1.0, 0.0])
    generator = np.random.default_rng(0)
    counts = np.zeros(6)
    for _ in range(4000):
        drawn = systematic_sample(chance, generator)
        assert len(set(drawn.tolist())) == 3
        counts[drawn] += 1
    np.testing.assert_allclose(counts / 4000, chance, atol=0.03)


@pytest.mark.parametrize("purpose", ["prevalence", "accuracy", "labels", "orientation"])
def test_chosen_items(fitted, purpose):
    _, _, fit = fitted
    table = le.next_labels(fit, 50, key=KEY, for_=purpose)
    assert len(table) == table["item"].nunique() == 50
    assert table["ask"].all()
    assert table["probability"].between(0.5 * 50 / 400, 1).all()
    np.testing.assert_allclose(table["weight"] * table["probability"], 1)
    unsure = table["confidence"].mean() < fit.label_probs.max(axis=1).mean()
    assert unsure == (purpose != "orientation")
    even = le.next_labels(fit, 50, key=KEY, for_=purpose, floor=1.0)
    np.testing.assert_allclose(even["probability"], 50 / 400)
    assert even.attrs["worth"] == pytest.approx(50)
    assert le.next_labels(fit, 50, key=KEY, for_=purpose).equals(table)


def test_chosen_labels_keep_estimates_valid(fitted):
    """Unbiased over samples, and worth more than as many random labels by the posterior that chose them."""
    votes, labels, fit = fitted
    estimates = []
    for seed in range(25):
        table = le.next_labels(fit, 60, key=jax.random.key(seed)).set_index("item")
        gold = {item: int(labels[item]) for item in table.index}
        weights = {item: float(weight) for item, weight in table["weight"].items()}
        row = le.estimate(votes, gold, key=KEY, weights=weights, method=le.methods.MajorityVote(), draws=500).iloc[1]
        estimates.append((row["estimate"], row["low"] <= labels.mean() <= row["high"]))
    values, inside = np.array(estimates).T
    assert np.mean(values) == pytest.approx(labels.mean(), abs=4 * values.std() / 5)
    assert inside.sum() >= 21
    assert table.attrs == {} or table.attrs["worth"] > 60


def test_second_round_accounts_for_the_first(fitted):
    _, labels, fit = fitted
    gold = some_gold(labels, 40)
    table = le.next_labels(fit, 50, key=KEY, gold=gold, floor=1.0)
    assert table["ask"].sum() == 50
    assert set(table.loc[~table["ask"], "item"]) == set(np.flatnonzero(gold >= 0).tolist())
    np.testing.assert_allclose(table["probability"], 90 / 400)
    assert table["weight"].sum() == pytest.approx(400)


def test_labels_needed_inverts_the_width():
    table = pd.DataFrame({"low": [0.4, 0.4], "high": [0.6, 0.6], "labels": [100, 100]})
    assert le.labels_needed(table, 0.05).tolist() == [400, 400]
    assert le.labels_needed(table, 0.1).tolist() == [100, 100]
    needed = float(le.labels_needed(table, 0.05, num_items=1000).iloc[0])
    assert (1 / needed - 1 / 1000) / (1 / 100 - 1 / 1000) == pytest.approx(0.25, rel=0.01)


def test_whom_to_ask_against_enumeration(fitted):
    votes, _, fit = fitted
    table = le.next_votes(fit, 30)
    assert table["item"].nunique() == 30
    assert table["information"].is_monotonic_decreasing
    skill = fit.summary.skill
    counts = skill.votes[:, None, None]
    confusion = (skill.confusion * counts + 0.5) / (counts + 1)
    for row in table.itertuples():
        assert votes.matrix[row.item, row.voter] == -1
        gains = []
        for voter in np.flatnonzero(votes.matrix[row.item] == -1):
            joint = fit.label_probs[row.item][:, None] * confusion[voter]
            apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
            gains.append((joint * np.log(joint / apart)).sum())
        assert row.information == pytest.approx(max(gains), rel=1e-6)
    assert len(le.next_votes(fit, 10**6, per_item=4)) == votes.num_missing


def test_effective_judges_are_counted_by_their_errors():
    """Six copies of one judge and two independent ones; by formula J/(1 + (J − 1)ρ)."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 2000)
    wrong = generator.random((2000, 3)) < 0.25
    wrong = np.hstack([np.repeat(wrong[:, :1], 6, axis=1), wrong[:, 1:]])
    votes = le.Votes.from_matrix(np.where(wrong, 1 - labels[:, None], labels[:, None]), num_classes=2)
    found = le.effective_judges(votes, some_gold(labels, 800), key=KEY, resamples=200)
    expected = 8 / (1 + 7 * 30 / 56)  # 30 of 56 ordered pairs are copies
    assert found.low < expected < found.high
    assert found.number == pytest.approx(expected, rel=0.15)
    apart = le.Votes.from_matrix(np.where(wrong[:, 5:], 1 - labels[:, None], labels[:, None]), num_classes=2)
    assert le.effective_judges(apart, labels, key=KEY, resamples=50).number == pytest.approx(3, rel=0.15)


def test_judges_add_what_leaving_them_out_costs():
    votes, labels = simulated(500, accuracies=(0.95, 0.6, 0.6, 0.6, 0.6))
    table = le.judge_worth(votes, some_gold(labels, 200), key=KEY, method=le.methods.DawidSkeneEM()).set_index("judge")
    assert table["accuracy_added"].idxmax() == 0
    assert table.loc[0, "p_value"] < 0.01
    assert table.loc[0, "log_score_added"] > 0
    last = table[table["rank"] == 5].iloc[0]
    assert last["accuracy_so_far"] == pytest.approx(table.attrs["accuracy"])
    gain = table.attrs["accuracy"] - table["accuracy_without"]
    np.testing.assert_allclose(gain, table["accuracy_added"], atol=1e-12)


def test_bad_input_is_refused(fitted):
    votes, _, fit = fitted
    for words, call in {
        "budget=0": lambda: le.next_labels(fit, 0, key=KEY),
        "must be one of prevalence": lambda: le.next_labels(fit, 5, key=KEY, for_="fun"),
        "floor=0": lambda: le.next_labels(fit, 5, key=KEY, floor=0),
        "must be positive": lambda: le.next_votes(fit, 0),
        "two gold labels": lambda: le.effective_judges(votes, {0: 1}, key=KEY),
        "three judges": lambda: le.judge_worth(votes, {0: 1}, key=KEY),
    }.items():
        with pytest.raises(VotesError, match=words):
            call()
