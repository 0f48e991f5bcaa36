"""The tables of models and methods that the command prints."""

from dataclasses import fields

from rich.table import Table

from latentens import methods, models
from latentens.cli.method_names import METHOD_NAMES
from latentens.datasets import PAPER_MODELS


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
