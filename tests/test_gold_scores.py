"""Scores from gold labels: nothing is scored by a fit that has seen it, and intervals know how few labels there are."""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest

from latentens import Dataset, compare
from latentens.cli import main
from latentens.comparison import from_tree, load_comparison, save_comparison
from latentens.comparison.cell import gold_fold
from latentens.errors import LatentensError
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.methods.base import Estimate, Method, fit_known
from latentens.reporting import report
from latentens.reporting.figures import sureness_figure
from latentens.reporting.tables import dataset_tables, scores_frame
from latentens.scores.interval_rules import mean_share_interval, wilson
from latentens.scores.scores import evaluate, intervals
from tests.reference import KEY, independent_votes

RATES = np.linspace(0.6, 0.8, 6)
EM = DawidSkeneEM(random_starts=0)


@dataclasses.dataclass(frozen=True)
class Parrot(Method):
    """Repeats the gold labels it has seen, and is wrong about all others as far as the gold labels go."""

    log: str = ""

    def estimate(self, votes, key, gold=None):
        if self.log:
            with Path(self.log).open("a") as file:
                file.write("x")
        seen = np.full(votes.num_items, -1) if gold is None else gold
        return Estimate({"seen": seen}, label_probs=np.eye(2)[np.where(seen >= 0, seen, 0)])

    def posterior(self, estimate, votes):
        return np.tile([1.0, 0.0], (votes.num_items, 1))

    def has_fixed_order(self, estimate):
        return True


@pytest.fixture(scope="module")
def data():
    votes, labels = independent_votes(200, RATES, RATES)
    gold = np.where(np.arange(200) % 5 == 0, labels, -1)
    return Dataset("made", votes, np.full(200, -1), gold=gold)


@pytest.fixture(scope="module")
def tree(data):
    return compare(data, [EM, MajorityVote(), Parrot()], key=KEY, resamples=50)


def test_confidence_is_counted_without_the_labels_that_methods_were_told(tree):
    """Fits are certain of the gold labels that they were told; the parrot is certain of every item anyhow."""
    (view,) = from_tree(tree).datasets
    counted = dataset_tables(view)["confidence"].set_index(["estimator", "above"])["share"]
    sure = scores_frame(view).set_index(["estimator", "score"])["value"]
    for method, fit in view.first_fits.items():
        assert counted[method, 0.99] == pytest.approx(sure[method, "confident_share"])
        told = np.mean(fit.label_probs.max(axis=1) > 0.99)
        assert (told > counted[method, 0.99]) == (method != "Parrot"), "certain only because it was told the label"
        drawn = f"{method} {100 * counted[method, 0.99]:.0f}"
        assert drawn in sureness_figure(view).alternative


@pytest.mark.parametrize(("counts", "folds"), [((40, 25, 7), 5), ((3, 0, 0), 5), ((1, 1, 1), 2), ((1, 0, 0), 5)])
def test_folds_are_equal_in_size_and_in_their_classes(counts, folds):
    gold = np.concatenate([np.repeat(np.arange(3), counts), np.full(9, -1)])
    fold = gold_fold(gold, folds, KEY)
    assert (fold[gold < 0] == -1).all()
    number = min(folds, sum(counts))
    for part in (fold[gold >= 0], *(fold[gold == label] for label in range(3))):
        sizes = np.bincount(part, minlength=number)
        assert len(sizes) == number
        assert sizes.max() - sizes.min() <= 1


def test_folds_are_drawn_by_the_key():
    gold = np.tile([0, 1], 50)
    first, again, other = (gold_fold(gold, 5, key) for key in (KEY, KEY, jax.random.key(9)))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    with pytest.raises(LatentensError, match="at least two folds, not 1"):
        gold_fold(gold, 1, KEY)


