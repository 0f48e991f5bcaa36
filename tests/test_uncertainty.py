import jax
import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student

from latentens.runtime.numerics import numpy_generator
from latentens.scores import (
    compare_accuracy,
    compare_balanced_accuracy,
    compare_log_scores,
    evaluate,
    holm,
    intervals,
)
from tests.test_scores import calibrated, overconfident

KEY = jax.random.key(3)


@pytest.fixture(scope="module", params=[2, 4])
def scored(request):
    """Labels, some of them unknown, an overconfident posterior with ties, and the exact one."""
    labels, exact = calibrated(120, request.param, seed=1)
    labels[::7] = -1
    return labels, overconfident(exact), exact


def slow_values(labels, probs, exact, resamples):
    """Each score of each resample, by a plain loop over the items that are drawn."""
    drawn = numpy_generator(KEY).integers(len(labels), size=(resamples, len(labels)))
    return [evaluate(labels[items], probs[items], exact[items]) for items in drawn]


WITH_RULES_OF_THEIR_OWN = (
    "accuracy",
    "balanced_accuracy",
    "log_score",
    "confidence_gap",
    "confident_wrong",
    "calibration_error",
    "calibration_error_debiased",
)


def test_intervals_are_quantiles_over_resampled_items(scored):
    labels, probs, exact = scored
    values = slow_values(labels, probs, exact, 80)
    ends = intervals(labels, probs, exact, key=KEY, resamples=80, level=0.9)
    estimates = evaluate(labels, probs, exact)
    assert list(ends) == list(estimates)
    for name, (low, high) in ends.items():
        slow_low, slow_high = np.nanquantile([value[name] for value in values], [0.05, 0.95])
        if name == "brier_calibration":
            slow_low = max(2 * estimates[name] - slow_high, 0)
        if name == "brier_refinement":
            slow_high = 2 * estimates[name] - slow_low
        if name not in WITH_RULES_OF_THEIR_OWN:
            assert (low, high) == pytest.approx((slow_low, slow_high), abs=1e-12), name
            assert low <= estimates[name] <= high


def test_calibration_errors_are_resampled_in_the_bins_of_the_sample():
    rng = np.random.default_rng(2)
    stated = rng.random(150)
    probs, labels = np.stack([1 - stated, stated], axis=1), (rng.random(150) < 0.2 + 0.6 * stated).astype(int)
    bins = np.array_split(np.argsort(probs.max(axis=1)), 15)
    residuals = (probs.argmax(axis=1) == labels) - probs.max(axis=1)

    def by_loop(times):
        gaps, square = [], 0.0
        for items in bins:
            drawn = np.repeat(residuals[items], times[items])
            gaps.append(drawn.sum() / 150)
            if len(drawn) > 1:
                square += len(drawn) / 150 * (np.mean(drawn) ** 2 - np.var(drawn, ddof=1) / len(drawn))
        return np.array(gaps), square

    drawn = numpy_generator(KEY).integers(150, size=(100, 150))
    resampled = [by_loop(np.bincount(items, minlength=150)) for items in drawn]
    gaps, debiased = by_loop(np.ones(150, dtype=int))
    noise = np.quantile([np.abs(other - gaps).sum() for other, _ in resampled], 0.975)
    plain = np.abs(gaps).sum() - noise, np.quantile([np.abs(other).sum() for other, _ in resampled], 0.975)
    with_noise = sum(len(items) / 150 * np.mean(residuals[items]) ** 2 for items in bins)
    deviations = np.quantile([square - with_noise for _, square in resampled], [0.975, 0.025])
    ends = intervals(labels, probs, key=KEY, resamples=100)
    assert ends["calibration_error"] == pytest.approx(np.maximum(plain, 0))
    assert ends["calibration_error_debiased"] == pytest.approx(np.sqrt(np.maximum(debiased - deviations, 0)))


