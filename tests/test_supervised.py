import dataclasses
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

from latentens import methods
from latentens.datasets import Dataset
from latentens.errors import VotesError
from latentens.methods.base import Method, Predictor
from latentens.scores.scores import balanced_accuracy
from tests.reference import KEY, independent_votes, load_or_skip, votes_of_classes

RATES = np.linspace(0.6, 0.9, 6), np.linspace(0.9, 0.6, 6)


@pytest.fixture
def supervised(monkeypatch):
    """The reference of the analyses, a network that has seen labels."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "analyses"))
    return importlib.import_module("supervised").Supervised


def dataset(seed, **options):
    votes, labels = independent_votes(2000, *RATES, seed=seed, **options)
    return Dataset("simulated", votes, labels)


def test_no_unsupervised_method_can_be_given_a_label():
    """Labels enter by an argument that says so (`gold`)."""
    for method in (getattr(methods, name) for name in methods.__all__):
        if issubclass(method, Predictor):
            assert issubclass(method, Method)
            assert list(inspect.signature(method.fit).parameters) == ["self", "votes", "key", "gold", "anchor"]


def test_learns_from_one_set_what_holds_on_another(supervised):
    training, test = dataset(1), dataset(2)
    fit = supervised().fit(training, key=KEY)
    assert balanced_accuracy(test.labels, fit.predict(test.votes).argmax(axis=1)) > 0.83
    again = supervised().fit(training, key=KEY)
    assert np.array_equal(fit.label_probs, again.label_probs)
    np.testing.assert_allclose(fit.label_probs.sum(axis=1), 1)


def test_unknown_labels_are_left_out_and_missing_votes_are_no_input(supervised):
    training = dataset(1, missing=0.2)
    hidden = dataclasses.replace(training, labels=np.where(np.arange(2000) < 1000, training.labels, -1))
    fit = supervised(restarts=1).fit(hidden, key=KEY)
    assert balanced_accuracy(training.labels[1000:], fit.codes[1000:]) > 0.75


def test_labels_decide_what_is_learnt(supervised):
    training = dataset(1)
    inverted = dataclasses.replace(training, labels=1 - training.labels)
    fit = supervised(restarts=1).fit(inverted, key=KEY)
    assert np.mean(fit.codes == training.labels) < 0.2


def test_a_class_without_training_items_gets_probability_zero(supervised):
    votes, labels = votes_of_classes(3, num_items=300)
    two = Dataset("two of three", votes, np.where(labels == 1, -1, labels))
    fit = supervised(restarts=1).fit(two, key=KEY)
    assert fit.label_probs.shape == (300, 3)
    assert np.all(fit.label_probs[:, 1] == 0)
    assert np.mean(fit.codes[labels == 2] == 2) > 0.9


def test_labels_of_one_class_are_refused(supervised):
    training = dataset(1)
    with pytest.raises(VotesError, match="fewer than two classes"):
        supervised().fit(dataclasses.replace(training, labels=np.ones(2000, dtype=int)), key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "expected"), [("condInd", 94.72), ("Tree", 95.68), ("LG", 87.23), ("TG", 91.07)])
def test_accuracy_is_near_the_reference(supervised, family, expected):
    training, test = load_or_skip(f"{family}/1"), load_or_skip(f"{family}/2")
    predicted = supervised().fit(training, key=KEY).predict(test.votes).argmax(axis=1)
    assert 100 * balanced_accuracy(test.labels, predicted) == pytest.approx(expected, abs=0.5)
