import warnings

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score

from latentens.scores.scores import SCORES, balanced_accuracy, evaluate, mean_kl

DISTANCES = ["mean_kl", "total_variation", "root_mean_square_difference", "accuracy_regret"]


def calibrated(num_items, num_classes, seed):
    """Labels drawn from the stated posterior, which is therefore exact; some probabilities are shared by many items."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(num_classes, 0.3), num_items)
    probs[: num_items // 3] = probs[rng.integers(0, 5, num_items // 3)]
    labels = (rng.random((num_items, 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return labels, probs


def overconfident(probs):
    """The posterior whose logits are doubled."""
    return probs**2 / (probs**2).sum(axis=1, keepdims=True)


def test_balanced_accuracy_weighs_classes_equally_and_skips_unknown_labels():
    labels = np.array([0, 0, 0, 0, 1, -1])
    assert balanced_accuracy(labels, np.array([0, 0, 0, 1, 1, 1])) == pytest.approx((0.75 + 1) / 2)
    assert balanced_accuracy(labels, np.zeros(6, dtype=int)) == 0.5


def test_log_score_is_the_mean_surprise():
    probs = np.array([[0.5, 0.5], [0.1, 0.9], [1.0, 0.0]])
    assert evaluate(np.array([0, 1, -1]), probs)["log_score"] == pytest.approx((np.log(2) - np.log(0.9)) / 2)
    assert np.isfinite(evaluate(np.array([0, 1, 1]), probs)["log_score"])


def test_divergence_is_zero_only_at_the_exact_posterior():
    exact = np.array([[0.2, 0.8], [1.0, 0.0]])
    assert mean_kl(exact, exact) == 0
    other = np.array([[0.3, 0.7], [0.9, 0.1]])
    by_hand = (0.2 * np.log(2 / 3) + 0.8 * np.log(8 / 7) + np.log(1 / 0.9)) / 2
    assert mean_kl(exact, other) == pytest.approx(by_hand)


def test_every_score_is_described_and_comes_in_order():
    labels, probs = calibrated(200, 3, seed=1)
    computed = [score.name for score in SCORES if score.group != "Cost"]
    assert list(evaluate(labels, probs, probs)) == computed
    assert list(evaluate(labels, probs)) == [name for name in computed if name not in DISTANCES]


def slow_calibration(labels, probs, num_bins):
    """Both calibration errors by loops; bins are runs of the sorted confidences, all of them distinct."""
    confidence = probs.max(axis=1)
    parts = np.array_split(np.argsort(confidence), num_bins)
    plain, squared = 0.0, 0.0
    for part in parts:
        residuals = [float(probs[i].argmax() == labels[i]) - confidence[i] for i in part]
        pairs = [a * b for i, a in enumerate(residuals) for j, b in enumerate(residuals) if i != j]
        plain += abs(np.mean(residuals)) * len(part) / len(labels)
        squared += np.mean(pairs) * len(part) / len(labels)
    return plain, np.sqrt(max(squared, 0))


@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_against_scikit_learn_and_loops(num_classes):
    labels, exact = calibrated(300, num_classes, seed=2)
    probs = overconfident(exact)
    scores = evaluate(labels, probs, exact)
    predicted, happened = probs.argmax(axis=1), np.eye(num_classes)[labels]
    assert scores["accuracy"] == np.mean(predicted == labels)
    assert scores["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    area = roc_auc_score(labels, probs if num_classes > 2 else probs[:, 1], multi_class="ovr")
    assert scores["area_under_curve"] == pytest.approx(area)
    brier = sum(brier_score_loss(happened[:, k], probs[:, k]) for k in range(num_classes)) / 2
    assert scores["brier_score"] == pytest.approx(brier)
    recalibrated = [IsotonicRegression().fit_transform(probs[:, k], happened[:, k]) for k in range(num_classes)]
    refinement = sum(np.mean((p - happened[:, k]) ** 2) for k, p in enumerate(recalibrated)) / 2
    assert scores["brier_refinement"] == pytest.approx(refinement)
    assert scores["brier_calibration"] == pytest.approx(brier - refinement)
    confident = [i for i in range(300) if max(probs[i]) > 0.99]
    assert scores["confident_share"] == len(confident) / 300
    assert scores["confident_wrong"] == np.mean([labels[i] != predicted[i] for i in confident])
    assert scores["total_variation"] == pytest.approx(
        np.mean([max(p - q, 0) for p, q in both(probs, exact)]) * num_classes
    )
    assert scores["root_mean_square_difference"] ** 2 == pytest.approx(
        np.mean([(p - q) ** 2 for p, q in both(probs, exact)])
    )


def both(first, second):
    return zip(first.ravel(), second.ravel(), strict=True)


def test_calibration_errors_by_loops():
    rng = np.random.default_rng(4)
    stated = rng.random(300)
    probs, labels = np.stack([1 - stated, stated], axis=1), (rng.random(300) < 0.25 + stated / 2).astype(int)
    scores = evaluate(labels, probs)
    plain, debiased = slow_calibration(labels, probs, num_bins=15)
    assert scores["calibration_error"] == pytest.approx(plain)
    assert scores["calibration_error_debiased"] == pytest.approx(debiased)
    assert debiased > 0.05


def test_equal_confidences_stay_in_one_bin():
    """Two stated confidences, each held against its own accuracy: 50 of 60 and 20 of 40 are right."""
    stated = np.repeat([0.7, 0.9], [60, 40])
    labels = np.concatenate([np.arange(60) < 50, np.arange(40) < 20]).astype(int)
    scores = evaluate(labels, np.stack([1 - stated, stated], axis=1))
    assert scores["calibration_error"] == pytest.approx(0.6 * abs(50 / 60 - 0.7) + 0.4 * abs(20 / 40 - 0.9))


def test_the_better_way_is_that_of_the_exact_posterior():
    labels, exact = calibrated(1000, 2, seed=3)
    good, bad = evaluate(labels, exact, exact), evaluate(labels, exact[:, ::-1], exact)
    for score in SCORES:
        if score.group != "Cost":
            first, second = good[score.name], bad[score.name]
            expected = {"larger": first > second, "smaller": first < second, None: abs(first) <= abs(second)}
            assert expected[score.better], score.name


def test_regret_counts_what_the_wrong_choice_costs():
    exact = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    estimate = np.array([[0.1, 0.4, 0.5], [0.0, 0.4, 0.6]])
    assert evaluate(np.array([1, 2]), estimate, exact)["accuracy_regret"] == pytest.approx((0.5 - 0.3) / 2)


def test_items_with_unknown_labels_count_for_nothing_but_their_confidence():
    labels, probs = calibrated(400, 3, seed=5)
    hidden = np.where(np.arange(400) % 4 == 0, -1, labels)
    scores, shown = evaluate(hidden, probs, probs), evaluate(hidden[hidden >= 0], probs[hidden >= 0])
    for name in shown:
        if name != "confident_share":
            assert scores[name] == pytest.approx(shown[name]), name
    assert scores["confident_share"] == np.mean(probs.max(axis=1) > 0.99)


def test_undefined_scores_are_nan_and_say_nothing():
    _, probs = calibrated(50, 2, seed=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = evaluate(np.full(50, -1), probs, probs)
        one_class = evaluate(np.zeros(50, dtype=int), np.full((50, 2), 0.5))
        few_items = evaluate(np.ones(49, dtype=int), np.tile([0.4, 0.6], (49, 1)))
        enough = evaluate(np.ones(50, dtype=int), np.tile([0.4, 0.6], (50, 1)))
    defined = [name for name, value in nothing.items() if not np.isnan(value)]
    assert defined == ["confident_share", *DISTANCES]
    assert [name for name, value in one_class.items() if np.isnan(value)] == ["area_under_curve", "confident_wrong"]
    assert np.isnan(few_items["calibration_error"])
    assert enough["calibration_error"] == -enough["confidence_gap"] == pytest.approx(0.4)


def test_a_class_that_never_occurs_has_no_area():
    labels, probs = calibrated(300, 3, seed=7)
    labels = np.where(labels == 2, 1, labels)
    mean = np.mean([roc_auc_score(labels == k, probs[:, k]) for k in (0, 1)])
    assert evaluate(labels, probs)["area_under_curve"] == pytest.approx(mean)


CAUGHT_BY = [
    "log_score",
    "brier_score",
    "brier_calibration",
    "calibration_error",
    "calibration_error_debiased",
    "confident_wrong",
]


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_exact_posterior_is_calibrated_and_doubled_logits_are_caught_by_each_calibration_score(num_classes):
    """Each score is held against its distribution when labels do come from the stated probabilities."""
    labels, exact = calibrated(3000, num_classes, seed=8)
    rng = np.random.default_rng(9)

    def under_calibration(probs):
        cumulative = probs.cumsum(axis=1)[:, :-1]
        drawn = [(rng.random((3000, 1)) > cumulative).sum(axis=1) for _ in range(60)]
        return [evaluate(labels, probs) for labels in drawn]

    for probs, honest in ((exact, True), (overconfident(exact), False)):
        scores, chance = evaluate(labels, probs, exact), under_calibration(probs)
        for name in CAUGHT_BY:
            values = [draw[name] for draw in chance]
            deviations = (scores[name] - np.mean(values)) / np.std(values)
            assert deviations < 3.5 if honest else deviations > 5, name
        if honest:
            assert [scores[name] for name in DISTANCES] == [0, 0, 0, 0]
        else:
            assert all(scores[name] > 0 for name in DISTANCES[:3])
            assert scores["accuracy_regret"] == 0
