"""Models and methods as they are written on the command line: `NAME`, `NAME(setting=value, …)` or `FILE.py:NAME`.

And the methods that are compared if the user names none.
"""

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.table import Table

from latentens import methods, models, rbm
from latentens.datasets import PAPER_MODELS, Dataset
from latentens.errors import LatentensError
from latentens.methods.base import Method
from latentens.programs.contract import in_words, last_line
from latentens.programs.model import GenerativeModel
from latentens.votes import Votes

METHOD_NAMES = tuple(name for name in methods.__all__ if issubclass(getattr(methods, name), Method))
"""Methods that can be fitted to votes alone."""

SETTINGS_NAMES = ("ExactTraining", "SampledTraining", "SingularValueRule")
"""Classes that are settings of methods."""

ALL_NAMES = (*METHOD_NAMES, *models.__all__, *SETTINGS_NAMES)

KNOWN: dict[str, Any] = (
    {name.lower(): type(model) for name, model in PAPER_MODELS.items()}
    | {name.lower(): getattr(methods, name) for name in METHOD_NAMES}
    | {name.lower(): getattr(models, name) for name in models.__all__}
    | {name.lower(): getattr(rbm, name) for name in SETTINGS_NAMES}
)

IN_FILE = re.compile(r"(.+\.py):(\w+)")
QUOTED_OR_IN_FILE = re.compile(r"""'[^']*'|"[^"]*"|([^\s()\[\]=,'"]+\.py:\w+)""")
SHORT_NAME = re.compile(r"([^=('\"]+)=(?!=)(.+)", re.DOTALL)

GRADED = "MaximumLikelihood(GradedResponse)"
"""The method for ordered votes unless the user names another."""

Sizes = Mapping[str, int]
"""Values for the settings `num_voters`, `num_classes`, … of models whose text does not give them."""


def find_model(text: str) -> tuple[str, GenerativeModel]:
    """A model and its name in tables; `text` may also be its name in the paper."""
    name, expression = _parse(text, "model")
    made = _build(expression, {}, models.__all__)
    if not isinstance(made, GenerativeModel):
        _refuse_own(made, text, GenerativeModel)
        raise LatentensError(f"{text!r} is not a model; the models are {', '.join(models.__all__)}, and FILE.py:NAME")
    return name.rsplit(":", 1)[-1], made


def find_methods(texts: Sequence[str]) -> dict[str, Callable[[Votes], Method]]:
    """Functions that make each method for given votes, by the name of the method in tables.

    Each method is made once for votes of some size, so that errors in the text are found before any work.
    """
    found: dict[str, Callable[[Votes], Method]] = {}
    for text in texts:
        name, expression = _parse(text, "method")
        made = _build(expression, {"num_voters": 15, "num_classes": 2})
        if isinstance(made, GenerativeModel):
            raise LatentensError(f"{text!r} is a model; fit it by 'MaximumLikelihood({text})' or 'Nuts({text})'")
        if not isinstance(made, Method):
            _refuse_own(made, text, Method)
            raise LatentensError(f"{text!r} is not a method; the methods are {', '.join(METHOD_NAMES)}")
        if name in found:
            raise LatentensError(f"{text!r} appears twice; give one of them another name: -m 'again={text}'")
        found[name] = partial(_for_votes, expression)
    return found


def _refuse_own(made: Any, text: str, wanted: type) -> None:
    """Refuse an object from a user's file that is neither a model nor a method."""
    if QUOTED_OR_IN_FILE.search(text) and not type(made).__module__.startswith("latentens"):
        raise LatentensError(f"{type(made).__name__} does not derive from latentens.{wanted.__name__}")


def _for_votes(expression: ast.expr, votes: Votes) -> Method:
    others = {"num_categories": votes.num_categories} if len(votes.other_names) else {}
    if votes.is_ordered:
        others = {"num_categories": votes.num_classes + votes.num_categories, "num_grades": votes.num_categories}
    return _build(expression, {"num_voters": votes.num_voters, "num_classes": votes.num_classes, **others})


def default_methods(datasets: Sequence[Dataset], showcase: bool) -> dict[str, Callable[[Votes], Method]]:
    """The methods that are compared if the user names none.

    Args:
        datasets: The data sets.
        showcase: Whether these are the paper's simulated sets: then the paper's methods, and the true model fitted.
    """
    if any(dataset.votes.is_ordered for dataset in datasets):
        return find_methods([GRADED, "Consensus", "MajorityVote", "DawidSkeneEM"])
    two_classes = all(dataset.votes.num_classes == 2 for dataset in datasets)
    further = ("SpectralMetaLearner", "LatentSpectral", "RBMStack") if two_classes else ("Glad", "Ebcc")
    found = find_methods(["MajorityVote", "DawidSkeneEM", *further])
    if showcase:
        return {**found, OWN_PROGRAM: own_program(datasets)}
    return {**find_methods(["Consensus", "Tempered(DawidSkeneEM)"]), **found}


