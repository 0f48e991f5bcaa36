"""The verdicts of a report: one metric per sentence, the same tests in text and tables, and no trust without reason."""

import re
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from scipy.stats import norm

from latentens import Dataset, Votes, check_independence, compare
from latentens.checks import PredictiveRanking, label_dependence
from latentens.comparison import from_tree
from latentens.methods.base import Estimate, Method
from latentens.reporting.conclusions import find, summarise
from latentens.reporting.layout import all_pairs_table, leader_table
from latentens.reporting.tables import average_pairs, averages
from latentens.runtime.text import probability_text
from latentens.scores.scores import find_score
from tests.reference import KEY


@dataclass(frozen=True, eq=False)
class Stated(Method):
    """A posterior that is known beforehand."""

    probs: np.ndarray

    def estimate(self, votes, key, gold=None):
        return Estimate(label_probs=self.probs)

    def has_fixed_order(self, estimate):
        return True

    def posterior(self, estimate, votes):
        raise NotImplementedError


def two(one):
    return np.stack([1 - np.asarray(one, float), np.asarray(one, float)], axis=1)


def judge(labels, votes=None, resamples=200, **stated):
    """What the report says of posteriors of class 1."""
    votes = np.random.default_rng(0).integers(0, 2, (len(labels), 3)) if votes is None else votes
    dataset = Dataset("made", Votes.from_matrix(votes, num_classes=2), np.asarray(labels))
    tree = compare(dataset, {name: Stated(two(one)) for name, one in stated.items()}, key=KEY, resamples=resamples)
    (data,) = from_tree(tree).datasets
    means, pairs = averages(data), average_pairs(data)
    findings = find(data, means, pairs)
    told = summarise(data, means, pairs, findings)
    return told, findings, pairs, " ".join([told.headline, *(reason.text for reason in told.reasons)])


def right(labels, share, rng, sure=0.8):
    """Labels that are right for a share of the items of each class, stated with one confidence."""
    share = np.where(labels == 1, *share) if isinstance(share, tuple) else share
    chosen = np.where(rng.random(len(labels)) < share, labels, 1 - labels)
    return np.where(chosen == 1, sure, 1 - sure)


def test_with_few_positives_the_leader_is_compared_by_the_score_that_it_leads_by():
    rng = np.random.default_rng(1)
    labels = (np.arange(3000) < 60).astype(int)
    balanced, lazy = right(labels, (0.9, 0.8), rng), right(labels, (0.1, 0.99), rng)
    _, findings, pairs, text = judge(labels, balanced=balanced, lazy=lazy)
    assert findings.leaders["balanced_accuracy"].method == "balanced"
    assert pairs["accuracy", "balanced", "lazy"].difference < 0, "its accuracy is the lower one"
    gap = 100 * pairs["balanced_accuracy", "balanced", "lazy"].difference
    assert gap > 20
    assert f"lazy is significantly worse, by {gap:.1f} points (p < 0.001)" in text
    assert not re.search(r"[-−]\d|fewer", text)


@pytest.mark.parametrize("resamples", [0, 200])
def test_intervals_are_told_where_they_are_known(resamples):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 300)
    *_, text = judge(labels, resamples=resamples, good=right(labels, 0.9, rng), poor=right(labels, 0.6, rng))
    assert "nan" not in text
    assert ("95\u00a0% interval" in text) == (resamples > 0)


def test_equal_methods_are_level():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 400)
    one = right(labels, 0.9, rng)
    told, findings, _, text = judge(labels, one=one, same=one, third=one)
    assert told.headline.startswith("The methods are not significantly different on these items.")
    assert not findings.leaders["balanced_accuracy"].behind
    assert "same and third are not significantly different from it" in text
    assert "Trust" not in text
    assert "are the best" not in text


