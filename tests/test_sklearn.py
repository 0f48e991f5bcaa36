import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from latentens import Votes
from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.sklearn import LabelAggregator, VotesClassifier

NAMES = np.array(["no", "yes"])


def crowd(num_items=300, seed=0):
    """Features, labels and votes as text, some of them missing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, num_items)
    features = rng.normal(size=(num_items, 3)) + 1.5 * labels[:, None]
    rates = np.array([0.9, 0.8, 0.7, 0.6, 0.6])
    matrix = np.where(rng.random((num_items, 5)) < rates, labels[:, None], 1 - labels[:, None])
    frame = pd.DataFrame(NAMES[matrix], columns=list("abcde")).astype(object)
    return features, NAMES[labels], frame.mask(rng.random(frame.shape) < 0.1, None)


# continuous features are votes for as many classes as there are numbers, which only the majority counts in no time
@parametrize_with_checks([LabelAggregator(MajorityVote())])
def test_an_aggregator_is_an_estimator(estimator, check):
    check(estimator)


def test_it_says_what_the_method_says():
    _, labels, frame = crowd()
    aggregator = LabelAggregator(DawidSkeneEM(), random_state=3).fit(frame)
    fit = DawidSkeneEM().fit(Votes.from_matrix(frame), key=jax.random.key(0))
    np.testing.assert_array_equal(aggregator.classes_, NAMES)
    np.testing.assert_allclose(aggregator.predict_proba(frame), fit.label_probs, atol=1e-6)
    np.testing.assert_array_equal(aggregator.predict(frame), fit.labels)
    assert np.mean(aggregator.predict(frame) == labels) > 0.85
    again = clone(aggregator).fit(frame)
    np.testing.assert_array_equal(again.predict_proba(frame), aggregator.predict_proba(frame))


def test_known_labels_are_gold_labels():
    _, labels, frame = crowd()
    known = pd.Series(labels).where(np.arange(len(labels)) < 40, None)
    np.testing.assert_array_equal(LabelAggregator(MajorityVote()).fit_predict(frame, known)[:40], labels[:40])


def test_strange_votes_are_refused():
    _, _, frame = crowd()
    aggregator = LabelAggregator(MajorityVote()).fit(frame)
    with pytest.raises(ValueError, match="'perhaps' is not one of the fitted classes"):
        aggregator.predict(frame.replace("no", "perhaps"))
    with pytest.raises(ValueError, match="at least two classes"):
        aggregator.fit(frame.map(lambda _: "no"))


def test_a_pipeline_learns_from_votes():
    features, labels, frame = crowd(num_items=400)
    for hard in (False, True):
        model = make_pipeline(
            StandardScaler(), VotesClassifier(LogisticRegression(), LabelAggregator(DawidSkeneEM()), hard=hard)
        )
        model.fit(features[:300], frame[:300])
        assert np.mean(model.predict(features[300:]) == labels[300:]) > 0.8
        assert model.predict_proba(features).shape == (400, 2)
    assert cross_val_predict(model, features, frame, cv=KFold(3)).shape == (400,)
