import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import sharded_fits

ROOT = Path(__file__).parents[1]


def start(*arguments, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.sharded_fits", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors


def assert_same(path, expected, devices):
    found = np.load(path)
    assert found["devices"] == devices
    assert set(found) == {*expected, "devices"}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-9, rtol=1e-9, err_msg=name)


@pytest.mark.slow
def test_four_devices_give_what_one_gives(tmp_path):
    process = start(tmp_path / "four.npz", devices=4)
    expected = sharded_fits.fits()
    finish(process)
    assert_same(tmp_path / "four.npz", expected, 4)


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [start(tmp_path / f"{rank}.npz", port, rank) for rank in (0, 1)]
    expected = sharded_fits.fits() | sharded_fits.draws()
    for process in processes:
        finish(process)
    for rank in (0, 1):
        assert_same(tmp_path / f"{rank}.npz", expected, 2)
