"""Names of items, voters, classes and methods that look like markup, formulas or commands stay text everywhere."""

import re
import sys

import numpy as np
import pandas as pd
import pytest

from latentens.cli import main
from tests.test_report import Reader

VOTERS = [
    "</script><script>alert(1)</script>",
    "[bold red]m[/]",
    '" onload="alert(2)',
    "=1+1",
    "two\nlines, and a 'comma'",
    "\x1b[31mred\x07",
    "\u202eבודק",
    "n" * 300,
]
"""Markup of pages and terminals, an attribute, a formula, quotes, control characters, another direction, no end."""

CLASSES = ["=cmd|'/C calc'!A0", "<b>yes</b>"]
MARKUP = {"script": 1, "b": 0, "i": 0, "svg": 0}
COMMANDS = re.compile(r"\x1b\[3\d|\x07|\u202e")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Votes of eight voters of whom two vote alike, and the truth of some items."""
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(0)
    truth = rng.integers(0, 2, 160)
    votes = np.where(rng.random((160, 8)) < 0.75, truth[:, None], 1 - truth[:, None])
    votes[:, 1] = np.where(rng.random(160) < 0.9, votes[:, 0], votes[:, 1])
    items = pd.Index([f'<img src=x onerror="alert({i})">' for i in range(160)], name="item")
    words = np.array(CLASSES, dtype=object)
    pd.DataFrame(words[votes], items, VOTERS).to_csv(folder / "<votes>.csv")
    pd.DataFrame({"truth": words[truth]}, items).iloc[:60].to_csv(folder / "truth.csv")
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a command: what it shows, in which nothing commands the terminal."""

    def run(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["latentens", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        shown = "".join(capsys.readouterr())
        assert not COMMANDS.search(shown)
        return shown

    return run


class Attributes(Reader):
    """Collects the names of attributes too."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def handle_starttag(self, tag, attributes):
        self.names |= {name for name, _ in attributes}
        super().handle_starttag(tag, attributes)


def test_files_hold_names_as_they_were_written(run, folder):
    run("fit", "DawidSkeneEM", "<votes>.csv", "--out", "labels.csv", "--voters", "voters.csv")
    labels, voters = (pd.read_csv(folder / name) for name in ("labels.csv", "voters.csv"))
    assert list(voters["voter"]) == VOTERS
    assert set(labels["label"]) == set(CLASSES)
    assert {f"prob_{name}" for name in CLASSES} <= set(labels)
    assert labels["item"][3] == '<img src=x onerror="alert(3)">'


def test_neither_terminal_nor_page_obeys_a_name(run, folder):
    methods = ("-m", "<i>&[/b]\x1b[31m=MajorityVote", "-m", "DawidSkeneEM")
    shown = run("compare", "--votes", "<votes>.csv", "--truth", "truth.csv", "--out", "report", *methods)
    for name in ("[bold red]m[/]", r"<i>&[/b]\x1b[31m", "<votes>"):
        assert name in shown
    source, reader = (folder / "report" / "report.html").read_text("utf-8"), Attributes()
    reader.feed(source)
    assert {tag: reader.tags.count(tag) for tag in MARKUP} == MARKUP
    assert not {name for name in reader.names if name.startswith("on")}
    assert not COMMANDS.search(source)
    assert all(address.startswith(("data:", "#")) for address in reader.addresses)
    text, written_out = " ".join(reader.text), (r"\x1b[31mred\x07", r"\u202eבודק")
    for name in (*VOTERS[:5], *written_out, VOTERS[-1], *CLASSES, "<i>&[/b]", "<img src=x onerror="):
        assert name in text
    assert list(pd.read_csv(folder / "report" / "voters.csv")["voter"])[: len(VOTERS)] == VOTERS
