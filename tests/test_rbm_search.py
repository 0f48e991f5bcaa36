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


def test_an_interrupted_search_goes_on_where_it_stopped(votes, table, tmp_path, monkeypatch):
    journal = tmp_path / "trials.jsonl"
    random_search(votes, SPACE, key=KEY, num_trials=2, base=BASE, journal=journal)
    with journal.open("a") as file:
        file.write('\n{"key": [0, 0], "result": {"tri')
    tried = []
    real = search_module._try
    monkeypatch.setattr(search_module, "_try", lambda *args: tried.append(1) or real(*args))
    resumed = random_search(votes, SPACE, key=KEY, num_trials=4, base=BASE, journal=journal)
    assert len(tried) == 2
    pd.testing.assert_frame_equal(resumed, table)
    random_search(votes, SPACE, key=KEY, num_trials=4, base=BASE, journal=journal)
    assert len(tried) == 2
    with pytest.raises(LatentensError, match="another key"):
        random_search(votes, SPACE, key=jax.random.key(1), num_trials=4, base=BASE, journal=journal)


def test_a_trial_that_diverges_is_a_row_with_its_reason(votes):
    base = SampledTraining(epochs=3, schedule="constant", penalty=1.0)
    table = random_search(votes, {"num_hidden": [2], "learning_rate": [1e6]}, key=KEY, num_trials=1, base=base)
    assert "diverged" in table["failure"].iloc[0]
    assert np.isnan(table["log_likelihood"].astype(float).iloc[0])


def test_an_unknown_option_is_refused(votes):
    with pytest.raises(LatentensError, match="rate"):
        random_search(votes, {"rate": [1]}, key=KEY)
