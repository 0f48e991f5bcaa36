"""What does a wrong model cost? Data of every program × every program fitted: accuracy, log score, divergence, fit.

    python analyses/cross_fit.py [--out DIR] [--sets 2] [--items 4000]

Rows are programs that votes are drawn from, columns those that are fitted to them without labels; the diagonal is the
reference. Predictive fit is the exact log-likelihood per item of another set from the same parameters. `DeepBeliefNet`
only draws: its label is a leaf, which votes say nothing about. Finished fits are kept in DIR/cross_fits.
"""

from functools import partial
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write

from latentens.cli.methods import fitted_program
from latentens.datasets import PAPER_MODELS, Dataset, paper_params, simulate
from latentens.methods import TopDownMLE
from latentens.methods.base import Method
from latentens.models import DeepBeliefNet, TopDown
from latentens.runtime.progress import track_late
from latentens.runtime.store import Record, Store
from latentens.scores.scores import evaluate

SOURCES = {**PAPER_MODELS, "TopDown": TopDown(), "DeepBeliefNet": DeepBeliefNet()}
FITTED: dict[str, Method] = {name: fitted_program(model) for name, model in PAPER_MODELS.items()}
FITTED |= {"TopDown": TopDownMLE()}
SCORES = ("balanced_accuracy", "log_score", "mean_kl", "predictive_fit")


def drawn(source: str, number: int, items: int, seed: int) -> Dataset:
    """A set of a program: the paper's parameters where it has them, else the example's, the same for all numbers."""
    model = SOURCES[source]
    params = paper_params(source).params if source in PAPER_MODELS else model.example_params(jax.random.key(seed))
    return simulate(model, items, key=jax.random.fold_in(jax.random.key(seed + 1), number), params=params)


def scored(source: str, fitted: str, number: int, items: int, seed: int) -> Record:
    """The scores of one program on one set of another."""
    dataset, other = (drawn(source, n, items, seed) for n in (number, number + 1000))
    fit = FITTED[fitted].fit(dataset.votes, key=jax.random.key(seed))
    found = evaluate(dataset.labels, fit.label_probs, dataset.bayes_posterior())
    scores = {name: float(found[name]) for name in SCORES[:3]}
    return Record(scores | {"predictive_fit": float(np.mean(fit.log_likelihood(other.votes)))}, {})


def heat_maps(table: pd.DataFrame) -> plt.Figure:
    """One map a score, the figures written in its cells."""
    figure, panels = plt.subplots(1, len(SCORES), figsize=(5 * len(SCORES), 4.4), layout="constrained", sharey=True)
    for axes, score in zip(panels, SCORES, strict=True):
        wide = table[score].unstack("fitted")
        wide = wide.reindex(index=dict.fromkeys(table.index.get_level_values("data")), columns=list(FITTED))
        better = wide if score in ("balanced_accuracy", "predictive_fit") else -wide
        shade = better.sub(better.max(axis=1), axis=0)
        axes.imshow(shade, cmap="Blues", aspect="auto")
        for place, value in np.ndenumerate(wide.to_numpy()):
            dark = shade.to_numpy()[place] > 0.6 * shade.to_numpy().min()
            text = f"{value:.{2 if abs(value) > 1 else 3}f}"
            axes.text(place[1], place[0], text, ha="center", va="center", color="white" if dark else "black")
        axes.set(title=score.replace("_", " "), xlabel="fitted", xticks=range(len(wide.columns)))
        axes.set_xticklabels(wide.columns, rotation=30)
        axes.set(yticks=range(len(wide)), yticklabels=wide.index)
    panels[0].set_ylabel("data")
    return figure


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 4_000,
    sources: tuple[str, ...] = tuple(SOURCES),
    programs: tuple[str, ...] = tuple(FITTED),
) -> pd.DataFrame:
    del data  # everything is simulated
    store, rows = Store(out / "cross_fits"), []
    cases = [(source, fitted, number) for number in range(1, sets + 1) for source in sources for fitted in programs]
    for source, fitted, number in track_late(cases, lambda case: f"{case[1]} on {case[0]}, set {case[2]}"):
        key = store.key(source, SOURCES[source], fitted, FITTED[fitted], number, items, seed)
        record = store.recall(key, partial(scored, source, fitted, number, items, seed))
        rows.append({"data": source, "fitted": fitted} | dict(record.about))
    frame = pd.DataFrame(rows)
    frame["balanced_accuracy"] *= 100
    groups = frame.groupby(["data", "fitted"], sort=False)
    table = groups.mean().assign(worst_accuracy=groups["balanced_accuracy"].min(), sets=groups.size(), items=items)
    write(out, "cross_fit", tree=table.to_xarray(), table=table, figure=heat_maps(table))
    return table


if __name__ == "__main__":
    run(main, __doc__)
