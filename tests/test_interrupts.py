"""An interrupt ends a command at once and cleanly, and what was finished is not done again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from latentens.comparison import load_comparison
from tests.reference import independent_votes

COMMAND = Path(sys.executable).with_name("latentens")
PATIENCE = 60
"""Seconds after which a command counts as hanging; no measure of speed."""

NOTHING = "latentens: interrupted; nothing was written"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Votes in a file."""
    made = tmp_path_factory.mktemp("interrupts")
    votes, _ = independent_votes(300, np.full(6, 0.7), np.full(6, 0.8))
    votes.to_frame().to_csv(made / "votes.csv")
    return made


def start(*arguments, cwd, **environment):
    return subprocess.Popen(
        [COMMAND, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def interrupt(process, number=signal.SIGINT):
    """Exit code and what was said on standard error."""
    process.send_signal(number)
    try:
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, said.strip()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_cannot_be_interrupted(number, code):
    lines = [
        "import time",
        "from latentens.cli.terminal import ending_on_signals",
        "with ending_on_signals():",
        "    print('ready', flush=True)",
        f"    time.sleep({2 * PATIENCE})",  # no exception interrupts it: the handler raises none
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    assert interrupt(process, number) == (code, NOTHING)


def test_signals_that_are_ignored_stay_ignored():
    lines = [
        "import signal",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "from latentens.cli.terminal import ending_on_signals",
        "with ending_on_signals():",
        "    signal.raise_signal(signal.SIGINT)",
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN",
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_interrupted_while_compiling(folder):
    process = start("fit", "Nuts(DawidSkene)", "votes.csv", "--out", "posterior.csv", cwd=folder, JAX_LOG_COMPILES="1")
    while "Compiling jit(_draw)" not in process.stderr.readline():
        assert process.poll() is None
    code, said = interrupt(process)
    assert code == 130
    assert said.endswith(NOTHING)
    assert not (folder / "posterior.csv").exists()


def test_finished_fits_are_kept(folder):
    arguments = ("compare", "--votes", "votes.csv", "-m", "MajorityVote", "-m", "Nuts(DawidSkene)", "--out", "results")
    process = start(*arguments, cwd=folder)
    while not list((folder / "results").glob("cells/*.npz")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    code, said = interrupt(process)
    kept = "latentens: interrupted; 1 of 2 fits are finished and kept; run the same command to continue"
    assert (code, said.splitlines()[-1]) == (130, kept)  # before it stands what the votes say


COMPARE = ["compare", "--votes", "votes.csv"]
for method in ("MajorityVote", "DawidSkeneEM", "MaximumLikelihood(DawidSkene)", "TopDownMLE(num_hidden=3)"):
    COMPARE += ["-m", method]
COMPARE += ["--out", "results"]
FIT = ["fit", "TopDownMLE(num_hidden=3)", "votes.csv", "--out", "posterior.csv"]


def at_random_times(command, cwd, number, generator):
    """Exit codes and messages of interrupts at random times, after a run without."""
    (cwd / "votes.csv").write_text((cwd.parent / "votes.csv").read_text())
    begun = time.monotonic()
    assert subprocess.run([COMMAND, *command], cwd=cwd, capture_output=True, check=False).returncode == 0
    whole = time.monotonic() - begun
    (cwd / command[-1]).rename(cwd / "whole")
    for _ in range(number):
        process = start(*command, cwd=cwd)
        try:
            process.wait(whole * generator.uniform(0.1, 0.95))
            process.communicate()
            assert process.returncode == 0
        except subprocess.TimeoutExpired:
            yield interrupt(process)


@pytest.mark.slow
def test_interrupts_of_a_fit_at_random_times(folder):
    (folder / "fit").mkdir()
    for code, said in at_random_times(FIT, folder / "fit", 15, random.Random(1)):
        assert (code, said) == (130, NOTHING)
    assert subprocess.run([COMMAND, *FIT], cwd=folder / "fit", capture_output=True, check=False).returncode == 0
    assert (folder / "fit" / "posterior.csv").read_text() == (folder / "fit" / "whole").read_text()


@pytest.mark.slow
def test_interrupts_of_a_comparison_at_random_times(folder):
    cwd = folder / "compare"
    cwd.mkdir()
    for code, said in at_random_times(COMPARE, cwd, 15, random.Random(2)):
        assert code == 130
        assert said.startswith("latentens: interrupted; ")
        assert len(said.splitlines()) == 1
    assert subprocess.run([COMMAND, *COMPARE], cwd=cwd, capture_output=True, check=False).returncode == 0
    assert not list((cwd / "results").rglob("*.part"))
    resumed, whole = (load_comparison(cwd / name / "tree.nc") for name in ("results", "whole"))
    assert [node.path for node in resumed.subtree] == [node.path for node in whole.subtree]
    for node in resumed.subtree:
        ours, theirs = (tree[node.path].to_dataset() for tree in (resumed, whole))
        measured = [name for name in ("seconds", "peak_memory") if name in ours]
        xr.testing.assert_equal(ours.drop_vars(measured), theirs.drop_vars(measured))
