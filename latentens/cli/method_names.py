"""Models and methods by name, as they are written on the command line."""

import ast
import importlib.util
import inspect
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from latentens import methods, models
from latentens.datasets import PAPER_MODELS
from latentens.errors import LatentensError
from latentens.methods.base import Method
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes

METHOD_NAMES = tuple(
    name for name in methods.__all__ if issubclass(getattr(methods, name), Method) and name != "SupervisedReference"
)
"""What can be fitted to votes alone."""


def find_model(name: str) -> GenerativeModel:
    """A model by its class name, by the paper's name, or from a user's file as `FILE.py:NAME`."""
    if ":" in name:
        return _model_from_file(*name.rsplit(":", 1))
    known = {key.lower(): model for key, model in PAPER_MODELS.items()}
    known |= {key.lower(): getattr(models, key)() for key in models.__all__}
    if name.lower() not in known:
        raise LatentensError(f"there is no model {name!r}; there are {', '.join(models.__all__)}, and FILE.py:NAME")
    return known[name.lower()]


def find_method(text: str, votes: Votes | None = None) -> Method:
    """A method by its name, perhaps with settings: `RBMStack(hidden=(3, 1))`, `Nuts(Tree)`.

    Settings are literals, models or settings classes of the package; nothing else is evaluated.

    Args:
        text: The name.
        votes: Votes that tell a model the number of voters and classes where the text does not.
    """
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise LatentensError(f"{text!r} is not a method; write NAME or NAME(setting=value, …)") from None
    found = _build(expression, votes)
    if not isinstance(found, Method):
        raise LatentensError(f"there is no method {text!r}; there are {', '.join(METHOD_NAMES)}")
    return found


def _build(node: ast.expr, votes: Votes | None) -> Any:
    """An object of the package from its expression: a name, a call with literals or such objects, or a literal."""
    if isinstance(node, ast.Name | ast.Call):
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        arguments = [_build(part, votes) for part in node.args] if isinstance(node, ast.Call) else []
        keywords = node.keywords if isinstance(node, ast.Call) else []
        settings = {str(part.arg): _build(part.value, votes) for part in keywords}
        return _make(name, arguments, settings, votes)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise LatentensError(f"{ast.unparse(node)!r} is neither a value nor a model") from None


def _make(name: str, arguments: list[Any], settings: dict[str, Any], votes: Votes | None) -> Any:
    classes = {key.lower(): getattr(methods, key) for key in METHOD_NAMES}
    classes |= {key.lower(): getattr(models, key) for key in models.__all__}
    found = classes.get(name.lower())
    if found is None:
        raise LatentensError(f"there is no method or model {name!r}; there are {', '.join(METHOD_NAMES)}")
    if votes is not None and issubclass(found, GenerativeModel) and not arguments:
        sizes = {"num_voters": votes.num_voters, "num_classes": votes.num_classes}
        settings = {key: sizes[key] for key in sizes if key in _settings(found)} | settings
    try:
        return found(*arguments, **settings)
    except TypeError:
        raise LatentensError(f"{found.__name__} takes the settings {', '.join(_settings(found))}") from None


def _settings(found: type) -> list[str]:
    return [setting.name for setting in fields(found)] if is_dataclass(found) else []


def _model_from_file(path: str, name: str) -> GenerativeModel:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise LatentensError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if inspect.isclass(found) and issubclass(found, GenerativeModel):
        found = found()
    elif callable(found) and not isinstance(found, GenerativeModel):
        found = GenerativeModel.from_program(found)
    if not isinstance(found, GenerativeModel):
        raise LatentensError(f"{path} has no model or program {name!r}")
    return found
