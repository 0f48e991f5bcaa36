"""The examples in the documents run when pasted."""

import json
import pkgutil
import re
import runpy
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from analyses.guide.figures import code_of, figures_of
from analyses.guide.notebooks import write_notebooks

ROOT = Path(__file__).parents[1]


GUIDE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "analyses" / "guide").glob("*.md"))
SLOW = ("arviz.md", "inference.md", "own_model.md")


def page(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name.endswith(SLOW) else [])


@pytest.mark.parametrize(
    "document", ["README.md", "models/README.md", "latentens/methods/README.md", *map(page, GUIDE)]
)
def test_python_examples_run(document, tmp_path, monkeypatch, capsys):
    """In this process, which saves the imports, but as a script of its own; what a page says is printed, is."""
    code = code_of(ROOT / document)
    assert code
    for package in ("blackjax", "nutpie"):  # an extra
        if f"import {package}" in code:
            pytest.importorskip(package)
    (tmp_path / "votes.csv").write_text("item,voter,vote\n1,a,yes\n1,b,no\n2,a,no\n2,b,no\n")
    (tmp_path / "pasted.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a session of its own
        runpy.run_path("pasted.py", run_name="__main__")
    plt.close("all")
    printed = capsys.readouterr().out
    for block in re.findall(r"```text\n(.*?)```", (ROOT / document).read_text("utf-8"), flags=re.DOTALL):
        assert block in printed
    for figure in figures_of(ROOT / document):  # a page draws what it shows
        assert (tmp_path / figure).is_file()
        assert (ROOT / "analyses" / "figures" / figure).is_file()


def test_every_symbol_of_the_paper_has_its_function():
    text = (ROOT / "analyses" / "guide" / "paper_to_code.md").read_text("utf-8")
    names = set(re.findall(r"`(latentens\.[\w.]+)`", text))
    assert len(names) > 20
    for name in names:
        assert pkgutil.resolve_name(name) is not None


def test_guide_becomes_notebooks(tmp_path):
    made = write_notebooks(tmp_path)
    assert len(made) == len(GUIDE)
    for path, name in zip(made, GUIDE, strict=True):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
        assert code == [block.strip("\n") for block in blocks]
