"""Progress: seen on a terminal, with steps within steps; silent in a pipe."""

import os
import pty
import subprocess
import sys

import pytest

CODE = """
import time
from latentens.runtime import progress
from latentens.runtime.parallel import in_threads
with progress.task("outer [b]words[/b]", 3, patience=0.0) as advance:
    for _ in progress.track_late(range(3), lambda step: f"inner {step}", patience=0.0):
        time.sleep(0.15)
        advance("")
assert in_threads(lambda part: part + 1, [1, 2, 3], description="in threads") == [2, 3, 4]
print("done")
"""


def on_terminal(code):
    """What a program writes on a terminal, and on its standard output."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=env, text=True)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
    os.close(master)
    return shown.decode(), done.communicate()[0]


def test_a_terminal_shows_steps_within_steps():
    shown, printed = on_terminal(CODE)
    assert printed == "done\n"
    assert "outer [b]words[/b]" in shown
    assert "inner 1" in shown


def test_a_pipe_stays_silent():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.parametrize("steps", [[], [1, 2, 3], iter("abc")])
def test_steps_are_those_given(steps):
    from latentens.runtime.progress import track_late

    wanted = list(steps) if isinstance(steps, list) else list("abc")
    assert list(track_late(steps, "words", total=3)) == wanted


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_that_can_draw_bars_shows_them(monkeypatch, has_widgets):
    from latentens.runtime import progress

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: name if has_widgets else None)
    assert progress.is_shown() is has_widgets


def test_a_long_step_is_named_though_it_says_nothing():
    """After a quick one, and before it ends."""
    steps = (
        "for _ in progress.track_late(['quick', 'long'], str, patience=0.2): time.sleep(0.01 if _ == 'quick' else 0.6)"
    )
    shown, _ = on_terminal(f"import time\nfrom latentens.runtime import progress\n{steps}")
    assert "long" in shown
    assert "50%" in shown
    assert "quick" not in shown


def test_an_interrupt_takes_the_bar_away_and_brings_the_cursor_back():
    code = """
import os, signal, time
from latentens.cli.terminal import ending_on_signals
from latentens.runtime import progress
with ending_on_signals(), progress.task("words", patience=0.0):
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)  # however busy the machine is, the signal ends it
"""
    shown, _ = on_terminal(code)
    assert shown.endswith("\r\x1b[2K\x1b[?25hlatentens: interrupted; nothing was written\r\n")
