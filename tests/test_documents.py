"""The examples in the documents run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MODEL_IMPORTS = """
from dataclasses import dataclass
import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
from latentens import GenerativeModel, simulate
"""

SIMULATE = "assert simulate(Copycats(), 100, key=jax.random.key(0)).bayes_posterior().shape == (100, 2)"


@pytest.mark.parametrize(
    ("document", "before", "after"), [("README.md", "", ""), ("models/README.md", MODEL_IMPORTS, SIMULATE)]
)
def test_python_examples_run(document, before, after, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)
    assert blocks
    (tmp_path / "votes.csv").write_text("item,voter,vote\n1,a,yes\n1,b,no\n")
    script = "\n".join([before, *blocks, after])
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