def test_every_gold_label_is_predicted_by_a_fit_that_has_not_seen_it(data, tree):
    """A method that repeats what it has seen is right on none of the labels but those of the class it guesses."""
    scores = tree["scores"].to_dataset().sel(dataset="made", repetition=0)
    share = np.mean(data.gold[data.gold >= 0] == 0)
    assert scores["accuracy"].sel(estimator="Parrot") == pytest.approx(share)
    final = tree["made/estimates/label_prob"].sel(repetition=0, estimator="Parrot").to_numpy()
    np.testing.assert_array_equal(final.argmax(axis=1)[data.gold >= 0], data.gold[data.gold >= 0])


def test_held_out_posteriors_are_those_of_plain_fits(data, tree):
    found = tree["made/held_out"].to_dataset().sel(repetition=0)
    known = np.flatnonzero(data.gold >= 0)
    assert found["item"].to_numpy().tolist() == np.asarray(data.votes.item_names)[known].tolist()
    key = jax.random.fold_in(jax.random.fold_in(KEY, __import__("zlib").crc32(b"made")), 0)
    for fold in range(5):
        hidden = known[found["fold"].to_numpy() == fold]
        gold = data.gold.copy()
        gold[hidden] = -1
        slow = fit_known(EM, data.votes, key, gold).label_probs[hidden]
        fast = found["label_prob"].sel(estimator="DawidSkeneEM(random_starts=0)").to_numpy()
        np.testing.assert_allclose(fast[found["fold"].to_numpy() == fold], slow, atol=1e-12)


def test_scores_pairs_and_page_are_about_held_out_predictions(data, tree, tmp_path):
    save_comparison(tree, tmp_path / "tree.nc")
    loaded = load_comparison(tmp_path / "tree.nc")
    (result,) = from_tree(loaded).datasets
    assert result.is_scored_by_gold
    np.testing.assert_array_equal(result.labels, data.gold)
    for method, probs in result.scored_estimates.items():
        expected = evaluate(data.gold, probs)
        scores = loaded["scores"].to_dataset().sel(dataset="made", repetition=0, estimator=method)
        for name in ("accuracy", "log_score", "confidence_gap"):
            assert float(scores[name]) == pytest.approx(expected[name])
    right = {name: (probs.argmax(axis=1) == result.labels)[result.labels >= 0] for name, probs in result.scored.items()}
    gain = right["MajorityVote"].mean() - right["Parrot"].mean()
    place = {"estimator": "MajorityVote", "other": "Parrot"}
    assert loaded["pairs/accuracy_difference"].sel(place).item() == pytest.approx(gain)
    page = report(loaded, tmp_path).read_text()
    assert "on your 40 gold labels, each predicted by a fit that has not seen it" in page
    assert "methods know 40 gold labels" in page
    assert "What you can report" in page
    assert "judges carry as much information as" in page
    written = pd.read_csv(tmp_path / "estimates.csv").set_index(["dataset", "quantity"])
    assert (written["labels"] == 40).all()
    assert (written["low"] <= written["estimate"]).all()
    assert (written["high"] - written["low"] <= written["gold_high"] - written["gold_low"]).all()


def test_where_other_labels_are_known_these_are_scored_and_no_fold_is_fitted(data, tmp_path):
    _, labels = independent_votes(200, RATES, RATES)
    log = tmp_path / "log"
    tree = compare(dataclasses.replace(data, labels=labels), [Parrot(str(log))], key=KEY, resamples=5)
    assert log.read_text() == "x"
    assert "held_out" not in tree["made"].children
    others = data.gold < 0
    assert tree["scores/accuracy"].values.item() == pytest.approx(np.mean(labels[others] == 0))


def test_fits_to_folds_are_kept_and_not_repeated(data, tmp_path):
    method, options = Parrot(str(tmp_path / "log")), {"key": KEY, "folder": tmp_path / "cells", "resamples": 5}
    trees = [compare(data, [method], gold_folds=folds, **options) for folds in (3, 3, 2)]
    assert (tmp_path / "log").read_text() == "x" * (4 + 0 + 3)
    for first, again in zip(trees[0].subtree, trees[1].subtree, strict=True):
        assert (
            first.to_dataset()
            .drop_vars(["seconds", "peak_memory"], errors="ignore")
            .identical(again.to_dataset().drop_vars(["seconds", "peak_memory"], errors="ignore"))
        )


