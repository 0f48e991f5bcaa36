"""What an installation costs, and whether the commands of the README work in a new one.

    python analyses/install.py --out DIR [--before REVISION] [--kinds folder wheel sdist]

Each row of `install.csv` is a new environment: the tree before the core became slim, and the present commit from its
folder, with and without `[all]`, its wheel and its sdist. Megabytes are those of everything that `pip install` adds;
seconds are those of `pip install`, with pip's cache as it is, and of importing the methods (median of five), with their
processor time, which a busy machine changes less.
`install_commands.csv` has each command of the README, run word for word in the environments of wheel and sdist; only
the test suite is left out. Needs git, an index of packages and a few minutes.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import run, write
from guide.figures import code_of
from scaling import load_per_core
from speed_commands import children_processor

ROOT = Path(__file__).parents[1]
BEFORE = "b8e1fe9^"
"""The last commit whose core had every dependency."""
IMPORT = "import latentens; latentens.methods"
REPEATS = 5


def main(
    data: Path | None, out: Path, seed: int, before: str = BEFORE, kinds: tuple[str, ...] = ("folder", "wheel", "sdist")
) -> pd.DataFrame:
    del data  # all votes are simulated
    rows: list[dict[str, Any]] = []
    commands: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        old, new = (checkout(revision, folder / name) for revision, name in ((before, "old"), ("HEAD", "new")))
        plan = [("before", "folder", old, ""), ("now", "folder", new, ""), ("now", "folder", new, "[all]")]
        plan += [("now", kind, file, "[all]") for kind, file in packages(new, folder).items()]
        plan = [row for row in plan if row[1] in kinds]
        for number, (code, kind, source, extra) in enumerate(plan):
            environment = folder / f"environment_{number}"
            cost = install(environment, f"{source}{extra}")
            rows.append({"code": code, "from": kind, "extra": extra or "none"} | cost)
            write(out, "install", table=pd.DataFrame(rows).set_index(["code", "from", "extra"]))
            if kind != "folder":
                commands += try_commands(environment, folder / f"work_{number}", kind, seed)
                write(out, "install_commands", table=pd.DataFrame(commands).set_index(["from", "command"]))
    return pd.DataFrame(rows)


def checkout(revision: str, folder: Path) -> Path:
    """The files of a commit, without its history."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    return folder


def packages(source: Path, folder: Path) -> dict[str, Path]:
    """A wheel and an sdist, built by setuptools in an environment of their own."""
    python = new_environment(folder / "building")
    subprocess.run([python, "-m", "pip", "install", "-q", "build"], check=True)
    subprocess.run([python, "-m", "build", "-o", str(folder / "dist"), str(source)], check=True, capture_output=True)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def new_environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return str(folder / "bin" / "python")


def install(folder: Path, what: str) -> dict[str, Any]:
    """Install into a new environment; its size and seconds, and those of an import."""
    python = new_environment(folder)
    empty = size_of(folder)
    start = time.perf_counter()
    subprocess.run([python, "-m", "pip", "install", "-qqq", what], cwd=folder, check=True)
    seconds = time.perf_counter() - start
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    names = [line for line in listed.stdout.splitlines() if not line.startswith(("pip=", "setuptools="))]
    imports, processor = [], []
    for _ in range(REPEATS + 1):  # the first one writes bytecode that pip left out
        start, before = time.perf_counter(), children_processor()
        subprocess.run([python, "-c", IMPORT], cwd=folder, check=True)
        imports.append(time.perf_counter() - start)
        processor.append(children_processor() - before)
    return {
        "packages": len(names),
        "megabytes": round((size_of(folder) - empty) / 1e6),
        "install_seconds": round(seconds),
        "import_seconds": round(statistics.median(imports[1:]), 2),
        "import_processor": round(statistics.median(processor[1:]), 2),
        "load_per_core": round(load_per_core(), 1),
    }


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def try_commands(environment: Path, work: Path, kind: str, seed: int) -> list[dict[str, Any]]:
    """Run what the README says, line by line, and its Python; exit code and seconds of each."""
    work.mkdir()
    write_files(work, seed)
    (work / "quick_start.py").write_text(code_of(ROOT / "README.md"), encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    lines = [line.rpartition("&& .venv/bin/")[2] for line in lines if not line.endswith("pytest")]
    variables = os.environ | {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LATENTENS_CACHE": str(work / "cache"),
    }
    found = []
    for line in ["python quick_start.py", *lines]:
        start = time.perf_counter()
        done = subprocess.run(line, shell=True, cwd=work, env=variables, capture_output=True, text=True, check=False)
        seconds = round(time.perf_counter() - start, 1)
        found.append({"from": kind, "command": line, "exit": done.returncode, "seconds": seconds})
        print(line, done.returncode, *done.stderr.splitlines()[-3:] if done.returncode else (), sep="\n  ", flush=True)
    return found


def write_files(work: Path, seed: int) -> None:
    """The files that the README names: votes of five judges, gold labels, and a file with a model and a method."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["bad", "good"], 400)
    other = np.where(labels == "bad", "good", "bad")
    judges = {
        name: np.where(rng.random(400) < skill, labels, other)
        for name, skill in zip(("GPT-4", "B", "C", "D", "E"), (0.9, 0.85, 0.8, 0.75, 0.7), strict=True)
    }
    items = [f"q{item}" for item in range(400)]
    for name in ("judges.csv", "my.csv"):
        pd.DataFrame({"item": items} | judges).to_csv(work / name, index=False)
    known = rng.choice(400, 60, replace=False)
    for name in ("gold.csv", "known.csv"):
        pd.DataFrame({"item": np.array(items)[known], "label": labels[known]}).to_csv(work / name, index=False)
    parts = []
    for document, old, new in (
        ("models/README.md", "Copycats", "MyModel"),
        ("latentens/methods/README.md", "WeightedVote", "MyMethod"),
    ):
        parts.append(code_of(ROOT / document).partition("\ndata = ")[0].replace(old, new))
    (work / "my_file.py").write_text("\n\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    run(main, __doc__)
