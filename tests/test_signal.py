from itertools import combinations, permutations, product

import jax
import numpy as np
import pytest

from latentens import Votes
from latentens.checks import check_signal
from latentens.checks.signal import deviation_by_chance
from latentens.errors import VotesError

KEY = jax.random.key(0)


def excess_agreement(matrix, num_classes):
    """Σ over items and pairs of voters of the product of their deviations from their own shares, one by one."""
    total = 0.0
    for a, b in combinations(range(matrix.shape[1]), 2):
        shares = [
            np.array([np.mean(matrix[matrix[:, voter] >= 0, voter] == k) for k in range(num_classes)])
            for voter in (a, b)
        ]
        for x, z in matrix[:, [a, b]]:
            if x >= 0 and z >= 0:
                total += (np.eye(num_classes)[x] - shares[0]) @ (np.eye(num_classes)[z] - shares[1])
    return total


def coins(generator, num_items, num_voters):
    return Votes.from_matrix(generator.integers(2, size=(num_items, num_voters)))


def weak_voters(generator, num_items, num_voters, accuracy):
    labels = generator.integers(2, size=(num_items, 1))
    return Votes.from_matrix(np.where(generator.random((num_items, num_voters)) < accuracy, labels, 1 - labels))


def test_excess_is_the_sum_over_pairs():
    generator = np.random.default_rng(0)
    matrix = generator.integers(-1, 3, size=(30, 5))
    check = check_signal(Votes.from_matrix(matrix, num_classes=3), key=KEY, num_permutations=9)
    agreeing, pairs = 0, 0
    for row in matrix:
        for x, z in combinations(row[row >= 0], 2):
            pairs += 1
            agreeing += x == z
    assert check.num_pairs == pairs
    assert check.agreement == pytest.approx(agreeing / pairs)
    assert check.agreement - check.by_chance == pytest.approx(excess_agreement(matrix, 3) / pairs)


def test_p_value_and_deviation_are_those_of_all_permutations():
    matrix = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 1]])
    votes = Votes.from_matrix(matrix)
    columns = [[matrix[list(order), voter] for order in permutations(range(4))] for voter in range(3)]
    drawn = np.array(
        [excess_agreement(np.stack(chosen, axis=1), 2) for chosen in product(columns[0][:1], *columns[1:])]
    )
    exact = np.mean(drawn >= excess_agreement(matrix, 2) - 1e-9)
    assert check_signal(votes, key=KEY, num_permutations=4000).p_value == pytest.approx(exact, abs=0.03)
    shares = np.array([[np.mean(column == k) for k in range(2)] for column in matrix.T])
    spread = deviation_by_chance(votes.triplets.item, votes.triplets.voter, shares, np.full(3, 4))
    assert spread == pytest.approx(drawn.std())
    assert drawn.mean() == pytest.approx(0, abs=1e-12)


def test_many_votes_get_the_normal_approximation():
    generator = np.random.default_rng(3)
    matrix = weak_voters(generator, 400, 6, 0.56).matrix.copy()
    matrix[generator.random(matrix.shape) < 0.4] = -1
    votes = Votes.from_matrix(matrix)
    permuted = check_signal(votes, key=KEY, num_permutations=3000)
    approximate = check_signal(votes, key=KEY, most_permuted=0)
    assert 0.01 < permuted.p_value < 0.5
    assert approximate.p_value == pytest.approx(permuted.p_value, abs=0.03)


def test_coin_tosses_alarm_as_often_as_they_should():
    generator = np.random.default_rng(1)
    found = [check_signal(coins(generator, 60, 5), key=KEY, level=0.2, num_permutations=99).found for _ in range(60)]
    assert 4 <= sum(found) <= 20


def test_words_and_signal():
    generator = np.random.default_rng(2)
    signal = check_signal(weak_voters(generator, 300, 6, 0.7), key=KEY)
    assert signal.found
    assert signal.p_value == 0.001
    assert signal.agreement == pytest.approx(0.58, abs=0.03)
    assert signal.by_chance == pytest.approx(0.5, abs=0.03)
    assert "agree more than by chance" in signal.summary
    nothing = check_signal(coins(generator, 300, 6), key=KEY)
    assert not nothing.found
    assert "Do not trust" in nothing.summary
    assert check_signal(coins(generator, 300, 6), key=KEY) != nothing
    same = Votes.from_matrix(np.ones((5, 3), dtype=int))
    assert check_signal(same, key=KEY).p_value == 1  # everybody always says the same: agreement is by chance


def test_agreement_with_oneself_is_no_signal():
    item, voter = np.repeat(np.arange(40), 4), np.tile([0, 0, 1, 1], 40)
    vote = np.random.default_rng(4).integers(2, size=(40, 2)).repeat(2, axis=1).ravel()
    twice = Votes.from_long({"item": item, "voter": voter, "vote": vote}, duplicates="keep")
    once = Votes.from_long({"item": item[::2], "voter": voter[::2], "vote": vote[::2]})
    assert twice.has_repeats
    assert check_signal(twice, key=KEY) == check_signal(once, key=KEY)


def test_nobody_to_agree_with():
    with pytest.raises(VotesError, match="no item has votes from two voters"):
        check_signal(Votes.from_matrix([[0, -1], [-1, 1]]), key=KEY)


def test_of_repeated_votes_any_one_counts():
    """The lowest of two tossed votes is 0 three times out of four, which all voters would seem to agree on."""
    generator = np.random.default_rng(0)
    item, voter, turn = np.indices((2000, 3, 2)).reshape(3, -1)
    votes = Votes.from_long(
        {"item": item, "voter": voter, "vote": generator.integers(2, size=item.size)}, duplicates="keep"
    )
    check = check_signal(votes, key=jax.random.key(0))
    assert check.num_pairs == 6000
    assert check.by_chance == pytest.approx(0.5, abs=0.02)
    assert turn.max() == 1
