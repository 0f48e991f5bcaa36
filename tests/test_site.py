"""The site builds without warnings, so its internal links hold, and it loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from latentens.programs.contract import structure_of

ROOT = Path(__file__).parents[1]


def test_site_builds_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    command = ["mkdocs", "build", "--strict", "-f", "analyses/site/mkdocs.yml", "-d", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Marginal leave-one-out" in (tmp_path / "index.html").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=.?https?://", text), page
    for page in (tmp_path / "reference").glob("*.html"):
        assert page.name == "index.html" or "doc-heading" in page.read_text(encoding="utf-8"), f"{page} is empty"
    assert "DawidSkeneEM" in (tmp_path / "reference/methods.html").read_text(encoding="utf-8")


def test_plate_diagrams_have_the_sites_of_the_programs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "analyses")
    from plates import FOLDER, MODELS

    page = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    for name, model in MODELS.items():
        drawn = set(re.findall(r">(\w+)</text>", (FOLDER / f"{name}.svg").read_text(encoding="utf-8")))
        assert {"item", "label", "vote", *structure_of(model).parameter_shapes} <= drawn, "run analyses/plates.py"
        assert f"figures/plates/{name}.svg" in page