def test_the_command_prints_accuracies_and_the_number_of_labels(data, tmp_path, monkeypatch, capsys):
    data.votes.to_frame().to_csv(tmp_path / "votes.csv")
    known = np.flatnonzero(data.gold >= 0)
    gold = pd.DataFrame({"item": np.asarray(data.votes.item_names)[known], "gold": data.gold[known]})
    gold.to_csv(tmp_path / "gold.csv", index=False)
    monkeypatch.chdir(tmp_path)
    names = ["-m", "DawidSkeneEM(random_starts=0)", "-m", "MajorityVote", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["latentens", "compare", "--votes", "votes.csv", "--gold", "gold.csv", *names])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    shown = " ".join(capsys.readouterr().out.split())
    assert "scores on your 40 gold labels, each predicted by a fit that has not seen it" in shown
    found = compare(dataclasses.replace(data, name="votes"), [MajorityVote()], key=jax.random.key(1), resamples=5)
    accuracy = 100 * found["scores/accuracy"].values.item()
    assert f"MajorityVote {accuracy:.1f} (" in shown


@pytest.mark.parametrize(("right", "number"), [(20, 20), (0, 20), (13, 20), (1, 1), (150, 200)])
def test_shares_have_wilsons_interval(right, number):
    ends = binomtest(right, number).proportion_ci(0.95, method="wilson")
    assert wilson(right, number, 0.95) == pytest.approx((ends.low, ends.high), abs=1e-12)
    one_class = np.array([right / number, number - right, right])
    assert mean_share_interval(one_class, np.zeros((3, 0)), 0.95) == pytest.approx((ends.low, ends.high), abs=1e-12)


@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_twenty_correct_labels_prove_little(confidence):
    labels, probs = np.arange(20) % 2, np.full((20, 2), 1 - confidence)
    probs[np.arange(20), labels] = confidence
    ends = intervals(labels, probs, key=KEY, resamples=100)
    assert ends["accuracy"] == pytest.approx((0.839, 1.0), abs=1e-3)
    assert ends["balanced_accuracy"][0] < 0.85
    assert ends["log_score"][1] > 4 * -np.log(confidence)
    assert ends["confidence_gap"][1] > 0.05
    assert np.isnan(ends["calibration_error"]).all()


def test_intervals_of_the_balanced_accuracy_cover_it_with_few_labels():
    """Exactly, by all outcomes: twelve labels of one class, eight of another."""
    for first, second in ((0.9, 0.8), (0.99, 0.7), (0.6, 0.95)):
        covered = 0.0
        for i in range(13):
            for j in range(9):
                chance = binom.pmf(i, 12, first) * binom.pmf(j, 8, second)
                low, high = mean_share_interval(np.array([np.nan, 12 - i, 8 - j, i, j]), np.zeros((5, 0)), 0.95)
                covered += chance * (low <= (first + second) / 2 <= high)
        assert covered > 0.92


@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_intervals_of_the_log_score_cover_it_with_few_labels(sharpness):
    """Honest and overconfident probabilities, thirty labels; quantiles alone cover it 84 and 79 % of the time."""
    rng = np.random.default_rng(5)
    logits = rng.normal(3.0, 2.0, 20_000)
    chance = 1 / (1 + np.exp(-logits))
    stated = 1 / (1 + np.exp(-sharpness * logits))
    truth = -np.mean(chance * np.log(stated) + (1 - chance) * np.log1p(-stated))
    covered = []
    for _ in range(200):
        items = rng.integers(20_000, size=30)
        labels = (rng.random(30) < chance[items]).astype(int)
        probs = np.stack([1 - stated[items], stated[items]], axis=1)
        low, high = intervals(labels, probs, key=KEY, resamples=200)["log_score"]
        covered.append(low <= truth <= high)
    assert np.mean(covered) > 0.88
