"""The examples in the documents run when pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("document", ["README.md", "models/README.md", "latentens/methods/README.md"])
def test_python_examples_run(document, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)
    assert blocks
    (tmp_path / "votes.csv").write_text("item,voter,vote\n1,a,yes\n1,b,no\n2,a,no\n2,b,no\n")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
