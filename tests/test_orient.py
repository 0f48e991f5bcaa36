from itertools import permutations

import numpy as np
import pytest

from latentens import Votes
from latentens.inference.orient import orientation, vote_shares


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_every_relabelling_is_undone(num_classes):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, 200)
    matrix = np.where(rng.random((200, 7)) < 0.6, labels[:, None], rng.integers(0, num_classes, (200, 7)))
    votes = Votes.from_matrix(matrix, num_classes)
    posterior = 0.9 * np.eye(num_classes)[labels] + 0.1 / num_classes
    for order in permutations(range(num_classes)):
        relabelled = posterior[:, order]
        np.testing.assert_array_equal(relabelled[:, orientation(relabelled, votes)], posterior)


def test_a_rare_vote_marks_the_class_in_which_it_is_less_rare():
    rng = np.random.default_rng(1)
    often = np.arange(1000) < 700  # one class has more of the items, and more of the few votes for 1
    votes = Votes.from_matrix((rng.random((1000, 9)) < np.where(often, 0.07, 0.01)[:, None]).astype(int), 2)
    says_one = np.where(often, 0.8, 0.2)
    posterior = np.stack([1 - says_one, says_one], axis=1)
    for order in ([0, 1], [1, 0]):
        np.testing.assert_array_equal(posterior[:, order][:, orientation(posterior[:, order], votes)], posterior)


def test_a_class_of_hardly_any_items_takes_no_name_from_another():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 300)
    matrix = np.where(rng.random((300, 7)) < 0.7, labels[:, None], rng.integers(0, 3, (300, 7)))
    matrix[0] = 0  # the only item of the third class is voted 0 by all
    posterior = 0.98 * np.eye(3)[labels] + 0.02 / 3
    posterior[0] = [0, 0, 1]
    np.testing.assert_array_equal(orientation(posterior, Votes.from_matrix(matrix, 3)), [0, 1, 2])


def test_a_class_that_took_over_another_is_named_by_its_votes():
    """Class 2 has the items of two labels, most of whose votes are for 2; votes for 3 hardly occur elsewhere."""
    rng = np.random.default_rng(5)
    classes = rng.choice(4, 600, p=[0.15, 0.2, 0.64, 0.01])
    rates = np.array([[0.7, 0.2, 0.1, 0], [0.2, 0.5, 0.25, 0.05], [0.02, 0.2, 0.42, 0.36], [0.1, 0.1, 0.2, 0.6]])
    matrix = np.array([rng.choice(4, 7, p=rates[label]) for label in classes])
    posterior = 0.97 * np.eye(4)[classes] + 0.03 / 4
    for order in permutations(range(4)):
        relabelled = posterior[:, order]
        found = orientation(relabelled, Votes.from_matrix(matrix, 4))
        np.testing.assert_array_equal(relabelled[:, found], posterior)


def test_a_tie_leaves_the_order_alone():
    votes = Votes.from_matrix([[0, 1], [1, 0]])
    posterior = np.array([[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_array_equal(orientation(posterior, votes), [0, 1])


def test_shares_of_items_without_votes_are_equal():
    votes = Votes.from_matrix([[0, 0, 1], [-1, -1, -1], [2, -1, 2]])
    np.testing.assert_allclose(vote_shares(votes), [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0, 1]])


def test_rows_with_counts_are_oriented_like_the_items_they_stand_for():
    rng = np.random.default_rng(3)
    rows, counts = rng.integers(0, 2, (12, 3)), rng.integers(1, 50, 12)
    for says_one in rng.random((20, 12)):
        posterior = np.stack([1 - says_one, says_one], axis=1)
        of_items = orientation(posterior.repeat(counts, axis=0), Votes.from_patterns(rows, counts, 2))
        np.testing.assert_array_equal(orientation(posterior, Votes.from_matrix(rows, 2), counts=counts), of_items)
