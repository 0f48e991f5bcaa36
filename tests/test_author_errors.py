"""Mistakes of authors of methods, scores and comparisons get one sentence."""

from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
import pytest

import latentens as le
from latentens.errors import LatentensError
from latentens.scores import averaged

KEY = jax.random.key(0)
VOTES = le.Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (40, 6)))


@dataclass(frozen=True)
class Broken(le.Method):
    """A method whose hooks return what the case says."""

    returned: str | None = None
    probs: tuple[float, ...] = (0.5, 0.5)

    def estimate(self, votes, key, gold=None):
        return le.Estimate() if self.returned is None else {}

    def posterior(self, estimate, votes):
        return np.tile(self.probs, (votes.num_items, 1))


def test_hooks_that_return_something_else_are_named():
    with pytest.raises(LatentensError, match=r"estimate must return a latentens\.Estimate, not a dict"):
        Broken(returned="dict").fit(VOTES, key=KEY)
    Broken().fit(VOTES, key=KEY)


@pytest.mark.parametrize(
    ("probs", "words"),
    [
        ((0.2, 0.3, 0.5), r"has the shape \(\d+, 3\), not \(\d+, 2\)"),
        ((1.0, 1.0), "does not add up to 1 in row 0: 1, 1"),
        ((np.nan, 1.0), "is not finite in row 0: nan, 1"),
        ((1.5, -0.5), "has a negative probability in row 0: 1.5, -0.5"),
    ],
)
def test_posteriors_must_be_distributions_over_the_classes(probs, words):
    with pytest.raises(LatentensError, match=f"the result of Broken.posterior {words}"):
        Broken(probs=probs).fit(VOTES, key=KEY)


@pytest.mark.parametrize("field", [{"better": "higher"}, {"group": "Mine"}, {"unit": "percent"}])
def test_scores_know_their_choices(field):
    with pytest.raises(LatentensError, match=f"{next(iter(field))} must be one of"):
        le.scores.Score("mine", "Something", **field)


@pytest.mark.parametrize(
    ("datasets", "methods", "scores", "words"),
    [
        (VOTES, [le.methods.MajorityVote()], (), "compare takes data sets"),
        (le.Dataset("a", VOTES), ["MajorityVote"], (), "'MajorityVote' is not a method"),
        (le.Dataset("a", VOTES), [le.methods.MajorityVote], (), "pass an instance"),
        (le.Dataset("a", VOTES), [le.methods.MajorityVote()], [max], "is not a score"),
    ],
)
def test_comparisons_say_what_they_take(datasets, methods, scores, words):
    with pytest.raises(LatentensError, match=words):
        le.compare(datasets, methods, key=KEY, scores=scores)


def per_item(items):
    return items.confidence


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (per_item, "'mine': wrap its function in averaged"),
        (
            lambda sample: sample.items.confidence,
            r"must return a value per resample, an array of shape \(3,\), not \(5,\)",
        ),
        (lambda sample: 1 / 0, r"'mine': ZeroDivisionError: division by zero \(.*test_author_errors.py, line \d+\)"),
        (averaged(lambda items: 1.0), r"must return a value per item, an array of shape \(5,\), not \(\)"),
        (averaged(lambda items: items.confidence[1:]), r"a value per item, an array of shape \(5,\), not \(4,\)"),
        (None, "'mine': it has no function"),
    ],
)
def test_scores_are_tried_before_any_fit(function, words, monkeypatch):
    monkeypatch.setattr(le.methods.MajorityVote, "estimate", lambda *_: pytest.fail("a method was fitted"))
    mine = le.scores.Score("mine", "Something", function=function)
    with pytest.raises(LatentensError, match=words):
        le.compare(le.Dataset("a", VOTES), le.methods.MajorityVote(), key=KEY, scores=[mine])
    with pytest.raises(LatentensError, match=words):
        le.scores.evaluate(np.array([0, 1]), np.array([[0.5, 0.5], [0.2, 0.8]]), scores=[mine])


@pytest.mark.parametrize("name", ["my cost/1", "", " ", "error", "dataset", "a\nb", None])
def test_names_of_scores_are_checked(name):
    with pytest.raises(LatentensError, match="its name must be a text without a slash"):
        le.scores.Score(name, "Something", function=averaged(per_item))


