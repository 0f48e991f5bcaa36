"""The guide as notebooks: `python -m analyses.guide.notebooks FOLDER` makes one of each page; none is kept by hand."""

import json
import re
import sys
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"```python\n(.*?)```\n?", re.DOTALL)


def notebook(text: str) -> dict[str, Any]:
    """A page as a notebook of format 4.5: blocks of Python become cells of code, all else text."""
    parts = BLOCK.split(text)  # text, code, text, …
    cells = []
    for number, part in enumerate(parts):
        source = part.strip("\n").splitlines(keepends=True)
        if source:
            code = {"cell_type": "code", "execution_count": None, "outputs": []}
            kind = code if number % 2 else {"cell_type": "markdown"}
            cells.append({**kind, "id": f"cell-{number}", "metadata": {}, "source": source})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(folder: Path) -> list[Path]:
    """Write every page of the guide as a notebook."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for page in sorted(Path(__file__).parent.glob("*.md")):
        made.append(folder / f"{page.stem}.ipynb")
        made[-1].write_text(json.dumps(notebook(page.read_text("utf-8")), indent=1) + "\n", "utf-8")
    return made


if __name__ == "__main__":
    for path in write_notebooks(Path(sys.argv[1])):
        print(path)
