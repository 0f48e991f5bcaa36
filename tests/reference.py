"""What several test files need: the authors' data where present, simulated votes, standard errors."""

import os
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from latentens import GenerativeModel, simulate, two_class_confusion
from latentens.datasets import ROOT_VARIABLE, Dataset, load
from latentens.methods import Nuts
from latentens.methods.base import Fit, Method
from latentens.models import DawidSkene
from latentens.scores.scores import balanced_accuracy
from latentens.votes import Triplets, Votes

DATA = Path(os.environ.get(ROOT_VARIABLE, Path(__file__).parents[2] / "shared" / "data"))
"""Where the authors' data are: the one place that says so for all tests."""

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data are not at {DATA}")

KEY = jax.random.key(7)

SIX_VOTERS_SAMPLED = Nuts(DawidSkene(6), num_chains=2, num_warmup=60, num_samples=50)
"""A short run for several test files: its program takes long to compile, and small sets of six voters share it."""


def two_class(prevalence, sensitivity, specificity):
    """Parameters of `DawidSkene` from the share of class 1 and the voters' rates."""
    return {
        "prevalence": np.array([1 - prevalence, prevalence]),
        "confusion": two_class_confusion(sensitivity, specificity),
    }


def two_class_tree(prevalence, hidden_sensitivity, hidden_specificity, voter_sensitivity, voter_specificity):
    """Parameters of `Tree` from the share of class 1 and the rates of groups and voters."""
    return {
        "prevalence": np.array([1 - prevalence, prevalence]),
        "hidden_confusion": two_class_confusion(hidden_sensitivity, hidden_specificity),
        "voter_confusion": two_class_confusion(voter_sensitivity, voter_specificity),
    }


def as_triplets(votes: Votes) -> Votes:
    """The same votes, stored as triplets."""
    return Votes(Triplets(*votes.triplets), *votes.shape, votes.num_classes)


def load_or_skip(name: str) -> Dataset:
    if not DATA.is_dir():
        pytest.skip(f"the data are not at {DATA}")
    return load(name, root=DATA)


def percent(method: Method, name: str) -> float:
    """Balanced accuracy of a method on a data set."""
    dataset = load_or_skip(name)
    return 100 * balanced_accuracy(dataset.labels, method.fit(dataset.votes, key=KEY).codes)


def independent_votes(
    num_items: int,
    sensitivity: np.ndarray,
    specificity: np.ndarray,
    prevalence: float = 0.5,
    missing: float = 0.0,
    seed: int = 0,
) -> tuple[Votes, np.ndarray]:
    """Votes of conditionally independent voters, some missing at random, and the labels."""
    generator = np.random.default_rng(seed)
    labels = (generator.random(num_items) < prevalence).astype(int)
    says_one = np.where(labels[:, None] == 1, sensitivity, 1 - specificity)
    matrix = (generator.random(says_one.shape) < says_one).astype(int)
    matrix[generator.random(matrix.shape) < missing] = -1
    return Votes.from_matrix(matrix, num_classes=2), labels


def votes_of_classes(
    num_classes: int, num_items: int, num_voters: int = 5, right: float = 0.75, missing: float = 0.0
) -> tuple[Votes, np.ndarray]:
    """Votes for several classes that are right with a given probability and else a guess, and the labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, num_classes, num_items)
    shape = num_items, num_voters
    guesses = generator.integers(0, num_classes, shape)
    matrix = np.where(generator.random(shape) < right, labels[:, None], guesses)
    matrix[generator.random(shape) < missing] = -1
    return Votes.from_matrix(matrix, num_classes=num_classes), labels


def entries_of(counts: np.ndarray) -> np.ndarray:
    """One entry (item, voter, vote) for each vote."""
    return np.repeat(np.argwhere(np.ones_like(counts)), counts.ravel(), axis=0)


def votes_from(counts: np.ndarray) -> Votes:
    """Votes, some of them repeated, from counts (item, voter, vote)."""
    item, voter, vote = entries_of(counts).T
    storage = Triplets(item.astype(np.int32), voter.astype(np.int32), vote.astype(np.int8))
    return Votes(storage, *counts.shape)


def random_counts(num_items: int, num_voters: int, num_classes: int, seed: int = 0) -> np.ndarray:
    """Voters who vote none to three times, more often for one class of each item."""
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 4, (num_items, num_voters))
    probs = rng.dirichlet(np.ones(num_classes), num_items)
    return rng.multinomial(number, np.broadcast_to(probs[:, None], (*number.shape, num_classes)))


def largest_standard_score(
    method: Method,
    model: GenerativeModel,
    params: dict[str, np.ndarray],
    estimates: Callable[[Fit], np.ndarray],
    truth: np.ndarray,
    repetitions: int = 20,
) -> float:
    """How many standard errors the worst estimate from 10⁵ items is away from the truth.

    The standard errors are the deviations of the estimates over further data sets of the same size.
    """
    keys = jax.random.split(KEY, repetitions + 1)
    drawn = [simulate(model, 100_000, key=key, params=params).votes for key in keys]
    found = np.stack([estimates(method.fit(votes, key=KEY)) for votes in drawn])
    return float(np.max(np.abs(found[0] - truth) / found[1:].std(axis=0, ddof=1)))


def besides_signal(error: str) -> str:
    """What a command says on standard error besides the line on whether voters agree more than by chance."""
    return "".join(line for line in error.splitlines(keepends=True) if "than by chance" not in line)
