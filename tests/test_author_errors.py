"""Mistakes of authors of methods, scores and comparisons get one sentence."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest

import latentens as le
from latentens.errors import LatentensError

KEY = jax.random.key(0)
VOTES = le.Votes.from_matrix(np.random.default_rng(0).integers(0, 2, (40, 6)))


@dataclass(frozen=True)
class Broken(le.Method):
    """A method whose hooks return what the case says."""

    returned: str | None = None
    probs: tuple[float, ...] = (0.5, 0.5)

    def estimate(self, votes, key, gold=None):
        return le.Estimate() if self.returned is None else {}

    def posterior(self, estimate, votes):
        return np.tile(self.probs, (votes.num_items, 1))


def test_hooks_that_return_something_else_are_named():
    with pytest.raises(LatentensError, match=r"estimate must return a latentens\.Estimate, not a dict"):
        Broken(returned="dict").fit(VOTES, key=KEY)
    Broken().fit(VOTES, key=KEY)


@pytest.mark.parametrize("probs", [(0.2, 0.3, 0.5), (1.0, 1.0), (np.nan, 1.0), (1.5, -0.5)])
def test_posteriors_must_be_distributions_over_the_classes(probs):
    with pytest.raises(LatentensError, match=r"shape \(\d+, 2\) whose rows are probabilities"):
        Broken(probs=probs).fit(VOTES, key=KEY)


@pytest.mark.parametrize("field", [{"better": "higher"}, {"group": "Mine"}, {"unit": "percent"}])
def test_scores_know_their_choices(field):
    with pytest.raises(LatentensError, match=f"{next(iter(field))} must be one of"):
        le.scores.Score("mine", "Something", **field)


@pytest.mark.parametrize(
    ("datasets", "methods", "scores", "words"),
    [
        (VOTES, [le.methods.MajorityVote()], (), "compare takes data sets"),
        (le.Dataset("a", VOTES), ["MajorityVote"], (), "'MajorityVote' is not a method"),
        (le.Dataset("a", VOTES), [le.methods.MajorityVote], (), "pass an instance"),
        (le.Dataset("a", VOTES), [le.methods.MajorityVote()], [max], "is not a score"),
    ],
)
def test_comparisons_say_what_they_take(datasets, methods, scores, words):
    with pytest.raises(LatentensError, match=words):
        le.compare(datasets, methods, key=KEY, scores=scores)


def test_data_sets_take_gold_labels_by_name():
    dataset = le.Dataset("a", VOTES, gold={3: 1, 5: 0})
    assert dataset.gold is not None
    assert dataset.is_scored_by_gold
    assert (dataset.gold[[3, 5]] == [1, 0]).all()
    assert (dataset.gold >= 0).sum() == 2
    assert (dataset.labels == -1).all()
