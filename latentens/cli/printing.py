"""What commands print of comparisons and of evidence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from latentens.checks.effective_voters import effective_voters
from latentens.checks.independence import ModelCheck
from latentens.checks.signal import signal_summary
from latentens.cli.methods import find_methods
from latentens.cli.terminal import messages, status, tell
from latentens.comparison import add_independence, add_worth, data_trees
from latentens.comparison.data_tree import HELD_OUT
from latentens.comparison.dependence import GROUP as INDEPENDENCE
from latentens.comparison.dependence import WORTH
from latentens.comparison.own_program import OWN_PROGRAM, own_program
from latentens.comparison.sweep import MethodFactory
from latentens.datasets import PAPER_MODELS, Dataset, simulate_paper
from latentens.errors import LatentensError
from latentens.reporting.evidence import WARNING, ranking_frame
from latentens.reporting.view import views
from latentens.scores import scores as evaluation
from latentens.votes import Votes

PAIRS_SHOWN = 10
"""So many dependent pairs of voters are printed."""

RESAMPLES = 20
"""Bootstrap samples behind the interval that the command prints."""


def tell_signals(datasets: Iterable[Dataset], seed: int) -> None:
    """Say on standard error of each data set whether its voters agree more than by chance.

    By the key of the comparison, which records the same sentence for the page.
    """
    for dataset in datasets:
        messages.print(f"{dataset.name}: {signal_summary(dataset.votes, key=jax.random.key(seed))}")


def pair_frame(check: ModelCheck) -> pd.DataFrame:
    """Every pair of voters that was checked, the strongest residual first."""
    first, second = np.nonzero(np.triu(check.checked, k=1))
    names = np.asarray(check.voter_names)
    frame = pd.DataFrame(
        {
            "voter": names[first],
            "other": names[second],
            "residual_correlation": check.residual[first, second],
            "standard_error": check.standard_error[first, second],
            "p_value": check.pair_p_values[first, second],
            "adjusted_p_value": check.adjusted_p_values[first, second],
        }
    )
    return frame.sort_values("residual_correlation", key=lambda values: -values.abs(), kind="stable")


def pair_table(check: ModelCheck) -> Table:
    """The pairs of voters that stand out most."""
    number = len(check.dependent_pairs)
    title = "Pairs that stand out" if number <= PAIRS_SHOWN else f"The strongest of {number:,} pairs that stand out"
    note = "against a fit of independent voters, which may have taken what a pair shares for the label"
    table = Table(title=title, caption=note if check.stories else None)
    for heading in ("voter", "other", "residual\ncorrelation", "p, for all\npairs together"):
        table.add_column(heading, justify="left" if heading in ("voter", "other") else "right")
    frame = pair_frame(check)
    for pair in frame[frame["adjusted_p_value"] <= check.level].head(PAIRS_SHOWN).itertuples():
        p_value = f"{pair.adjusted_p_value:.3f}"
        table.add_row(str(pair.voter), str(pair.other), f"{pair.residual_correlation:+.3f}", p_value)
    return table


def worth_words(votes: Votes, seed: int) -> str:
    """How many independent voters these are worth, in a sentence."""
    try:
        return effective_voters(votes, key=jax.random.key(seed), resamples=RESAMPLES).summary
    except LatentensError as error:
        return f"What the voters are worth cannot be told: {error}."


TEMPERED = "Tempered(DawidSkeneEM)"
TWO_CLASS_METHODS = (
    *("Consensus", "MajorityVote", "SpectralMetaLearner", "DawidSkeneEM", TEMPERED, "LatentSpectral", "RBMStack"),
)
MANY_CLASS_METHODS = ("Consensus", "MajorityVote", "DawidSkeneEM", TEMPERED, "Glad", "Ebcc")
CHAIN = "TopDownMLE(starts=2)"
"""With fewer starts than by default: a first look need not wait for all."""


def paper_datasets(items: int, seed: int) -> list[Dataset]:
    """The paper's four simulated sets."""
    return [simulate_paper(family, seed, items) for family in PAPER_MODELS]


def default_methods(datasets: Sequence[Dataset], showcase: bool) -> dict[str, MethodFactory]:
    """Methods for those who name none; on the paper's sets also the best that knows no label, and what knows the model.

    Args:
        datasets: The data sets.
        showcase: Whether these are the paper's simulated sets.
    """
    if any(dataset.votes.num_classes > 2 for dataset in datasets):
        return {**find_methods(MANY_CLASS_METHODS)}
    chosen = find_methods(TWO_CLASS_METHODS)
    return {**chosen, **find_methods([CHAIN]), OWN_PROGRAM: own_program(datasets)} if showcase else {**chosen}


def record_independence(tree: Any, datasets: Iterable[Dataset], key: jax.Array) -> None:
    """Put into a comparison whether the voters of data whose origin is unknown err independently, and say so."""
    real = [dataset for dataset in datasets if dataset.model is None]
    if real:
        with status("Checking whether voters err independently"):
            add_independence(tree, real, key=key)
    nodes = data_trees(tree)
    for dataset in real:
        if INDEPENDENCE in nodes[dataset.name].children:
            messages.print(f"{dataset.name}: {nodes[dataset.name][INDEPENDENCE].attrs['summary']}")


