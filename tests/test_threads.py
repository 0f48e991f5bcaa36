"""BLAS is bound to one thread while small products run."""

import threading
from functools import partial

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from latentens.methods import MajorityVote
from latentens.runtime.parallel import available_cores, in_threads, one_blas_thread
from latentens.scores import intervals, scores
from latentens.votes import Votes


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
def test_scoring_runs_on_one_thread(function):
    seen = []

    def spy(sample):
        seen.append(blas_threads())
        return np.zeros(sample.weights.shape[1])

    record = scores.Score("spy", "Sees the threads", "Labels", spy)
    function(np.array([0, 1]), np.array([[0.5, 0.5], [0.2, 0.8]]), scores=(record,))
    assert seen
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {2}


def test_a_thread_that_comes_and_goes_does_not_lift_the_bound():
    def pass_through():
        with one_blas_thread():
            pass

    with one_blas_thread():
        thread = threading.Thread(target=pass_through)
        thread.start()
        thread.join()
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_fits_and_python_threads_run_on_one_thread(monkeypatch):
    seen = []

    class Spy(MajorityVote):
        def posterior(self, estimate, votes):
            seen.append(blas_threads())
            return super().posterior(estimate, votes)

    votes = Votes.from_matrix([[0, 1, 1], [1, 1, 0]])
    Spy().fit(votes, key=jax.random.key(0)).predict(votes)
    in_threads(lambda _: seen.append(blas_threads()), range(3), workers=2)
    assert seen == [{1}] * len(seen)
    assert len(seen) >= 5
    assert blas_threads() == {2}


def test_cores_can_be_limited(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert available_cores() == 1
