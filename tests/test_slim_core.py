"""The core without optional dependencies: fitting, comparing and most commands work, and the others say what to do."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from latentens.errors import LatentensError, MissingExtraError, require

ROOT = Path(__file__).parents[1]
OPTIONAL = ("PIL", "arviz_base", "arviz_plots", "h5netcdf", "h5py", "jinja2", "matplotlib", "pyarrow", "sklearn")
REMEDY = 'pip install "latentens[all]"'

SCRIPT = """
import sys

sys.modules.update(dict.fromkeys({blocked}))
import jax
import latentens as le

data = le.simulate(le.models.DawidSkene(5), 60, key=jax.random.key(0))
fit = le.methods.DawidSkeneEM().fit(data.votes, key=jax.random.key(1))
print(len(fit.predict(data.votes)), len(fit.voters), fit)
fit.to_datatree()
tree = le.compare([data], [le.methods.MajorityVote(), le.methods.DawidSkeneEM()], key=jax.random.key(2))
failures = (
    lambda: le.report,
    lambda: fit.save("fit.nc"),
    lambda: le.load_fit("fit.nc"),
    lambda: le.save_comparison(tree, "tree.nc"),
    lambda: le.load_comparison("tree.nc"),
    lambda: __import__("latentens.sklearn"),
    lambda: le.Votes.from_parquet("votes.parquet"),
)
for failing in failures:
    try:
        failing()
    except ValueError as error:
        print("refused:", error)
data.votes.to_frame().to_csv("votes.csv")

from latentens.cli.app import run

for arguments in (
    "fit DawidSkeneEM votes.csv --out labels.csv",
    "check votes.csv",
    "compare --votes votes.csv -m MajorityVote -m DawidSkeneEM",
    "compare --votes votes.csv --out results",
):
    sys.argv = ["latentens", *arguments.split()]
    try:
        run()
    except SystemExit as end:
        print("exit code:", end.code or 0, flush=True)
"""


def test_core_works_without_optional_dependencies(tmp_path):
    script = SCRIPT.format(blocked=OPTIONAL)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refusals = [line for line in done.stdout.splitlines() if line.startswith("refused:")]
    assert len(refusals) == 7
    assert all("latentens[" in line for line in refusals)
    assert re.findall(r"exit code: (\d)", done.stdout) == ["0", "0", "0", "2"]
    *_, last = done.stderr.splitlines()
    assert last.startswith("latentens: --out needs arviz_plots, ")
    assert last.endswith(REMEDY)
    assert not (tmp_path / "results").exists()


def test_missing_module_is_named_with_the_remedy():
    require("Nothing", "numpy")
    with pytest.raises(MissingExtraError, match=r"^Flying needs no_such_module, nor_this: pip install") as raised:
        require("Flying", "no_such_module", "numpy", "nor_this")
    assert isinstance(raised.value, LatentensError)
    assert isinstance(raised.value, ImportError)


def test_tests_install_every_optional_part_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "latentens[all]" in extras["test"]
    assert extras["all"] == ["latentens[parquet,report,sklearn]"]
