"""Speed of the RBM engine on TG: against contrastive divergence as in the paper, and against scikit-learn.

Run: python analyses/speed_rbm.py --data FOLDER --out FILE.json
Every time is given cold (compilation included) and warm. Both sides run here, one after the other.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.neural_network import BernoulliRBM

from latentens.datasets import Dataset, load
from latentens.methods import RBMStack
from latentens.rbm import ExactTraining, Machine, SampledTraining, VisibleRows, mean_log_likelihood, rows_from_votes
from latentens.rbm.stack import rows_above
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Votes

VOTERS, UNITS, EPOCHS = 15, 3, 50


def paper_divergence(num_visible: int, penalty: float, epochs: int) -> SampledTraining:
    """The settings of the paper's script for TG: CD-10, step .5, momentum .9, small start."""
    return SampledTraining(
        penalty=penalty,
        learning_rate=0.5 * num_visible,
        schedule="constant",
        momentum=0.9,
        gibbs_steps=10,
        persistent=False,
        batch_size=100,
        epochs=epochs,
        held_out=0.0,
        patience=epochs,
        informed=False,
        input_scale=0.01 * num_visible**0.5,
    )


def main(data: str | None, out: Path, seed: int) -> None:
    dataset = load("TG/1", root=data)
    rows = rows_from_votes(dataset.votes)
    key = jax.random.key(seed)
    results = {"stack": time_stack(dataset, key), "contrastive_divergence": time_divergence(dataset.votes, key)}
    for run in ("cold", "warm"):
        results[f"ratio_{run}"] = results["contrastive_divergence"][run] / results["stack"][run]
    results["scikit_learn"] = race_scikit_learn(dataset.votes.matrix, rows, key)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1))
    print(out.read_text())


def time_stack(dataset: Dataset, key: jax.Array) -> dict[str, Any]:
    """The whole method: SVD rule, retraining, top layer, prediction."""
    cold, _ = timed(lambda: RBMStack().fit(dataset.votes, key=key))
    warm, fit = timed(lambda: RBMStack().fit(dataset.votes, key=key))
    accuracy = balanced_accuracy(dataset.labels, fit.codes)
    return {"cold": cold, "warm": warm, "architecture": fit.diagnostics["architecture"], "balanced_accuracy": accuracy}


def time_divergence(votes: Votes, key: jax.Array) -> dict[str, Any]:
    """The paper's procedure: as many hidden units as voters, then three without penalty, then one upon these.

    The number of units is taken for granted: looking at the singular values takes no time.
    """
    rows = rows_from_votes(votes)

    def train_all(epochs: int) -> Machine:
        paper_divergence(VOTERS, 1e-2, epochs).train(rows, VOTERS, key=key)
        machine = paper_divergence(VOTERS, 0.0, epochs).train(rows, UNITS, key=key).machine
        states = rows_above(machine, rows, "sampled", key=key)
        paper_divergence(UNITS, 0.0, epochs).train(states, 1, key=key)
        return machine

    cold, _ = timed(lambda: train_all(EPOCHS))
    train_all(1)
    one, _ = timed(lambda: train_all(1))
    warm, machine = timed(lambda: train_all(EPOCHS))
    # what is done once, scoring above all, is no part of contrastive divergence and does not count
    updates = (warm - one) * EPOCHS / (EPOCHS - 1)
    return {"cold": cold, "warm": updates, "log_likelihood": mean_log_likelihood(machine, rows, key=key).mean}


def race_scikit_learn(matrix: np.ndarray, rows: VisibleRows, key: jax.Array, epochs: int = 50) -> dict[str, Any]:
    """Seconds until scikit-learn's best log-likelihood within some epochs, and until exact training passes it."""
    model = BernoulliRBM(n_components=3, learning_rate=0.1, batch_size=100, n_iter=1, random_state=0)
    seconds, best, reached = 0.0, -np.inf, 0.0
    generator = np.random.default_rng(0)
    for _ in range(epochs):
        for batch in np.array_split(generator.permutation(len(matrix)), len(matrix) // 100):
            spent, _ = timed(lambda batch=batch: model.partial_fit(matrix[batch]))
            seconds += spent
        machine = Machine(model.components_.T, model.intercept_visible_, model.intercept_hidden_)
        score = mean_log_likelihood(machine, rows, key=key).mean
        if score > best:
            best, reached = score, seconds
    curve = ExactTraining(penalty=0.0, restarts=1).train(rows, 3, key=key).curve
    passed = int(np.argmax(curve >= best)) + 1 if (curve >= best).any() else None
    limited = ExactTraining(penalty=0.0, restarts=1, max_iterations=passed or 500)
    limited.train(rows, 3, key=key)
    exact, trained = timed(lambda: limited.train(rows, 3, key=key))
    return {
        "log_likelihood": best,
        "scikit_learn_seconds": reached,
        "exact_seconds_warm": exact,
        "exact_iterations": passed,
        "exact_log_likelihood": float(trained.curve[-1]),
        "exact_maximum": float(curve[-1]),
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of some work, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the paper's data; without it TG is simulated")
    parser.add_argument("--out", type=Path, default=Path("out/speed_rbm.json"))
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