def test_intervals_tell_an_honest_posterior_from_an_overconfident_one():
    """The lower end of each calibration score is at zero (or, for the Brier part, hardly above) only for the first."""
    labels, exact = calibrated(3000, 2, seed=4)
    honest, boastful = (intervals(labels, probs, key=KEY, resamples=200) for probs in (exact, overconfident(exact)))
    assert honest["calibration_error"][0] == honest["calibration_error_debiased"][0] == 0
    assert honest["brier_calibration"][0] < 0.002 < boastful["brier_calibration"][0]
    for name in ("calibration_error", "calibration_error_debiased", "confident_wrong", "log_score"):
        assert honest[name][1] < boastful[name][1]
    assert boastful["calibration_error"][0] > 0.02
    assert boastful["calibration_error_debiased"][0] > 0.02


def test_blocks_and_keys(scored):
    whole = intervals(*scored, key=KEY, resamples=30)
    assert whole != intervals(*scored, key=jax.random.key(4), resamples=30)
    in_blocks = intervals(*scored, key=KEY, resamples=30, block_elements=500)
    for name, ends in whole.items():
        assert in_blocks[name] == pytest.approx(ends, abs=1e-12), name


def test_intervals_without_labels_are_undefined():
    _, probs = calibrated(40, 2, seed=5)
    ends = intervals(np.full(40, -1), probs, probs, key=KEY, resamples=20)
    assert ends["mean_kl"] == (0, 0)
    assert ends["confident_share"][0] <= np.mean(probs.max(axis=1) > 0.99) <= ends["confident_share"][1]
    for name in (
        "accuracy",
        "area_under_curve",
        "brier_calibration",
        "calibration_error",
        "calibration_error_debiased",
    ):
        assert np.isnan(ends[name]).all(), name


def test_a_resample_without_any_known_label_does_not_count():
    _, probs = calibrated(40, 3, seed=5)
    labels = np.where(np.arange(40) == 0, 1, -1)
    ends = intervals(labels, probs, key=KEY, resamples=30)
    assert ends["brier_refinement"] == (0, 0)


def test_accuracies_are_compared_by_mcnemars_test():
    labels, exact = calibrated(500, 3, seed=6)
    labels[:50] = -1
    worse = np.random.default_rng(7).dirichlet(exact.shape[1] * [1], 500) + exact
    result, mirrored = compare_accuracy(labels, exact, worse), compare_accuracy(labels, worse, exact)
    rights = [[probs[i].argmax() == labels[i] for i in range(50, 500)] for probs in (exact, worse)]
    wins = sum(a and not b for a, b in zip(*rights, strict=True))
    losses = sum(b and not a for a, b in zip(*rights, strict=True))
    assert result.difference == pytest.approx(np.mean(rights[0]) - np.mean(rights[1]))
    assert result.p_value == pytest.approx(binomtest(wins, wins + losses, 0.5).pvalue)
    assert result.low < result.difference < result.high
    assert (mirrored.low, mirrored.high) == pytest.approx((-result.high, -result.low))


def test_the_interval_of_the_difference_in_accuracy_covers_it():
    """Two independent guessers that are right with .8 and .7: a difference of .1 in nine of ten intervals."""
    rng = np.random.default_rng(8)
    labels = np.zeros(300, dtype=int)
    covered = []
    for _ in range(400):
        first, second = (np.eye(2)[(rng.random(300) > right).astype(int)] for right in (0.8, 0.7))
        result = compare_accuracy(labels, first, second, level=0.9)
        covered.append(result.low < 0.1 < result.high)
    assert np.mean(covered) == pytest.approx(0.9, abs=4 * np.sqrt(0.9 * 0.1 / 400))


