"""Models and methods as they are written on the command line, and lists of them."""

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.table import Table

from latentens import methods, models, rbm
from latentens.datasets import PAPER_MODELS
from latentens.errors import LatentensError
from latentens.methods.base import Method
from latentens.programs.contract import in_words, last_line
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes


def from_file(path: str, name: str) -> Any:
    """What a file calls `name`."""
    if not Path(path).is_file() or Path(path).suffix != ".py":
        raise LatentensError(f"{path} is not a Python file")
    module = _load(path, Path(path).stat().st_mtime_ns)
    if not hasattr(module, name):
        raise LatentensError(f"{path} has no model or program {name!r}")
    return getattr(module, name)


@lru_cache(maxsize=256)
def _load(path: str, _: int) -> ModuleType:
    """Run a file; its whole path names the module, so that a file `json.py` does not replace the module `json`."""
    spec = importlib.util.spec_from_file_location(str(Path(path).resolve()), path)
    assert spec is not None, "the path ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else last_line(str(spec.origin), error)
        words = error.msg if isinstance(error, SyntaxError) else in_words(error)
        raise LatentensError(f"{path}{f', line {line}' if line else ''}: {words}") from error
    return module


Sizes = Mapping[str, int]

METHOD_NAMES = tuple(
    name for name in methods.__all__ if issubclass(getattr(methods, name), Method) and name != "SupervisedReference"
)
"""What can be fitted to votes alone."""

SETTINGS_NAMES = ("ExactTraining", "SampledTraining", "SingularValueRule")
"""Classes that are settings of methods."""

KNOWN: dict[str, Any] = (
    {name.lower(): type(model) for name, model in PAPER_MODELS.items()}
    | {name.lower(): getattr(methods, name) for name in METHOD_NAMES}
    | {name.lower(): getattr(models, name) for name in models.__all__}
    | {name.lower(): getattr(rbm, name) for name in SETTINGS_NAMES}
)

SIZES = {"num_voters": 15, "num_classes": 2}
"""Stand for the numbers of voters and classes while votes are not yet read."""

