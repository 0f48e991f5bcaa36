"""The site builds without warnings, so its internal links hold, and it loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_site_builds_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    command = ["mkdocs", "build", "--strict", "-f", "analyses/site/mkdocs.yml", "-d", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Marginal leave-one-out" in page
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=.?https?://", page)
    assert "DawidSkeneEM" in (tmp_path / "reference/methods.html").read_text(encoding="utf-8")
