"""The examples in docstrings run, and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(("latentens", *path.relative_to(folder).with_suffix("").parts)): path
    for folder in (ROOT / "latentens", ROOT)
    for path in (ROOT / "latentens" if folder != ROOT else ROOT / "models").rglob("*.py")
}
MODULES = sorted(name for name, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8"))
EXTRAS = {"latentens.sklearn": "sklearn"}


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module, tmp_path, monkeypatch):
    if module in EXTRAS:
        pytest.importorskip(EXTRAS[module])
    monkeypatch.chdir(tmp_path)  # some write files
    failed, tried = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried
    assert not failed