def two_sided_by_coins(wins, losses, weights):
    """Every way in which fair coins could have split the items on which just one posterior is right."""
    signs = np.repeat(weights, np.add(wins, losses))
    observed = abs(np.dot(weights, np.subtract(wins, losses)))
    flips = 1 - 2 * (np.arange(2 ** len(signs))[:, None] >> np.arange(len(signs)) & 1)
    return np.mean(np.abs(flips @ signs) >= observed - 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_balanced_accuracies_are_compared_by_a_sign_test_within_classes(seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2, -1], [11, 5, 3, 4])
    first, second = (np.eye(3)[np.where(rng.random(23) < 0.6, labels, 1) % 3] for _ in range(2))
    result = compare_balanced_accuracy(labels, first, second)
    rights = [(probs.argmax(axis=1) == labels) for probs in (first, second)]
    wins, losses = (
        [np.sum((labels == k) & one & ~other) for k in range(3)] for one, other in (rights, reversed(rights))
    )
    shares = [[np.mean(right[labels == k]) for k in range(3)] for right in rights]
    assert result.difference == pytest.approx(np.mean(shares[0]) - np.mean(shares[1]))
    assert result.p_value == pytest.approx(two_sided_by_coins(wins, losses, [1 / 11, 1 / 5, 1 / 3]), abs=1e-6)
    assert result.low <= result.difference <= result.high
    mirrored = compare_balanced_accuracy(labels, second, first)
    assert (mirrored.difference, mirrored.p_value) == pytest.approx((-result.difference, result.p_value))


def test_with_one_class_balanced_accuracy_is_accuracy():
    rng = np.random.default_rng(1)
    labels, (first, second) = np.ones(80, int), rng.dirichlet([1, 1], (2, 80))
    assert compare_balanced_accuracy(labels, first, second) == pytest.approx(compare_accuracy(labels, first, second))


def test_intervals_of_balanced_accuracy_differences_hold_the_truth_with_few_positives():
    rng = np.random.default_rng(9)
    labels = np.repeat([0, 1], [360, 40])
    held, rejected = [], []
    for _ in range(400):
        first, second, third = (
            np.eye(2)[np.where(rng.random(400) < np.where(labels, *rates), labels, 1 - labels)]
            for rates in ((0.8, 0.9), (0.6, 0.9), (0.9, 0.8))
        )
        result = compare_balanced_accuracy(labels, first, second, level=0.9)
        held.append(result.low < 0.1 < result.high)
        rejected.append(compare_balanced_accuracy(labels, first, third).p_value < 0.1)
    assert np.mean(held) == pytest.approx(0.9, abs=4 * np.sqrt(0.9 * 0.1 / 400))
    assert np.mean(rejected) < 0.1 + 4 * np.sqrt(0.9 * 0.1 / 400), "the first and the third are equally good"


def test_adjusted_p_values_step_down():
    raw = [0.01, 0.04, 0.03, np.nan, 0.5]
    expected = [0.04, 0.09, 0.09, np.nan, 0.5]  # 4 × .01; 3 × .03; 2 × .04 is less than that; 1 × .5
    np.testing.assert_allclose(holm(raw), expected)
    assert holm([0.4, 0.6]).tolist() == [0.8, 0.8]
    assert holm([0.7, 0.9]).tolist() == [1.0, 1.0]
    assert len(holm([])) == 0


def test_equal_posteriors_do_not_differ():
    labels, probs = calibrated(100, 2, seed=9)
    accuracy, log_scores = compare_accuracy(labels, probs, probs), compare_log_scores(labels, probs, probs)
    assert (accuracy.difference, accuracy.p_value) == (0, 1)
    assert accuracy.low < 0 < accuracy.high
    assert log_scores == (0, 0, 0, 1)
    rounded = probs * (1 - 1e-15 * np.arange(100)[:, None] / 100)
    assert compare_log_scores(labels, probs, rounded) == (0, 0, 0, 1)
    unknown = np.full(100, -1)
    assert np.isnan([*compare_accuracy(unknown, probs, probs), *compare_log_scores(unknown, probs, probs)]).all()


def test_log_scores_are_compared_item_by_item():
    labels, exact = calibrated(400, 2, seed=10)
    labels[0] = -1
    probs = overconfident(exact)
    gains = [np.log(probs[i, labels[i]]) - np.log(exact[i, labels[i]]) for i in range(1, 400)]
    result = compare_log_scores(labels, exact, probs, level=0.9)
    error = np.std(gains, ddof=1) / np.sqrt(399)
    low, high = student.interval(0.9, 398, np.mean(gains), error)
    assert result == pytest.approx((np.mean(gains), low, high, 2 * student.sf(abs(np.mean(gains)) / error, 398)))
    assert result.difference < 0
