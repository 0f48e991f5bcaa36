"""Other packages' methods under one signature, at their defaults: (votes, key) -> probabilities (item, label).

Extra `peers`: `pip install "latentens[peers]"`. A package that is not installed is left out.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import numpy as np
import pandas as pd

from latentens import Votes


class PeerError(Exception):
    """A package that is not installed."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise PeerError(f"{name} is not installed ({error})") from None


def _frame(votes: Votes) -> pd.DataFrame:
    item, voter, vote = votes.triplets
    return pd.DataFrame({"task": item, "worker": voter, "label": vote.astype(int)})


def _complete(probs: pd.DataFrame, votes: Votes) -> np.ndarray:
    """Probabilities of all items and classes; items without votes are even, classes without any have none."""
    whole = probs.reindex(index=range(votes.num_items), columns=range(votes.num_classes)).to_numpy(float)
    whole = np.where(np.isnan(whole).all(axis=1, keepdims=True), 1 / votes.num_classes, np.nan_to_num(whole))
    return whole / whole.sum(axis=1, keepdims=True)


def crowd_kit(name: str, **settings: Any) -> Callable[[Votes, jax.Array], np.ndarray]:
    """An aggregator of crowd-kit."""

    def fit(votes: Votes, key: jax.Array) -> np.ndarray:
        del key
        method = getattr(_module("crowdkit.aggregation"), name)(**settings)
        return _complete(method.fit_predict_proba(_frame(votes)), votes)

    return fit


def deem(**settings: Any) -> Callable[[Votes, jax.Array], np.ndarray]:
    """DEEM, the energy-based model of Shaham's lab: its classes are matched to the majority, never to the truth.

    The package itself matches most probable labels to the majority, and leaves its probabilities as they are; here the
    probabilities follow the same match. It takes no missing votes.
    """

    def fit(votes: Votes, key: jax.Array) -> np.ndarray:
        package = _module("deem")
        if votes.num_missing:
            raise PeerError("deem takes no missing votes")
        seed = int(jax.random.randint(key, (), 0, 2**30))
        cast = votes.matrix.astype(np.int64)
        model = package.DEEM(n_classes=votes.num_classes, random_state=seed, device="cpu", **settings)
        model.fit(cast, verbose=False)
        model.predict(cast)  # sets the match to the majority
        probs, matched = np.asarray(model.predict(cast, return_probs=True), dtype=float), model.get_class_mapping()
        order = np.empty(votes.num_classes, dtype=int)
        order[[matched[label] for label in range(votes.num_classes)]] = np.arange(votes.num_classes)
        return probs[:, order]

    return fit


PEERS = {
    "deem": deem(),
    "deem, its own settings": deem(auto_hyperparameters=True),
    "crowd-kit DawidSkene": crowd_kit("DawidSkene"),
    "crowd-kit OneCoinDawidSkene": crowd_kit("OneCoinDawidSkene"),
    "crowd-kit GLAD": crowd_kit("GLAD"),
}