def test_a_difference_that_rounds_to_nothing_is_not_clear():
    """The other states a slightly smaller probability for every item: certainly a loss, and one of 0.001 nats."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 2000)
    correct = labels == 1
    told, findings, pairs, text = judge(labels, one=np.where(correct, 0.9, 0.1), other=np.where(correct, 0.899, 0.101))
    assert pairs["log_score", "one", "other"].p_value < 0.001
    assert findings.leaders["log_score"].method == "one"
    assert findings.leaders["log_score"].tied == ("other",)
    assert told.headline.startswith("The methods are not significantly different")
    assert not re.search("significantly.*by 0[.]0+ ", text)
    _, findings, _, text = judge(labels, one=np.where(correct, 0.9, 0.1), other=np.where(correct, 0.89, 0.11))
    assert findings.leaders["log_score"].behind == ("other",)
    assert "other is significantly worse, by 0.01 nats" in text


def test_models_whose_difference_rounds_to_nothing_are_not_told_apart():
    values = np.log(np.linspace(0.2, 0.4, 50))
    ranking = PredictiveRanking({"one": values, "other": values - 1e-4, "same": values, "bad": values - 1.0})
    assert "statistically tied with it: same, other." in ranking.summary


def test_a_method_is_called_the_best_only_where_nobody_is_level_with_it():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 2000)
    good, level = right(labels, 0.9, rng, 0.9), right(labels, 0.9, rng, 0.9)
    bad = right(labels, 0.7, rng, 0.9)
    told, findings, *_ = judge(labels, good=good, level=level, bad=bad)
    assert findings.leaders["balanced_accuracy"].tied
    assert findings.leaders["balanced_accuracy"].behind == ("bad",)
    assert re.match("Trust (good|level): no method has significantly better labels", told.headline)
    alone, *_ = judge(labels, good=good, bad=bad)
    assert alone.headline.startswith("Trust good: its labels and its probabilities are the best on these items.")


@pytest.mark.parametrize("counts", [(15, 15), (400, 5)], ids=["few", "few of a class"])
def test_nobody_is_trusted_where_truth_is_scarce(counts):
    rng = np.random.default_rng(4)
    labels = np.concatenate([np.repeat([0, 1], counts), np.full(300, -1)])
    known = np.maximum(labels, 0)
    told, *_ = judge(labels, good=right(known, 0.99, rng), bad=right(known, 0.5, rng))
    assert told.headline.startswith(f"Too few labels are known ({sum(counts)}) to say which method to trust.")


def test_nobody_is_trusted_where_accuracy_is_poor():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 3000)
    told, findings, *_ = judge(labels, better=right(labels, 0.6, rng, 0.6), worse=right(labels, 0.5, rng, 0.6))
    assert findings.leaders["balanced_accuracy"].behind == ("worse",)
    assert told.headline.startswith(
        "Trust none of the methods on these items: even the best labels, those of better, are poor."
    )


def test_few_labels_show_neither_good_labels_nor_poor_ones():
    rng = np.random.default_rng(6)
    labels = np.arange(60) % 2
    told, *_ = judge(labels, better=right(labels, 0.8, rng, 0.8), worse=right(labels, 0.6, rng, 0.8))
    assert "Trust" not in told.headline
    assert re.match(
        r"60 labels cannot show that the labels of any method are good: the balanced accuracy of the best, those of "
        r"better, may be as low as \d\d.%[.]",
        told.headline,
    )


def nearly_significant():
    """Eight wins and one loss of the best against the second: p = .039, if there were no third."""
    labels = np.repeat([0, 1], 200)
    best, second, third = labels.copy(), labels.copy(), labels.copy()
    second[:8] = 1
    best[8] = 1
    third[[0, 1, 2, 3, 4, 5, 6, 9]] = 1
    return labels, {"best": 0.2 + 0.6 * best, "second": 0.2 + 0.6 * second, "third": 0.2 + 0.6 * third}


def test_text_and_tables_have_the_same_adjusted_p_values():
    labels, stated = nearly_significant()
    third = stated.pop("third")
    _, findings, pairs, _ = judge(labels, **stated)
    assert pairs["balanced_accuracy", "best", "second"].p_value == pytest.approx(0.0390625)
    assert findings.leaders["balanced_accuracy"].behind == ("second",)
    _, findings, pairs, text = judge(labels, **stated, third=third)
    pair = pairs["balanced_accuracy", "best", "second"]
    assert pair.p_value > 0.1
    assert pair.p_value == pairs["balanced_accuracy", "second", "best"].p_value
    assert set(findings.leaders["balanced_accuracy"].tied) == {"second", "third"}
    assert "are not significantly different from it" in text
    score = find_score("balanced_accuracy")
    for table in (leader_table(pairs, findings.leaders["balanced_accuracy"], score), all_pairs_table(pairs, score)):
        shown = [cell.text for row in table.rows for cell in row[1:]]
        assert probability_text(pair.p_value) in shown
        assert not any("0.039" in text for text in shown)


def test_small_probabilities_are_not_called_zero():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, 300)
    sure = np.where(labels == 1, 1 - 1e-13, 1e-13)
    sure[:4] = 1 - sure[:4]
    *_, text = judge(labels, sure=sure, fair=right(labels, 0.9, rng))
    assert "sure practically ruled out the true label of 4 of the 300 labelled items, with a probability" in text
    assert "zero" not in text


def copied_pair():
    """Eight voters who each miss some items and err independently, but the second often copies the first."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, 1500)
    votes = np.where(rng.random((1500, 8)) < 0.75, labels[:, None], 1 - labels[:, None])
    votes[:, 1] = np.where(rng.random(1500) < 0.5, votes[:, 0], votes[:, 1])
    votes[rng.random(votes.shape) < 0.3] = -1
    return votes, labels


