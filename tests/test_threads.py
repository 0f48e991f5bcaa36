"""BLAS is bound to one thread while small products run."""

from functools import partial

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from latentens.evaluation import intervals, scores
from latentens.runtime.threads import available_cores, one_blas_thread


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_the_bound_nests_and_is_lifted():
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert blas_threads() == {2}


@pytest.mark.parametrize("function", [scores.evaluate, partial(intervals, key=jax.random.key(0), resamples=3)])
def test_scoring_runs_on_one_thread(monkeypatch, function):
    seen = []

    def spy(draws):
        seen.append(blas_threads())
        return np.zeros(len(draws.weights))

    monkeypatch.setattr(scores, "SCORES", (scores.Score("spy", "Sees the threads", "Labels", spy),))
    function(np.array([0, 1]), np.array([[0.5, 0.5], [0.2, 0.8]]))
    assert seen
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {2}


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    assert available_cores() >= 1
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert available_cores() == 1