IN_FILE = re.compile(r"(.+\.py):(\w+)")
QUOTED_OR_IN_FILE = re.compile(r"""'[^']*'|"[^"]*"|([^\s()\[\]=,'"]+\.py:\w+)""")
SHORT_NAME = re.compile(r"([^=('\"]+)=(?!=)(.+)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A model or a method as it was written, from which it is made for the votes at hand.

    Attributes:
        name: What it is called in tables: the name that was given, or all of the text.
        expression: Its parsed text; only literals, names of the package and objects of files are ever evaluated.
    """

    name: str
    expression: ast.expr

    def make(self, sizes: Sizes) -> Any:
        """The object; its models take the numbers of voters and classes from here where the text does not tell them."""
        return _build(self.expression, sizes)

    def make_for(self, votes: Votes) -> Any:
        """The object for some votes."""
        return self.make({"num_voters": votes.num_voters, "num_classes": votes.num_classes})


def find_model(text: str) -> tuple[str, GenerativeModel]:
    """A model and what it is called, by its name, by the paper's name, or from a user's file as `FILE.py:NAME`."""
    written = _parse(text, "model")
    made = written.make({})
    if not isinstance(made, GenerativeModel):
        raise LatentensError(f"{text!r} is not a model; there are {', '.join(models.__all__)}, and FILE.py:NAME")
    return written.name.rsplit(":", 1)[-1], made


def find_methods(texts: Sequence[str]) -> dict[str, Callable[[Votes], Method]]:
    """What makes each method for the votes at hand, by its name; faults of the text are found here."""
    found: dict[str, Callable[[Votes], Method]] = {}
    for text in texts:
        find_method(text)
        written = _parse(text, "method")
        if written.name in found:
            raise LatentensError(f"{text!r} is asked for twice; give one of them another name: -m 'again={text}'")
        found[written.name] = written.make_for
    return found


def find_method(text: str) -> Method:
    """A method by its name, for votes of some size that stands for others."""
    made = _parse(text, "method").make(SIZES)
    if isinstance(made, GenerativeModel):
        raise LatentensError(f"{text!r} is a model; fit it by 'MaximumLikelihood({text})' or 'Nuts({text})'")
    if not isinstance(made, Method):
        raise LatentensError(f"{text!r} is not a method; there are {', '.join(METHOD_NAMES)}")
    return made


def _parse(text: str, kind: str) -> Written:
    named = SHORT_NAME.fullmatch(text.strip())
    name, body = (part.strip() for part in named.groups()) if named else ("", text.strip())
    try:
        quoted = QUOTED_OR_IN_FILE.sub(lambda found: repr(found[1]) if found[1] else found[0], body)
        expression = ast.parse(quoted, mode="eval").body
    except (SyntaxError, ValueError):
        remedy = "write NAME, NAME(setting=value, …) or FILE.py:NAME"
        raise LatentensError(f"{text!r} is not a {kind}; {remedy}") from None
    return Written(name or body, expression)


def _build(node: ast.expr, sizes: Sizes) -> Any:
    """An object from its expression: a literal, a name, or a call whose arguments are such expressions."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_build(part, sizes) for part in node.elts)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    in_file = isinstance(call.func, ast.Constant) and IN_FILE.fullmatch(str(call.func.value))
    if not in_file and not isinstance(call.func, ast.Name | ast.Attribute):
        return _literal(node)
    found = from_file(*in_file.groups()) if in_file else _known(ast.unparse(call.func))
    arguments = [_build(part, sizes) for part in call.args]
    settings = {str(part.arg): _build(part.value, sizes) for part in call.keywords}
    name = ast.unparse(call.func).strip("'")
    if not inspect.isclass(found):
        return _ready_made(name, found, bool(arguments or settings))
    return _construct(found, arguments, settings, sizes)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise LatentensError(f"{ast.unparse(node)!r} is neither a value nor a model") from None


def _known(name: str) -> Any:
    if name.lower() in KNOWN:
        return KNOWN[name.lower()]
    names = (*METHOD_NAMES, *models.__all__, *SETTINGS_NAMES)
    if close := get_close_matches(name.lower(), KNOWN, n=1, cutoff=0.8):
        remedy = f"did you mean {next((known for known in names if known.lower() == close[0]), close[0])}?"
    else:
        remedy = f"there are {', '.join(names)}, and FILE.py:NAME"
    raise LatentensError(f"there is no method or model {name!r}; {remedy}")


def _ready_made(name: str, found: Any, has_settings: bool) -> Any:
    """What needs no construction: an object, or a program in the form of a function."""
    if has_settings:
        raise LatentensError(f"{name} takes no settings")
    if callable(found) and not isinstance(found, GenerativeModel):
        return GenerativeModel.from_program(found)
    return found


def _construct(found: type, arguments: list[Any], settings: dict[str, Any], sizes: Sizes) -> Any:
    signature = inspect.signature(found)
    names = list(signature.parameters)
    if issubclass(found, GenerativeModel) and not arguments:
        settings = {name: size for name, size in sizes.items() if name in names} | settings
    for name in settings.keys() - names:
        raise LatentensError(f"{found.__name__} has no setting {name!r}; its settings are {', '.join(names)}")
    try:
        signature.bind(*arguments, **settings)
    except TypeError as error:
        raise LatentensError(f"{found.__name__}: {error}; its settings are {', '.join(names)}") from None
    try:
        return found(*arguments, **settings)
    except LatentensError:
        raise
    except Exception as error:  # of a user's class
        raise LatentensError(f"{found.__name__}: {in_words(error)}") from error


def model_table() -> Table:
    """The generative models, with the first sentence of each."""
    table = Table("model", "in the paper", "what it says", show_lines=True)
    paper_names = {type(model).__name__: name for name, model in PAPER_MODELS.items()}
    for name in models.__all__:
        table.add_row(name, paper_names.get(name, ""), _first_words(getattr(models, name)))
    return table


def method_table() -> Table:
    """The methods and their settings, with the first sentence of each."""
    table = Table("method", "settings", "what it is", show_lines=True)
    for name in METHOD_NAMES:
        found = getattr(methods, name)
        table.add_row(name, ", ".join(setting.name for setting in fields(found)), _first_words(found))
    return table


def _first_words(documented: type) -> str:
    return (documented.__doc__ or "").split("\n\n")[0]
