"""Which code a script runs through, as one hash per module: how `all.py` knows that a result is out of date.

From a script, names are followed to the functions, classes and constants that define them, and from there to whatever
those refer to, through this folder and the package. Only what is reached counts, in a canonical form without comments,
docstrings and annotations of functions, so that a change to one model's file concerns the scripts that use this
model. Names that are looked up in text at run time cannot be followed: a module that is used as a value counts whole.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent


class Module(NamedTuple):
    """Definitions of a module by name, where imported names come from, and its other statements."""

    name: str
    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, tuple[str, str | None]]
    rest: list[ast.stmt]


class _Canonical(ast.NodeTransformer):
    """Code without docstrings and annotations of functions."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def path_of(module: str) -> Path | None:
    """The file of a module of the package or of this folder; the stub where names are imported on first use."""
    base = (FOLDER if module.partition(".")[0] != "latentens" else ROOT).joinpath(*module.split("."))
    paths = base / "__init__.pyi", base / "__init__.py", base.with_suffix(".py")
    return next((path for path in paths if path.is_file()), None)


@cache
def read(module: str) -> Module | None:
    """A module, or None if it is a library's."""
    path = path_of(module)
    return None if path is None else parse(path.read_text(encoding="utf-8"), module, path.stem == "__init__")


def parse(text: str, module: str, is_package: bool = False) -> Module:
    found = Module(module, {}, {}, [])
    for node in _Canonical().visit(ast.parse(text)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.update(imported(node, module, is_package))
        elif names := defined(node):
            for name in names:
                found.definitions.setdefault(name, []).append(node)
        else:
            found.rest.append(node)
            for inner in ast.walk(node):  # such as imports under a condition
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    found.imports.update(imported(inner, module, is_package))
    return found


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else targets
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def imported(
    node: ast.Import | ast.ImportFrom, module: str, is_package: bool
) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """The names that an import makes known: the module, and the name in it or None for the module itself."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
        return
    above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
    source = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        yield alias.asname or alias.name, (source, alias.name)


class _Walk(ast.NodeVisitor):
    """Follows every name of some statements."""

    def __init__(self, reached: dict[tuple[str, str], str], module: Module) -> None:
        self.reached, self.module, self.local = reached, module, dict(module.imports)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        path = path_of(self.module.name)
        inner = dict(imported(node, self.module.name, path is not None and path.stem == "__init__"))
        self.local |= inner
        for name in inner:
            if inner[name][1] is not None:
                self.follow([name])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.visit_Import(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.follow([node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain, inner = [inner.attr, *chain], inner.value
        if isinstance(inner, ast.Name) and inner.id in self.local:
            self.follow([inner.id, *chain])
        else:
            self.generic_visit(node)

    def follow(self, chain: list[str]) -> None:
        name, *attributes = chain
        if name in self.module.definitions:
            reach(self.reached, self.module, name)
        elif name in self.local:
            source, inner = self.local[name]
            follow_into(self.reached, source, [*([inner] if inner else []), *attributes])


def follow_into(reached: dict[tuple[str, str], str], source: str, chain: list[str]) -> None:
    """Follow names from a module through its submodules and what it imports."""
    module = read(source)
    if module is None:
        return
    if not chain:
        for name in (*module.definitions, *module.imports):
            follow_into(reached, source, [name])
        return
    name, *attributes = chain
    if name in module.definitions:
        reach(reached, module, name)
    elif name in module.imports and module.imports[name] != (source, name):
        other, inner = module.imports[name]
        if other.partition(".")[0] == "latentens" or path_of(other):
            follow_into(reached, other, [*([inner] if inner else []), *attributes])
    elif read(f"{source}.{name}") is not None:
        follow_into(reached, f"{source}.{name}", attributes)


def reach(reached: dict[tuple[str, str], str], module: Module, name: str) -> None:
    """Record a definition, and follow what it refers to."""
    if (module.name, name) in reached:
        return
    nodes = module.definitions[name]
    reached[module.name, name] = "\n".join(ast.unparse(node) for node in nodes)
    if (module.name, "") not in reached:  # statements that run on import
        reached[module.name, ""] = "\n".join(ast.unparse(node) for node in module.rest)
        nodes = [*nodes, *module.rest]
    for node in nodes:
        _Walk(reached, module).visit(node)


def code_of(path: Path) -> dict[str, str]:
    """A hash of the reached part of each module that a script, or a page with blocks of Python, runs through."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    script = parse(text, path.stem)
    reached = {(path.stem, ""): ast.unparse(ast.Module([*script.rest], []))}
    for name in script.definitions:
        reach(reached, script, name)
    for node in script.rest:
        _Walk(reached, script).visit(node)
    modules: dict[str, list[str]] = {}
    for (module, name), code in sorted(reached.items()):
        modules.setdefault(module, []).append(f"{name}\n{code}")
    return {module: hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12] for module, parts in modules.items()}
