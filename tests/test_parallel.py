"""Threads stop together."""

import signal
import threading
import time

import pytest

from latentens.errors import LimitError
from latentens.runtime import parallel
from latentens.runtime.parallel import in_threads, stop_if_asked, time_limited


def endless(_):
    while True:
        stop_if_asked()
        time.sleep(0.001)


def test_results_come_in_the_order_of_the_parts():
    def slow_if_early(part):
        time.sleep(0.02 * (3 - part))
        return part

    assert in_threads(slow_if_early, range(4), workers=4) == [0, 1, 2, 3]


@pytest.mark.parametrize(("cores", "cells", "most"), [(4, 2, 4), (4, 4, 4), (4, 3, 3), (2, 5, 5), (1, 2, 2)])
def test_threads_within_threads_share_the_cores(monkeypatch, cores, cells, most):
    """Cells, each with starts, each with blocks: never more at work than cores, or than cells were asked for."""
    monkeypatch.setattr(parallel, "available_cores", lambda: cores)
    lock, at_work, seen = threading.Lock(), 0, []

    def block(number):
        nonlocal at_work
        with lock:
            at_work += 1
            seen.append(at_work)
        time.sleep(0.002)
        with lock:
            at_work -= 1
        return number

    def start(number):
        return number + sum(in_threads(block, range(3)))

    def cell(number):
        return number + sum(in_threads(start, range(4), workers=cores))

    assert in_threads(cell, range(6), workers=cells) == [number + 6 + 4 * 3 for number in range(6)]
    assert len(seen) == 6 * 4 * 3
    assert max(seen) <= most
    assert in_threads(cell, [], workers=cells) == []


@pytest.fixture
def heard():
    """An interrupt is heard even where the session was started with interrupts ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_an_interrupt_stops_running_threads_and_starts_no_more():
    started = []

    def run(part):
        started.append(part)
        if len(started) == 2:
            time.sleep(0.1)  # until the caller waits for results
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        endless(part)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        in_threads(run, range(50), workers=2)
    assert started == [0, 1]
    assert threading.active_count() == before


def test_an_error_in_one_thread_stops_the_others():
    def run(part):
        if part == 1:
            raise ValueError("one")
        endless(part)

    with pytest.raises(ValueError, match="one"):
        in_threads(run, range(8), workers=2)


def test_threads_within_threads_stop_too():
    inside = threading.Event()

    def run(part):
        if part == 1:
            inside.wait()
            raise ValueError("outer")

        def deepest(_):
            inside.set()
            endless(_)

        in_threads(deepest, range(2), workers=2)

    with pytest.raises(ValueError, match="outer"):
        in_threads(run, range(2), workers=2)


def test_time_is_up_in_threads_too(monkeypatch):
    monkeypatch.setenv("LATENTENS_SECONDS", "0.05")
    with (
        pytest.raises(LimitError, match="The work did not finish within the limit of 0.05 seconds"),
        time_limited("The work"),
    ):
        in_threads(endless, range(2), workers=2)
    stop_if_asked()  # the limit went with the work


def test_an_outer_limit_is_not_prolonged(monkeypatch):
    monkeypatch.setenv("LATENTENS_SECONDS", "0")
    with time_limited("outer"):
        with time_limited("inner"), pytest.raises(LimitError, match="outer did not finish"):
            stop_if_asked()
        with pytest.raises(LimitError, match="outer did not finish"):
            stop_if_asked()