@pytest.mark.parametrize(
    ("labels", "probs", "words"),
    [
        ([0, 1, 1], [[0.5, 0.5], [0.2, 0.8]], r"labels have shape \(3,\), but there are 2 items"),
        ([0, 2], [[0.5, 0.5], [0.2, 0.8]], "label 2 is out of range: the codes of labels are 0 … 1"),
        ([0, 1], [[0.5, 0.5], [0.2, 0.7]], "the posterior does not add up to 1 in row 1"),
        ([0, 1], [0.5, 0.8], r"a column per class, not the shape \(2,\)"),
    ],
)
def test_what_is_scored_is_checked(labels, probs, words):
    with pytest.raises(LatentensError, match=words):
        le.scores.evaluate(labels, np.array(probs))


def test_methods_must_be_frozen_dataclasses():
    class Forgot(le.Method):
        estimate, posterior = Broken.estimate, Broken.posterior

    with pytest.raises(LatentensError, match="Forgot must be a frozen dataclass"):
        Forgot()


@pytest.mark.parametrize(
    "call",
    [
        lambda: le.methods.MajorityVote().fit(VOTES, key=0),
        lambda: le.compare(le.Dataset("a", VOTES), le.methods.MajorityVote(), key=0),
        lambda: le.simulate(le.models.DawidSkene(6), 10, key=0),
    ],
)
def test_seeds_are_no_keys(call):
    with pytest.raises(LatentensError, match=r"key must be a random key such as jax.random.key\(0\), not 0"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: le.methods.MajorityVote().fit(VOTES.matrix, key=KEY),
        lambda: le.methods.MajorityVote().fit(VOTES, key=KEY).predict(VOTES.matrix),
        lambda: le.bayes_posterior(le.models.DawidSkene(6), {}, VOTES.matrix),
        lambda: le.Dataset("a", VOTES.matrix),
    ],
)
def test_matrices_are_no_votes(call):
    with pytest.raises(LatentensError, match="takes Votes, not a ndarray: see Votes.from_matrix"):
        call()


def test_reports_are_of_comparisons(tmp_path):
    with pytest.raises(LatentensError, match="report takes the result of compare, not 'tree.nc': .*load_comparison"):
        le.report("tree.nc", tmp_path)


def test_fits_are_saved_in_folders_that_are_made(tmp_path):
    fit = le.methods.MajorityVote().fit(VOTES, key=KEY)
    fit.save(tmp_path / "new" / "deep" / "fit.nc")
    np.testing.assert_array_equal(le.load_fit(tmp_path / "new" / "deep" / "fit.nc").label_probs, fit.label_probs)


LABELS = np.arange(40) % 2


@pytest.mark.parametrize("labels", [LABELS.tolist(), LABELS.astype(float), LABELS == 1, pd.Series(LABELS)[::-1]])
def test_labels_come_in_many_forms(labels):
    found = le.Dataset("a", VOTES, labels).labels
    assert found.dtype.kind == "i"
    np.testing.assert_array_equal(found, LABELS)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (LABELS + 1, "a: label 2 is out of range: the codes of labels are 0 … 1"),
        (np.where(LABELS, 1, -2), "a: label -2 is out of range"),
        (np.where(LABELS, 1, np.nan), "a: label nan is out of range: .* −1 where a label is unknown"),
        (np.where(LABELS, 0.5, 1), "a: label 0.5 is out of range"),
        (["no", "yes"] * 20, "a: label 'no' is not a number"),
        (LABELS[:-1], r"a: labels have shape \(39,\), but there are 40 items"),
        (pd.Series(LABELS, index=LABELS), "a: the index of the labels does not name the items"),
    ],
)
def test_labels_are_codes_of_the_classes(labels, words):
    with pytest.raises(LatentensError, match=words):
        le.Dataset("a", VOTES, labels)


def test_data_sets_take_gold_labels_in_order():
    gold = np.where(np.arange(40) < 5, LABELS, -1)
    for given in (gold, gold.tolist()):
        np.testing.assert_array_equal(le.Dataset("a", VOTES, gold=given).gold, gold)


def test_data_sets_take_gold_labels_by_name():
    dataset = le.Dataset("a", VOTES, gold={3: 1, 5: 0})
    assert dataset.gold is not None
    assert dataset.is_scored_by_gold
    assert (dataset.gold[[3, 5]] == [1, 0]).all()
    assert (dataset.gold >= 0).sum() == 2
    assert (dataset.labels == -1).all()
