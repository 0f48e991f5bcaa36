import numpy as np
import pytest

from latentens.scores import balanced_accuracy, log_score, mean_kl


def test_balanced_accuracy_weighs_classes_equally_and_skips_unknown_labels():
    labels = np.array([0, 0, 0, 0, 1, -1])
    assert balanced_accuracy(labels, np.array([0, 0, 0, 1, 1, 1])) == pytest.approx((0.75 + 1) / 2)
    assert balanced_accuracy(labels, np.zeros(6, dtype=int)) == 0.5


def test_log_score_is_the_mean_surprise():
    probs = np.array([[0.5, 0.5], [0.1, 0.9], [1.0, 0.0]])
    assert log_score(np.array([0, 1, -1]), probs) == pytest.approx((np.log(2) - np.log(0.9)) / 2)
    assert np.isfinite(log_score(np.array([0, 1, 1]), probs))


def test_divergence_is_zero_only_at_the_exact_posterior():
    exact = np.array([[0.2, 0.8], [1.0, 0.0]])
    assert mean_kl(exact, exact) == 0
    other = np.array([[0.3, 0.7], [0.9, 0.1]])
    by_hand = (0.2 * np.log(2 / 3) + 0.8 * np.log(8 / 7) + np.log(1 / 0.9)) / 2
    assert mean_kl(exact, other) == pytest.approx(by_hand)