OWN_PROGRAM = "own program"
"""The name in tables of the method that fits the model which the votes come from."""


def fitted_program(model: GenerativeModel, random_starts: int = 2) -> Method:
    """The method that knows the model but neither its parameters nor, in a tree, who is in which group."""
    if isinstance(model, models.Tree):
        return methods.TreeMLE()
    if isinstance(model, models.LayeredGraph):
        return methods.LayeredGraphMLE(model.layers)
    return methods.MaximumLikelihood(model, starts=random_starts)


def own_program(datasets: Iterable[Dataset]) -> Callable[[Votes], Method]:
    """A function from the votes of each data set to the method that fits the model they come from.

    Args:
        datasets: Data sets whose model is known; their parameters need not be.
    """
    known = list(datasets)

    def method_for(votes: Votes) -> Method:
        for dataset in known:
            if dataset.votes is votes and dataset.model is not None:
                return fitted_program(dataset.model)
        raise LatentensError("the model of these votes is not known")

    return method_for


def model_table() -> Table:
    """The models with their names in the paper."""
    paper_names = {type(model).__name__: name for name, model in PAPER_MODELS.items()}
    table = Table("model", "in the paper", "description", show_lines=True)
    for name in models.__all__:
        table.add_row(name, paper_names.get(name, ""), _description(getattr(models, name)))
    return table


def method_table() -> Table:
    """The methods with their settings."""
    table = Table("method", "settings", "description", show_lines=True)
    for name in METHOD_NAMES:
        kind = getattr(methods, name)
        table.add_row(name, ", ".join(each.name for each in fields(kind)), _description(kind))
    return table


def _description(documented: type) -> str:
    return (documented.__doc__ or "").split("\n\n")[0]


def _parse(text: str, kind: str) -> tuple[str, ast.expr]:
    """The name in tables, which is the short name or else the text, and the expression; nothing is evaluated."""
    named = SHORT_NAME.fullmatch(text.strip())
    name, body = (part.strip() for part in named.groups()) if named else ("", text.strip())
    quoted = QUOTED_OR_IN_FILE.sub(lambda found: repr(found[1]) if found[1] else found[0], body)
    try:
        return name or body, ast.parse(quoted, mode="eval").body
    except (SyntaxError, ValueError):
        remedy = "write NAME, NAME(setting=value, …) or FILE.py:NAME"
        raise LatentensError(f"{text!r} is not a {kind}; {remedy}") from None


def _build(node: ast.expr, sizes: Sizes, names: Sequence[str] = ALL_NAMES) -> Any:
    """An object from its expression: a literal, a name, or a call whose arguments are such expressions.

    Args:
        node: The expression.
        sizes: Settings of models that it does not give.
        names: The names that messages suggest.
    """
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_build(part, sizes) for part in node.elts)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    in_file = IN_FILE.fullmatch(str(call.func.value)) if isinstance(call.func, ast.Constant) else None
    if in_file is None and not isinstance(call.func, ast.Name | ast.Attribute):
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise LatentensError(f"{ast.unparse(node)!r} is neither a value nor a model") from None
    name = ast.unparse(call.func).strip("'")
    found = _known(name, names) if in_file is None else _from_file(*in_file.groups())
    arguments = [_build(part, sizes) for part in call.args]
    settings = {str(part.arg): _build(part.value, sizes) for part in call.keywords}
    if inspect.isclass(found):
        return _construct(found, arguments, settings, sizes)
    if arguments or settings:
        raise LatentensError(f"{name} takes no settings")
    is_program = callable(found) and not isinstance(found, GenerativeModel)
    return GenerativeModel.from_program(found) if is_program else found


def _known(name: str, names: Sequence[str]) -> Any:
    if name.lower() in KNOWN:
        return KNOWN[name.lower()]
    candidates = [text for text, found in KNOWN.items() if found.__name__ in names]
    if close := get_close_matches(name.lower(), candidates, n=1, cutoff=0.8):
        remedy = f"did you mean {next((known for known in names if known.lower() == close[0]), close[0])}?"
    else:
        remedy = f"available are {', '.join(names)}, and FILE.py:NAME"
    raise LatentensError(f"there is no {'method or ' * (names is ALL_NAMES)}model {name!r}; {remedy}")


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


def _from_file(path: str, name: str) -> Any:
    if not Path(path).is_file():
        raise LatentensError(f"{path}: no such file")
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
