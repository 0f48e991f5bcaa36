"""The size of the package: files, code lines, imports, constants, and the modules that common calls run through.

    python analyses/house.py [CHECKOUT …]      a column for each checkout, by default this one

Code lines are those without blanks, comments and docstrings. A module counts as run through if one of its own functions
is called.
"""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

CALLS = {
    "DawidSkeneEM.fit": "methods.DawidSkeneEM().fit(votes, key=key)",
    "MaximumLikelihood.fit": "methods.MaximumLikelihood(models.DawidSkene(7)).fit(votes, key=key)",
    "Nuts.fit": "methods.Nuts(models.DawidSkene(7), num_chains=1, num_warmup=20, num_samples=20).fit(votes, key=key)",
    "compare": "le.compare(data, two, key=key)",
    "compare and report": "le.report(le.compare(data, two, key=key), folder)",
}
"""What is asked of seven voters on 300 items."""

PROBE = """
import sys, tempfile
import jax, numpy as np
import latentens as le
from latentens import methods, models
draw = np.random.default_rng(0)
label = draw.integers(0, 2, (300, 1))
votes = le.Votes.from_matrix(np.where(draw.random((300, 7)) < .75, label, 1 - label))
data, two = le.Dataset("a", votes, np.full(300, -1)), [methods.DawidSkeneEM(), methods.MajorityVote()]
key, folder = jax.random.key(0), tempfile.mkdtemp()
seen = set()
def watch(frame, event, argument):
    if event == "call":
        seen.add(frame.f_code.co_filename)
sys.setprofile(watch)
{call}
sys.setprofile(None)
print(len({name for name in seen if "/latentens/" in name or "/models/" in name}))
"""


def code_lines(text: str) -> int:
    """Lines that are neither blank nor a comment nor part of a docstring."""
    described = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            described |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in described for n, line in lines)


def size_of(checkout: Path) -> dict[str, float]:
    """Counts of one checkout by name."""
    files, code = Counter(), Counter()
    imports = constants = 0
    for path in [*(checkout / "latentens").rglob("*.py"), *(checkout / "models").glob("*.py")]:
        parts = path.relative_to(checkout).parts
        if parts[:2] == ("latentens", "models"):  # a link to the other folder
            continue
        folder = parts[1] if len(parts) > 2 else parts[0]
        text = path.read_text()
        files[folder] += 1
        code[folder] += code_lines(text)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += node.end_lineno - node.lineno + 1
        constants += len(re.findall(r"(?m)^_?[A-Z][A-Z0-9_]+(?:: [^=\n]+)? = [-+(]?[\d.]", text))
    found = {f"code in {folder}": lines for folder, lines in sorted(code.items())}
    return {
        **found,
        "code": code.total(),
        "files": files.total(),
        "import lines, %": round(100 * imports / code.total(), 1),
        "numeric constants": constants,
    }


def modules_of(checkout: Path) -> dict[str, str]:
    """How many modules of a checkout the calls run through."""
    found = {}
    for name, call in CALLS.items():
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", PROBE.replace("{call}", call)]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        found[f"modules of {name}"] = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return found


def main() -> None:
    """Print the table."""
    checkouts = [Path(name).resolve() for name in sys.argv[1:]] or [Path(__file__).parents[1]]
    columns = [size_of(checkout) | modules_of(checkout) for checkout in checkouts]
    for row in dict.fromkeys(name for column in columns for name in column):
        print(f"{row:36}", *(f"{column.get(row, ''):>12}" for column in columns))


if __name__ == "__main__":
    main()
