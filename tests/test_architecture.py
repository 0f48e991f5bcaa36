"""The shape of the package: who imports whom.

Imports are read from the source, those inside functions too. Those under `TYPE_CHECKING` do not count.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

LAYERS = (
    "errors",
    "runtime",
    "votes",
    "programs",
    "models",
    "datasets",
    "inference",
    "rbm",
    "methods",
    "scores",
    "checks",
    "comparison",
    "recommendation",
    "estimation",
    "reporting",
    "sklearn",
    "inspect",
    "cli",
    "__main__",
)
"""From the bottom up: a module imports its own layer and those below."""


def source_files(folder):
    link = ROOT / "latentens" / "models"  # leads to the folder `models`
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if link not in path.parents]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "latentens" else ("latentens", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for folder in ("latentens", "models") for path in source_files(folder)}


def imported_modules(code):
    """The modules of the package that some code imports; `from package import name` counts as the module it finds."""
    found, pending = set(), [ast.parse(code)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        if not _is_type_checking(node):
            pending += ast.iter_child_nodes(node)
    return {name for name in found if name.partition(".")[0] == "latentens"}


def _is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def layer(module):
    _, _, rest = module.partition(".")
    return LAYERS.index(rest.partition(".")[0])


def test_every_module_belongs_to_a_layer():
    assert {name.split(".")[1] for name in MODULES if name != "latentens"} == set(LAYERS)


def test_no_module_imports_a_higher_layer_or_the_public_door():
    higher = [
        f"{module} imports {other}"
        for module, path in MODULES.items()
        if module != "latentens"
        for other in imported_modules(path.read_text())
        if other == "latentens" or layer(other) > layer(module)
    ]
    assert not higher


def test_imports_have_no_cycle():
    graph = {name: imported_modules(path.read_text()) for name, path in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises an error that names a cycle


def test_imports_are_read_from_the_source():
    code = """
from typing import TYPE_CHECKING
import numpy, latentens.votes.votes
from latentens.rbm import rows, Machine
if TYPE_CHECKING:
    from latentens import cli
class Thing:
    def work(self):
        from latentens.errors import VotesError
"""
    found = {"latentens.votes.votes", "latentens.rbm.rows", "latentens.rbm", "latentens.errors"}
    assert imported_modules(code) == found
