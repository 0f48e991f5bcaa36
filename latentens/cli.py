"""The command `latentens`."""

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from latentens import models
from latentens.datasets import PAPER_ITEMS, PAPER_MODELS, simulate_paper
from latentens.errors import LatentensError
from latentens.fit import Method
from latentens.methods import DawidSkeneEM, LatentSpectral, MajorityVote, RBMStack, SpectralMetaLearner
from latentens.model import GenerativeModel
from latentens.scores import Posterior, balanced_accuracy, log_score, mean_kl
from latentens.simulation import Dataset, simulate

app = typer.Typer(
    help="Unsupervised ensemble learning: many voters, no labels, every method next to the exact Bayes posterior.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console()

COMPARED: tuple[Method, ...] = (MajorityVote(), SpectralMetaLearner(), DawidSkeneEM(), LatentSpectral(), RBMStack())

Items = Annotated[int, typer.Option("--items", min=1, help="Number of items of each simulated set.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random key; the same seed gives the same data.")]


def main() -> None:
    """Run the command; a user's error ends it with one sentence and exit code 2."""
    try:
        app()
    except LatentensError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"latentens: {error}", markup=False)
        sys.exit(2)


@app.command()
def compare(items: Items = PAPER_ITEMS, seed: Seed = 1) -> None:
    """Compare methods with the exact Bayes posterior on the paper's four simulated sets.

    Example: latentens compare --items 20000 --seed 3
    """
    table = Table(title=f"{items:,} items of each simulated set, seed {seed}")
    table.add_column("data set")
    table.add_column("method", no_wrap=True)
    for heading in ("balanced\naccuracy %", "log\nscore", "KL from\nBayes", "seconds"):
        table.add_column(heading, justify="right")
    for family in track(PAPER_MODELS, description="Comparing", console=Console(stderr=True), transient=True):
        dataset = simulate_paper(family, seed, items)
        exact = dataset.bayes_posterior()
        assert exact is not None, "simulated data come with their model"
        table.add_row(family, "exact Bayes", *_figures(dataset, exact, exact), "")
        for method in COMPARED:
            fit = method.fit(dataset.votes, key=jax.random.key(seed))
            seconds = f"{fit.diagnostics['seconds']:.1f}"
            table.add_row("", type(method).__name__, *_figures(dataset, exact, fit.label_probs), seconds)
        table.add_section()
    console.print(table)


def _figures(dataset: Dataset, exact: Posterior, probs: Posterior) -> tuple[str, str, str]:
    accuracy = 100 * balanced_accuracy(dataset.labels, probs.argmax(axis=1))
    return f"{accuracy:.2f}", f"{log_score(dataset.labels, probs):.3f}", f"{mean_kl(exact, probs):.3f}"


@app.command("simulate")
def simulate_command(
    model: Annotated[str, typer.Argument(help="A model's name (see `latentens models`), or FILE.py:NAME.")],
    out: Annotated[Path, typer.Option("--out", help="CSV file for the votes.")],
    items: Items = PAPER_ITEMS,
    seed: Seed = 1,
) -> None:
    """Simulate votes, and write the truth and the exact posterior beside them.

    Parameters are those of the paper's experiment where the model has them, else a draw from the priors.

    Example: latentens simulate Tree --items 5000 --seed 3 --out tree.csv
    """
    if out.suffix != ".csv":
        raise LatentensError(f"{out} does not end in .csv")
    if not out.parent.is_dir():
        raise LatentensError(f"{out.parent} is not a folder")
    chosen = find_model(model)
    params_key, items_key = jax.random.split(jax.random.key(seed))
    with Console(stderr=True).status(f"Simulating {items:,} items of {chosen}"):
        params = chosen.paper_params(params_key) if hasattr(chosen, "paper_params") else None
        dataset = simulate(chosen, items, key=items_key, params=params)
        _write(dataset, out)


def _write(dataset: Dataset, out: Path) -> None:
    exact = dataset.bayes_posterior()
    assert exact is not None
    assert dataset.params is not None
    dataset.votes.to_frame().to_csv(out)
    truth = pd.DataFrame(exact, columns=[f"bayes_prob_{k}" for k in range(exact.shape[1])])
    truth.insert(0, "truth", dataset.labels)
    truth.rename_axis("item").to_csv(truth_path := out.with_suffix(".truth.csv"))
    params = {name: np.asarray(value).tolist() for name, value in dataset.params.items()}
    params_path = out.with_suffix(".params.json")
    params_path.write_text(json.dumps({"model": dataset.name, "params": params}, indent=1) + "\n")
    console.print(f"{dataset.votes}\nwritten to {out}, the truth to {truth_path}, the parameters to {params_path}")


@app.command("models")
def list_models() -> None:
    """List the generative models."""
    table = Table("model", "in the paper", "what it says", show_lines=True)
    paper_names = {type(model).__name__: name for name, model in PAPER_MODELS.items()}
    for name in models.__all__:
        table.add_row(name, paper_names.get(name, ""), (getattr(models, name).__doc__ or "").split("\n\n")[0])
    console.print(table)


def find_model(name: str) -> GenerativeModel:
    """A model by its class name, by the paper's name, or from a user's file as `FILE.py:NAME`."""
    if ":" in name:
        return _model_from_file(*name.rsplit(":", 1))
    known = {key.lower(): model for key, model in PAPER_MODELS.items()}
    known |= {key.lower(): getattr(models, key)() for key in models.__all__}
    if name.lower() not in known:
        raise LatentensError(f"there is no model {name!r}; there are {', '.join(models.__all__)}, and FILE.py:NAME")
    return known[name.lower()]


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
