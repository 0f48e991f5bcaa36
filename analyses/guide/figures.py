"""The figures of the guide, drawn by the pages' own code: `python analyses/guide/figures.py [--out DIR] [PAGE …]`.

Every Python block of a page runs in a folder of its own; what it saves as `guide_….png` goes to DIR, by default to
`analyses/figures/`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
FIGURES = FOLDER.parent / "figures"


def code_of(page: Path) -> str:
    """All Python blocks of a page."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))


def figures_of(page: Path) -> list[str]:
    """The figures of the guide that a page shows."""
    return re.findall(r"\]\(\.\./figures/(guide_\w+\.png)\)", page.read_text(encoding="utf-8"))


def draw(page: Path, out: Path) -> None:
    """Run a page and keep its figures."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), "MPLBACKEND": "agg"}
        subprocess.run([sys.executable, "-c", code_of(page)], cwd=folder, env=environment, check=True)
        for name in figures_of(page):
            shutil.copy(Path(folder) / name, out / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", default=[path.stem for path in sorted(FOLDER.glob("*.md"))])
    parser.add_argument("--out", type=Path, default=FIGURES)
    parser.add_argument("--seed", help="pages have seeds of their own")
    parser.add_argument("--data", help="pages make their data")
    given = parser.parse_args()
    for path in (FOLDER / f"{name}.md" for name in given.pages):
        if figures_of(path):
            draw(path, given.out)
