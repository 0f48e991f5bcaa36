"""Training a classifier on soft or hard labels from votes, by `VotesClassifier` in a scikit-learn Pipeline.

    python analyses/soft_labels.py [--out DIR] [--sets 40]

Crowds as on the guide's page about scikit-learn: a number of annotators out of nine, of accuracies from 50 to 90 %,
label each of 400 items; a logistic regression is trained on their features and scored on 2,000 new items. Both kinds of
labels come from the same fit. `truth` is training on the true labels. The second table runs scikit-learn's own checks
of estimators. Accuracies are in percent, log scores in nats per item.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from common import run, write
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from latentens.methods import DawidSkeneEM, MajorityVote
from latentens.methods.base import Method
from latentens.sklearn import LabelAggregator, VotesClassifier

METHODS: dict[str, Method] = {"MajorityVote": MajorityVote(), "DawidSkeneEM": DawidSkeneEM()}
VOTES_PER_ITEM = (3, 5, 9)


def main(data: Path | None, out: Path, seed: int, sets: int = 40) -> pd.DataFrame:
    del data
    rows = [
        {"votes per item": number, "method": name, **compared(method, number, seed + place)}
        for number in VOTES_PER_ITEM
        for name, method in METHODS.items()
        for place in range(sets)
    ]
    table = summary(pd.DataFrame(rows))
    write(out, "soft_labels", table=table.set_index("votes per item"))
    write(out, "soft_labels_checks", table=estimator_checks().set_index("check"))
    return table


def crowd(seed: int, votes_per_item: int, num_items: int = 400, num_voters: int = 9, new_items: int = 2000):
    """Features, votes and labels of a training set, and features and labels of new items."""
    features, truth = make_classification(num_items + new_items, 20, n_informative=8, flip_y=0, random_state=seed)
    rng = np.random.default_rng(seed)
    right = rng.random((num_items, num_voters)) < rng.uniform(0.5, 0.9, num_voters)
    votes = np.where(right, truth[:num_items, None], 1 - truth[:num_items, None]).astype(float)
    votes[rng.permuted(np.tile(np.arange(num_voters) >= votes_per_item, (num_items, 1)), axis=1)] = np.nan
    return features[:num_items], votes, truth[:num_items], features[num_items:], truth[num_items:]


def compared(method: Method, votes_per_item: int, seed: int) -> dict[str, float]:
    """Scores of one crowd by each kind of training labels."""
    features, votes, labels, new_features, truth = crowd(seed, votes_per_item)
    scores = {}
    for kind in ("soft", "hard"):
        learner = VotesClassifier(LogisticRegression(), LabelAggregator(method), hard=kind == "hard")
        model = make_pipeline(StandardScaler(), learner).fit(features, votes)
        scores[kind] = 100 * model.score(new_features, truth)
        scores[f"{kind} log score"] = log_loss(truth, model.predict_proba(new_features))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(features, labels)
    return scores | {"truth": 100 * model.score(new_features, truth)}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over sets, and the difference of soft and hard labels with its standard error."""
    table = table.assign(gain=table["soft"] - table["hard"])
    groups = table.groupby(["votes per item", "method"], sort=False)
    found = groups[["soft", "hard", "gain"]].mean()
    found["standard error"] = groups["gain"].std() / np.sqrt(groups.size())
    found["soft better"], found["hard better"] = (
        groups["gain"].agg(lambda x: (x > 0).sum()),
        groups["gain"].agg(lambda x: (x < 0).sum()),
    )
    scores = groups[["soft log score", "hard log score", "truth"]].mean()
    return found.join(scores).assign(sets=groups.size()).reset_index()


def estimator_checks() -> pd.DataFrame:
    """What each check of scikit-learn says about `LabelAggregator`."""
    outcomes: dict[str, Counter[str]] = {}

    def record(*, check_name: str, status: str, **others: object) -> None:
        del others
        outcomes.setdefault(check_name, Counter())[status] += 1

    estimator: BaseEstimator = LabelAggregator(MajorityVote())
    check_estimator(estimator, on_skip=None, on_fail=None, callback=record)
    return pd.DataFrame([{"check": name, "outcome": ", ".join(found)} for name, found in sorted(outcomes.items())])


if __name__ == "__main__":
    run(main, __doc__)
