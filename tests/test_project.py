"""The project itself: style, types, and what an installed wheel holds."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join)
def test_style_and_types(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


INSTALLED = """
import sys
import latentens.models
from latentens.datasets import load
assert latentens.models.__file__.startswith(sys.argv[1])
assert load("anesthesia").votes.num_items == 45 and load("caries").votes.num_items == 3869
"""


def test_wheel_holds_the_models_as_a_subpackage_and_the_published_tables(tmp_path):
    copy, site = tmp_path / "source", tmp_path / "site"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(copy)]
    subprocess.run(pip, check=True, capture_output=True)
    assert not (site / "models").exists()
    assert (site / "latentens" / "py.typed").is_file()
    command = [sys.executable, "-c", INSTALLED, str(site)]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PYTHONPATH": str(site)})
