"""Methods as scikit-learn estimators: a matrix of votes in, labels and their probabilities out.

    aggregator = LabelAggregator(DawidSkeneEM()).fit(votes)
    aggregator.predict_proba(votes)

    model = make_pipeline(StandardScaler(), VotesClassifier(LogisticRegression()))
    model.fit(features, votes).predict(new_features)

Votes are a matrix or data frame with one row per item and one column per voter. Its entries are class labels of any
type; NaN, None and empty text are missing votes.
"""

from typing import Any, Self

from latentens.errors import require

require("latentens.sklearn", "sklearn")

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from latentens.methods import Consensus
from latentens.methods.base import Method
from latentens.votes import Votes

Probs = Float[np.ndarray, "item label"]


class LabelAggregator(BaseEstimator):
    """Labels of items from the votes of many voters.

    Args:
        method: The method; `Consensus()` by default.
        random_state: Seed of the method's random starts.

    Attributes:
        classes_: The labels, in the order of the columns of `predict_proba`.
        fit_: The `latentens.Fit`, with parameters, diagnostics and the quality of the voters.
        n_features_in_: Number of voters.

    Examples:
        >>> from latentens.methods import DawidSkeneEM
        >>> from latentens.sklearn import LabelAggregator
        >>> votes = [["a", "a", "b"], ["b", "b", "b"], ["a", "a", "a"], ["b", "b", "a"]]
        >>> LabelAggregator(DawidSkeneEM()).fit(votes).predict(votes)
        array(['a', 'b', 'a', 'b'], dtype='<U1')
    """

    def __init__(self, method: Method | None = None, random_state: int | np.random.RandomState | None = 0) -> None:
        self.method = method
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Estimate the voters' quality and the labels.

        Args:
            X: The votes.
            y: Gold labels for the method to use: the true labels of some items, missing (NaN, None or empty) elsewhere.
        """
        matrix = validate_data(self, X, dtype=None, ensure_all_finite=False)
        known = None if y is None else check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False)
        cast = [part.ravel() for part in (matrix, known) if part is not None]
        present = np.concatenate([part[~_is_missing(part)] for part in cast])
        self.classes_ = np.unique(present)
        if len(self.classes_) < 2:
            raise ValueError(f"The votes are for {len(self.classes_)} class(es); at least two classes are needed.")
        votes = self._votes(matrix)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        gold = None if known is None else self._codes(known)
        self.fit_ = (self.method or Consensus()).fit(votes, key=jax.random.key(seed), gold=gold)
        return self

    def predict_proba(self, X: Any) -> Probs:
        """The probability of each label of each item."""
        check_is_fitted(self)
        return self.fit_.predict(self._votes(validate_data(self, X, dtype=None, ensure_all_finite=False, reset=False)))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each item."""
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """The most probable label of each fitted item; gold labels stay as they are."""
        self.fit(X, y)
        return self.classes_[self.fit_.codes]

    def _votes(self, matrix: np.ndarray) -> Votes:
        names = getattr(self, "feature_names_in_", np.arange(matrix.shape[1]))
        codes = self._codes(matrix.ravel()).reshape(matrix.shape)
        return Votes.from_matrix(pd.DataFrame(codes, columns=names), len(self.classes_))

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        """Places among the classes, −1 where missing."""
        missing = _is_missing(labels)
        codes = np.full(labels.shape, -1)
        given = labels[~missing].astype(self.classes_.dtype)
        codes[~missing] = np.searchsorted(self.classes_, given).clip(max=len(self.classes_) - 1)
        unknown = given[self.classes_[codes[~missing]] != given]
        if len(unknown):
            raise ValueError(f"{unknown[0]!r} is not one of the fitted classes.")
        return codes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


class VotesClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier of features that is trained on votes instead of labels.

    Each item enters the training set once for each label, weighted by the label's posterior probability.

    Args:
        classifier: A classifier whose `fit` takes `sample_weight`.
        aggregator: The estimator of label probabilities from votes; `LabelAggregator()` by default.
        hard: Whether to train on the most probable labels only, without weights.

    Attributes:
        classes_: The labels.
        aggregator_: The fitted aggregator.
        classifier_: The fitted classifier.
    """

    def __init__(self, classifier: Any, aggregator: LabelAggregator | None = None, hard: bool = False) -> None:
        self.classifier = classifier
        self.aggregator = aggregator
        self.hard = hard

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features and the votes about the same items.

        Args:
            X: The features.
            y: The votes, one row per item and one column per voter.
        """
        features = np.asarray(X)
        self.aggregator_ = clone(self.aggregator or LabelAggregator()).fit(y)
        self.classes_ = self.aggregator_.classes_
        probs = self.aggregator_.fit_.label_probs
        if self.hard:
            self.classifier_ = clone(self.classifier).fit(features, self.classes_[probs.argmax(axis=1)])
            return self
        item, label = np.nonzero(probs > np.finfo(float).eps)
        self.classifier_ = clone(self.classifier).fit(
            features[item], self.classes_[label], sample_weight=probs[item, label]
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The classifier's labels of new items, for which no votes are needed."""
        check_is_fitted(self)
        return self.classifier_.predict(np.asarray(X))

    def predict_proba(self, X: Any) -> Probs:
        """The classifier's probabilities of new items' labels."""
        check_is_fitted(self)
        return self.classifier_.predict_proba(np.asarray(X))


def _is_missing(values: np.ndarray) -> np.ndarray:
    return np.asarray(pd.isna(values)) | (values.astype(str) == "" if values.dtype.kind in "OU" else False)