def record_worth(tree: Any, datasets: Iterable[Dataset], key: jax.Array) -> None:
    """Put into a comparison how many independent voters those of unknown origin are worth, and print it."""
    real = [dataset for dataset in datasets if dataset.model is None]
    if not real:
        return
    with status("Asking what the voters are worth"):
        add_worth(tree, real, key=key, resamples=RESAMPLES)
    nodes = data_trees(tree)
    for dataset in real:
        tell(f"{dataset.name}: {nodes[dataset.name][WORTH].attrs['summary']}")


GOLD_SCORES = {
    "accuracy": "accuracy\n%",
    "balanced_accuracy": "balanced\nacc. %",
    "log_score": "log\nscore",
    "confidence_gap": "confidence\n− accuracy",
}
"""Scores on gold labels that are printed, with their headings."""


def gold_tables(tree: Any, short: Mapping[str, str] | None = None, marked: str = "") -> Iterator[RenderableType]:
    """For each data set that is scored on gold labels the main scores with their intervals, means over repetitions.

    Args:
        tree: The comparison.
        short: Short names of methods by their full ones.
        marked: The method, by its short name, that gets an arrow.
    """
    for name, node in data_trees(tree).items():
        if HELD_OUT not in node.children:
            continue
        number = node[HELD_OUT].sizes["item"]
        labels = f"{number:,} gold labels, each" if number > 1 else "one gold label,"
        title = f"{name}: scores on your {labels} predicted by a fit that has not seen it (95 % intervals)"
        scores, bounds = (
            tree[group].to_dataset().sel(dataset=name).drop_vars("error", errors="ignore").mean("repetition")
            for group in ("scores", "intervals")
        )
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
        table.add_column("method", overflow="fold")
        for heading in GOLD_SCORES.values():
            table.add_column(heading, justify="right", no_wrap=True)
        for method in scores["estimator"].values:
            row, ends = scores.sel(estimator=method), bounds.sel(estimator=method)
            called = (short or {}).get(str(method), str(method))
            table.add_row(
                f"{called} ←" if called == marked else called,
                *(_with_ends(score, row[score], ends[score]) for score in GOLD_SCORES),
            )
        yield table


def _with_ends(name: str, value: xr.DataArray, ends: xr.DataArray) -> str:
    """A score with its interval in brackets; nothing where it is not known."""
    score = evaluation.find_score(name)
    digits, end_digits = (int(score.better is not None), 0) if score.unit == "%" else (2, 2)
    low, high = (score.text(float(ends.sel(bound=bound)), end_digits) for bound in ("low", "high"))
    if not np.isfinite(float(value)):
        return ""
    if score.better is not None:
        return f"{score.text(float(value), digits)} ({low}–{high})"
    return f"{score.text(float(value), digits)} ({low} to {high})".replace("-", "−")


def score_table(tree: Any) -> Table | None:
    """The main scores of a comparison, means over repetitions, but for data sets that are scored on gold labels."""
    others = [name for name, node in data_trees(tree).items() if HELD_OUT not in node.children]
    if not others:
        return None
    means = tree["scores"].to_dataset().drop_vars("error").sel(dataset=others).mean("repetition").to_dataframe()
    shown = [
        score
        for score in evaluation.SCORES
        if score.heading and score.name in means and means[score.name].notna().any()
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("data set")
    table.add_column("method", overflow="fold")
    for score in shown:
        table.add_column(score.heading, justify="right")
    for dataset, rows in means.groupby(level="dataset", sort=False):
        label = str(dataset)
        for method, row in rows.droplevel("dataset").dropna(how="all").iterrows():
            figures = (score.text(row[score.name]) if np.isfinite(row[score.name]) else "" for score in shown)
            table.add_row(label, str(method), *figures)
            label = ""
        table.add_section()
    return table


def prediction_tables(tree: Any) -> Iterator[RenderableType]:
    """For each data set the models in the order of how well they predict its votes, and once what that means."""
    frames = {view.name: frame for view in views(tree) if (frame := ranking_frame(view)) is not None}
    for name, frame in frames.items():
        table = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"Which model predicts the votes of {name} best?")
        table.add_column("model", overflow="fold")
        for heading in ("log predictive\ndensity", "behind\nthe best", "standard\nerror"):
            table.add_column(heading, justify="right")
        table.add_column("judged by")
        for model, row in frame.iterrows():
            figures = (f"{value:,.1f}" for value in (row["elpd"], abs(row["difference"]), row["difference_error"]))
            table.add_row(str(model), *figures, str(row["by"]))
        yield table
    if frames:
        yield WARNING


def label_doubts(tree: Any) -> list[str]:
    """What fits say about labels that are not sure, once for all methods that say it."""
    said: dict[tuple[str, str], list[str]] = {}
    for view in views(tree):
        for fit in view.fits:
            for words in fit.diagnostics.get("label_doubts", ()):
                methods = said.setdefault((view.name, words), [])
                methods += [] if fit.method in methods else [fit.method]
    return [f"{name}, {', '.join(methods)}: {words}" for (name, words), methods in said.items()]


def failures(tree: Any) -> list[str]:
    """A sentence for each fit that failed."""
    cells = tree["scores/error"].to_dataframe().reset_index()
    failed = cells[cells["error"] != ""]
    return [f"{cell.estimator} failed on {cell.dataset}: {cell.error}" for cell in failed.itertuples()]
