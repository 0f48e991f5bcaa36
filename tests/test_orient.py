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


def test_a_tie_leaves_the_order_alone():
    votes = Votes.from_matrix([[0, 1], [1, 0]])
    posterior = np.array([[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_array_equal(orientation(posterior, votes), [0, 1])


def test_shares_of_items_without_votes_are_equal():
    votes = Votes.from_matrix([[0, 0, 1], [-1, -1, -1], [2, -1, 2]])
    np.testing.assert_allclose(vote_shares(votes), [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0, 1]])
