"""Random search: it finds, it resumes, it says what failed."""

import jax
import numpy as np
import pandas as pd
import pytest

from latentens.datasets import simulate
from latentens.errors import LatentensError
from latentens.models import Tree
from latentens.rbm import ExactTraining, SampledTraining, random_search
from latentens.rbm import search as search_module

SPACE = {"num_hidden": [2], "penalty": lambda generator: 10 ** generator.uniform(-4, 1)}
KEY = jax.random.key(0)
BASE = ExactTraining(restarts=2, max_iterations=100)


@pytest.fixture(scope="module")
def votes():
    model = Tree((0, 0, 0, 1, 1, 1))
    return simulate(model, 2_000, key=KEY, params=model.example_params(jax.random.key(3))).votes


@pytest.fixture(scope="module")
def table(votes):
    return random_search(votes, SPACE, key=KEY, num_trials=4, base=BASE)


def test_trials_are_sorted_and_a_heavy_penalty_is_worse(table):
    assert sorted(table["trial"]) == [0, 1, 2, 3]
    assert table["log_likelihood"].is_monotonic_decreasing
    assert table["penalty"].iloc[-1] == table["penalty"].max()
    assert table["penalty"].max() > 5 * table["penalty"].min()


def test_an_interrupted_search_resumes_where_it_stopped(votes, table, tmp_path, monkeypatch):
    random_search(votes, SPACE, key=KEY, num_trials=2, base=BASE, folder=tmp_path)
    tried = []
    real = search_module._score
    monkeypatch.setattr(search_module, "_score", lambda *args: tried.append(1) or real(*args))
    resumed = random_search(votes, SPACE, key=KEY, num_trials=4, base=BASE, folder=tmp_path)
    assert len(tried) == 2
    pd.testing.assert_frame_equal(resumed, table)
    damaged = next(tmp_path.glob("*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.warns(UserWarning, match="cannot be used"):
        again = random_search(votes, SPACE, key=KEY, num_trials=4, base=BASE, folder=tmp_path)
    pd.testing.assert_frame_equal(again, table)
    assert len(tried) == 3


def test_a_search_on_other_votes_or_with_another_key_shares_nothing(votes, tmp_path):
    first = random_search(votes, SPACE, key=KEY, num_trials=1, base=BASE, folder=tmp_path)
    fewer = votes.take(np.arange(1_500))
    for others, key in ((fewer, KEY), (votes, jax.random.key(1))):
        other = random_search(others, SPACE, key=key, num_trials=1, base=BASE, folder=tmp_path)
        assert other["log_likelihood"].item() != first["log_likelihood"].item()
    assert len(list(tmp_path.glob("*.npz"))) == 3


def test_a_trial_that_diverges_is_a_row_with_its_reason(votes):
    base = SampledTraining(epochs=3, schedule="constant", penalty=1.0)
    table = random_search(votes, {"num_hidden": [2], "learning_rate": [1e6]}, key=KEY, num_trials=1, base=base)
    assert "diverged" in table["failure"].iloc[0]
    assert np.isnan(table["log_likelihood"].astype(float).iloc[0])


def test_an_unknown_option_is_refused(votes):
    with pytest.raises(LatentensError, match="rate"):
        random_search(votes, {"rate": [1]}, key=KEY)
