"""A sweep on Dask: a real cluster of worker processes, one of which is killed."""

import logging
import os
import signal
import threading
import time

import pytest
import xarray as xr
from distributed import Client, LocalCluster

from tests.test_compare import sweep, without_times


@pytest.fixture
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.slow
def test_a_sweep_on_workers_survives_the_loss_of_one(client, tmp_path):
    pids = client.run(os.getpid)
    assert len(pids) == 2
    assert os.getpid() not in pids.values()
    cells = tmp_path / "cells"

    def kill_one_when_some_cells_are_done():
        while len(list(cells.glob("*.npz"))) < 3:
            time.sleep(0.01)
        os.kill(next(iter(pids.values())), signal.SIGKILL)

    killer = threading.Thread(target=kill_one_when_some_cells_are_done, daemon=True)
    killer.start()
    tree = sweep(cells, client=client)
    killer.join(timeout=10)
    assert not killer.is_alive()
    assert len(list(cells.glob("*.npz"))) == 14, "what failed is not kept"
    xr.testing.assert_identical(without_times(tree), without_times(sweep(tmp_path / "here")))
