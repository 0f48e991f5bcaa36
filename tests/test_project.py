"""The project itself: style, types, and what an installed wheel holds."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join)
def test_style_and_types(command):
    if command == ["mypy"] and sys.version_info >= (3, 12):
        pytest.skip("types are checked on the oldest Python: those of libraries change with their versions")
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("linked", [True, False], ids=["checkout", "sdist"])  # an sdist has no symbolic links
def test_wheel_holds_the_models_as_a_subpackage_and_every_file(tmp_path, linked):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("latentens", "models"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    if not linked:
        (source / "latentens" / "models").unlink()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    own = {path.relative_to(ROOT) for path in (ROOT / "latentens").rglob("*")}
    wanted = {path for path in own if (ROOT / path).is_file() and "models" not in path.parts}
    wanted |= {"latentens" / path.relative_to(ROOT) for path in (ROOT / "models").rglob("*.py")}
    wanted = {path.as_posix() for path in wanted if "__pycache__" not in path.parts}
    assert held == wanted - {"latentens/methods/README.md"}
    assert {f"latentens/{name}" for name in ("py.typed", "models/tree.py", "datasets/published/caries.csv")} < held
