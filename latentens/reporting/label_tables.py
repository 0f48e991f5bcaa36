"""The labels and the voters of a comparison as data frames: what a person with votes takes home."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from latentens.methods.voter_table import voter_table
from latentens.reporting.view import View


def consensus(view: View) -> tuple[np.ndarray, np.ndarray]:
    """The label that most methods give each item, and how many do; ties go by the methods' mean probabilities."""
    probs = np.stack(list(view.estimates.values()))
    given = np.stack([(probs.argmax(axis=2) == label).sum(axis=0) for label in range(probs.shape[2])], axis=1)
    label = (given + probs.mean(axis=0) / 2).argmax(axis=1)  # a mean is at most 1, so it decides ties only
    return label, np.take_along_axis(given, label[:, None], axis=1)[:, 0]


def labels_frame(views: Sequence[View]) -> pd.DataFrame:
    """The label of each item by each method and by most of them, as written."""
    frames = []
    for view in views:
        if not view.estimates:
            continue
        names, (label, agreeing) = np.asarray(view.class_names), consensus(view)
        about = {"dataset": view.name, "item": view.votes.item_names, "votes": view.votes.tally.sum(axis=1)}
        about |= {"consensus": names[label], "methods_agreeing": agreeing}
        given = {method: names[probs.argmax(axis=1)] for method, probs in view.posteriors.items()}
        frames.append(pd.DataFrame({**about, **given}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def voters_frame(views: Sequence[View]) -> pd.DataFrame:
    """The quality of each voter by each method."""
    frames = []
    for view in views:
        for method in view.estimates:
            if (skill := view.first_fits[method].skill) is None:
                continue
            frame = voter_table(skill, view.voter_names, view.class_names)
            frame.insert(0, "estimator", method)
            frame.insert(0, "dataset", view.name)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