@pytest.mark.slow
def test_dependence_is_found_among_voters_with_missing_votes_as_the_check_finds_it():
    votes, labels = copied_pair()
    assert (votes < 0).any(axis=0).all(), "nobody voted on every item"
    check = check_independence(Votes.from_matrix(votes, num_classes=2), key=jax.random.key(0))
    found = label_dependence(votes, labels, 2)
    assert (0, 1) in check.dependent_pairs
    assert found.dependent() == [(0, 1)]
    assert (found.checked == check.checked).all()
    sure = np.where(right(labels, 0.8, np.random.default_rng(9)) > 0.5, 0.999, 0.001)
    *_, text = judge(labels, votes, sure=sure, fair=right(labels, 0.8, np.random.default_rng(9)))
    assert "1 of 28 pairs of voters still agree more than by chance" in text
    assert "between 0 and 1" in text


def test_dependence_by_loops():
    votes, labels = copied_pair()
    votes[:, 5] = np.where(votes[:, 5] == 1, 2, votes[:, 5])  # a third class
    found = label_dependence(votes, labels, 3)
    for i, j in ((0, 1), (2, 5), (3, 4)):
        total = variance = scale = 0.0
        for label in (0, 1):
            both = votes[(labels == label) & (votes[:, i] >= 0) & (votes[:, j] >= 0)][:, [i, j]]
            indicators = [np.eye(3)[both[:, side]] - np.eye(3)[both[:, side]].mean(axis=0) for side in (0, 1)]
            covariances = [part.T @ part / len(both) for part in indicators]
            total += (indicators[0] * indicators[1]).sum()
            variance += len(both) * (covariances[0] * covariances[1]).sum()
            scale += len(both) * np.sqrt(np.trace(covariances[0]) * np.trace(covariances[1]))
        assert found.correlation[i, j] == pytest.approx(total / scale)
        raw = 2 * norm.sf(abs(total) / np.sqrt(variance))
        assert raw - 1e-12 <= found.p_values[i, j] <= min(1, 28 * raw) + 1e-12


def test_independent_voters_are_rarely_called_dependent():
    rng = np.random.default_rng(10)
    alarms = 0
    for _ in range(100):
        labels = rng.integers(0, 2, 300)
        votes = np.where(rng.random((300, 6)) < 0.7, labels[:, None], 1 - labels[:, None])
        alarms += label_dependence(votes, labels, 2).p_values.min() <= 0.05
    assert alarms <= 14
