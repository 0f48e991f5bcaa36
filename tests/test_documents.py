"""The examples in the documents run when pasted."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analyses.guide.figures import code_of, figures_of
from analyses.guide.notebooks import write_notebooks

ROOT = Path(__file__).parents[1]


GUIDE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "analyses" / "guide").glob("*.md"))
SLOW = ("arviz.md", "own_model.md")


def page(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name.endswith(SLOW) else [])


@pytest.mark.parametrize(
    "document", ["README.md", "models/README.md", "latentens/methods/README.md", *map(page, GUIDE)]
)
def test_python_examples_run(document, tmp_path):
    code = code_of(ROOT / document)
    assert code
    (tmp_path / "votes.csv").write_text("item,voter,vote\n1,a,yes\n1,b,no\n2,a,no\n2,b,no\n")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for figure in figures_of(ROOT / document):  # a page draws what it shows
        assert (tmp_path / figure).is_file()
        assert (ROOT / "analyses" / "figures" / figure).is_file()


def test_guide_becomes_notebooks(tmp_path):
    made = write_notebooks(tmp_path)
    assert len(made) == len(GUIDE)
    for path, name in zip(made, GUIDE, strict=True):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
        assert code == [block.strip("\n") for block in blocks]
