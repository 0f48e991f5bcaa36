"""Snorkel's label model beside Dawid–Skene EM: seconds, labels, and the likelihood of votes at what each found.

    python analyses/speed_snorkel.py [--data ROOT] [--out DIR] [--names condInd/1 Tree/1 S1 …]

Needs `pip install snorkel`. Both fit confusion matrices of voters who err independently given the label: Snorkel by
stochastic gradients on agreement moments with its default settings, here told the true share of each class, which it
does not estimate. One thread for both.
"""

import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import torch
from common import find, run, write
from snorkel.labeling.model import LabelModel

import latentens as le
from latentens.datasets import Dataset
from latentens.methods import DawidSkeneEM
from latentens.models import DawidSkene
from latentens.programs.likelihood import log_likelihood
from latentens.runtime.parallel import one_blas_thread
from latentens.scores.scores import balanced_accuracy

NAMES = ("condInd/1", "Tree/1", "LG/1", "TG/1", "S1")


def main(data: Path | None, out: Path, seed: int, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    torch.set_num_threads(1)
    with one_blas_thread():
        rows = [row for dataset in find(names, data) for row in (snorkel(dataset, seed), ours(dataset, seed))]
    table = pd.DataFrame(rows).set_index(["set", "method"])
    write(out, "speed_snorkel", table=table)
    return table


def ours(dataset: Dataset, seed: int) -> dict[str, object]:
    start = time.perf_counter()
    fit = DawidSkeneEM().fit(dataset.votes, key=jax.random.key(seed))
    return _row(dataset, "DawidSkeneEM", time.perf_counter() - start, fit.params, fit.codes)


def snorkel(dataset: Dataset, seed: int) -> dict[str, object]:
    known = dataset.labels[dataset.labels >= 0]
    shares = np.bincount(known, minlength=2) / len(known)
    start = time.perf_counter()
    model = LabelModel(cardinality=2, verbose=False)
    try:
        model.fit(dataset.votes.matrix.astype(int), class_balance=shares.tolist(), seed=seed, progress_bar=False)
    except Exception as error:  # it raises nothing more special
        return {"set": dataset.name, "method": f"snorkel LabelModel: {error}", "seconds": time.perf_counter() - start}
    probs = model.predict_proba(dataset.votes.matrix.astype(int))
    seconds = time.perf_counter() - start
    given = model.get_conditional_probs()  # voter, vote with abstentions first, label
    params = {"prevalence": shares, "confusion": le.two_class_confusion(given[:, 2, 1], given[:, 1, 0])}
    return _row(dataset, "snorkel LabelModel", seconds, params, probs.argmax(axis=1))


def _row(
    dataset: Dataset, method: str, seconds: float, params: dict[str, np.ndarray], labels: np.ndarray
) -> dict[str, object]:
    model = DawidSkene(dataset.votes.num_voters)
    clipped = {name: np.clip(value, 1e-6, 1 - 1e-6) for name, value in params.items()}  # rows of two add up to 1 still
    return {
        "set": dataset.name,
        "method": method,
        "seconds": seconds,
        "balanced_accuracy": 100 * balanced_accuracy(dataset.labels, labels),
        "log_likelihood": log_likelihood(model, clipped, dataset.votes) / dataset.votes.num_items,
    }


if __name__ == "__main__":
    run(main, __doc__)
