"""Confidence calibrated without labels: posteriors before and after tempering.

    python analyses/tempered.py [--data ROOT] [--out DIR] [--sets 2] [--items 1000] [--parts simulated robustness real]

Simulated sets come from the paper's families and from all programs of the catalogue whose label votes can tell, each
with its exact posterior. Log scores and divergences are in nats per item; `by labels` is the best temperature that the
true labels could choose, which nobody has. Sets that are done are kept in DIR/tempered.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from common import CROWDS, find, run, write
from matplotlib.figure import Figure
from pseudo_counts import draw_crowd

from latentens import Dataset, Votes, simulate
from latentens.datasets import PAPER_MODELS, simulate_paper
from latentens.methods import DawidSkeneEM, Tempered
from latentens.methods.tempered import TEMPERATURES, temper
from latentens.models import (
    ClassConditional,
    Confounder,
    HierarchicalDawidSkene,
    ItemDifficulty,
    Mace,
    OneCoin,
    TopDown,
    Tree,
)
from latentens.scores.reliability import reliability
from latentens.scores.scores import evaluate

PROGRAMS = {
    "OneCoin, 3 classes": OneCoin(8, num_classes=3),
    "ClassConditional, 3 classes": ClassConditional(8, num_classes=3),
    "HierarchicalDawidSkene": HierarchicalDawidSkene(8),
    "Mace, 3 classes": Mace(8, num_classes=3),
    "ItemDifficulty": ItemDifficulty(8),
    "Confounder": Confounder(8),
    "TopDown": TopDown(8, 3),
    "Tree, 3 classes": Tree((0, 0, 0, 1, 1, 1, 2, 2, 2), num_classes=3),
}
REAL = *CROWDS, "S1", "S3", "magic/1", "magic/2"
METHOD = DawidSkeneEM()


def main(
    data: Path | None,
    out: Path,
    seed: int,
    sets: int = 2,
    items: int = 1_000,
    parts: tuple[str, ...] = ("simulated", "robustness", "real"),
) -> pd.DataFrame:
    numbers = range(seed + 1, seed + sets + 1)
    makers: dict[str, Iterator[Dataset]] = {
        "simulated": (dataset for number in numbers for dataset in simulated_sets(number, items)),
        "robustness": (dataset for number in numbers for dataset in robustness_sets(number, items)),
        "real": iter(find(REAL, data) if data is not None else []),
    }
    tables = {part: pd.DataFrame([row(d, part, out, seed) for d in makers[part]]) for part in parts}
    table = pd.concat([found for found in tables.values() if len(found)], keys=[p for p in parts if len(tables[p])])
    summary = summarise(table.droplevel(1).rename_axis("part").reset_index())
    write(out, "tempered", tree=xr.Dataset.from_dataframe(table.reset_index(drop=True)), table=summary)
    write(out, "tempered", figure=reliability_figure(seed))
    return summary


def simulated_sets(number: int, items: int) -> Iterator[Dataset]:
    """One set of every family and program; programs have parameters of their own in each set."""
    for family in PAPER_MODELS:
        yield simulate_paper(family, 1000 + number, items)
    for name, model in PROGRAMS.items():
        params_key, key = jax.random.split(jax.random.key(number))
        drawn = simulate(model, items, key=key, params=model.example_params(params_key))
        yield Dataset(f"{name}/{number}", drawn.votes, drawn.labels, drawn.model, drawn.params)


def robustness_sets(number: int, items: int) -> Iterator[Dataset]:
    """Votes that a method without labels may stumble over."""
    for place, (name, make) in enumerate(STUMBLING.items()):
        votes, labels = make(np.random.default_rng([number, place]), items)
        yield Dataset(f"{name}/{number}", votes, labels)


def dense(
    generator: np.random.Generator, items: int, rates: np.ndarray, share: float = 0.5, missing: np.ndarray | float = 0.0
) -> tuple[Votes, np.ndarray]:
    """Independent voters of two classes, each with a rate of being right."""
    labels = (generator.random(items) < share).astype(int)
    right = generator.random((items, len(rates))) < rates
    matrix = np.where(right, labels[:, None], 1 - labels[:, None])
    return Votes.from_matrix(np.where(generator.random(matrix.shape) < missing, -1, matrix), num_classes=2), labels


def copies(generator: np.random.Generator, items: int) -> tuple[Votes, np.ndarray]:
    """Three opinions, each of them repeated by four voters who rarely slip."""
    opinions, labels = dense(generator, items, np.full(3, 0.75))
    slips = generator.random((items, 12)) < 0.05
    return Votes.from_matrix(np.repeat(opinions.matrix, 4, axis=1) ^ slips, num_classes=2), labels


Make = Callable[[np.random.Generator, int], tuple[Votes, np.ndarray]]
STUMBLING: dict[str, Make] = {
    "5 votes per item": lambda g, n: draw_crowd(g, "around a population", 2, 5, n, n // 10),
    "2 votes per item": lambda g, n: draw_crowd(g, "around a population", 2, 2, n, n // 10),
    "10 items": lambda g, n: dense(g, min(10, n), g.uniform(0.65, 0.9, 8)),
    "one voter on every item, 19 on 3 %": lambda g, n: dense(
        g, n, g.uniform(0.6, 0.9, 20), missing=np.array([0.0] + [0.97] * 19)
    ),
    "one strong voter, six weak": lambda g, n: dense(g, n, np.array([0.95] + [0.6] * 6)),
    "classes 8 : 92": lambda g, n: dense(g, n, g.uniform(0.6, 0.9, 8), 0.08),
    "unanimous": lambda g, n: dense(g, n // 4, np.ones(6), 0.4),
    "coin tosses": lambda g, n: dense(g, n, np.full(10, 0.5)),
    "coin tosses, 3 votes per item": lambda g, n: dense(g, n, np.full(30, 0.5), missing=0.9),
    "copies": copies,
}


def row(dataset: Dataset, part: str, out: Path, seed: int) -> dict[str, float | str]:
    """Scores of one set before and after; kept on disk."""
    path = out / "tempered" / f"{part}_{dataset.name.replace('/', '_')}_{dataset.votes.num_items}_{seed}.json"
    if path.exists():
        return pd.read_json(path, typ="series").to_dict()
    found = measure(dataset, jax.random.key(seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.Series(found).to_json(path)
    return found


def measure(dataset: Dataset, key: jax.Array) -> dict[str, float | str]:
    """The scores of the method, of the method tempered and of the best temperature by labels."""
    raw, tempered = METHOD.fit(dataset.votes, key=key), Tempered(METHOD).fit(dataset.votes, key=key)
    exact, known = dataset.bayes_posterior(), dataset.labels >= 0
    found: dict[str, float | str] = {"kind": dataset.name.rpartition("/")[0] or dataset.name, "set": dataset.name}
    if found["kind"] == "magic":
        found["kind"] = dataset.name
    for name, fit in {"raw": raw, "tempered": tempered}.items():
        scores = evaluate(dataset.labels, fit.label_probs, exact)
        wanted = ["log_score", "calibration_error_debiased", *([] if exact is None else ["mean_kl"])]
        found |= {f"{name}: {score}": scores[score] for score in wanted}
        found[f"{name}: seconds"] = fit.diagnostics.seconds
    grid = np.geomspace(TEMPERATURES[1] / 16, 4, 60)
    losses = [evaluate_log(temper(raw.label_probs, t)[known], dataset.labels[known]) for t in grid]
    return found | {
        "by labels: log_score": min(losses),
        "exact: log_score": np.nan if exact is None else evaluate_log(exact, dataset.labels),
        "temperature": tempered.diagnostics["temperature"],
        "temperature_error": tempered.diagnostics["temperature_error"],
        "temperature by labels": float(grid[int(np.argmin(losses))]),
        "labels changed": float(np.mean(raw.codes != tempered.codes)),
    }


def evaluate_log(probs: np.ndarray, labels: np.ndarray) -> float:
    """The mean log score; lower is better."""
    return float(-np.log(np.clip(probs[np.arange(len(labels)), labels], 1e-12, None)).mean())


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the sets of a kind, the worst change, and on how many sets tempering hurts by more than .005."""
    groups = table.groupby(["part", "kind"], sort=False)
    means = groups.mean(numeric_only=True)
    table = table.assign(change=table["tempered: log_score"] - table["raw: log_score"])
    groups = table.groupby(["part", "kind"], sort=False)["change"]
    return means.assign(
        sets=groups.size(), worst_change=groups.max(), hurt=groups.agg(lambda part: (part > 0.005).sum())
    )


def reliability_figure(seed: int) -> Figure:
    """How often the label is 1 by the stated probability, before and after, on one set of TG."""
    dataset, key = simulate_paper("TG", 1, 10_000), jax.random.key(seed)
    exact = dataset.bayes_posterior()
    assert exact is not None
    curves = {
        "exact Bayes": exact,
        "Dawid–Skene": METHOD.fit(dataset.votes, key=key).label_probs,
        "tempered": Tempered(METHOD).fit(dataset.votes, key=key).label_probs,
    }
    figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
    for name, probs in curves.items():
        found = reliability(dataset.labels, probs, key=key, resamples=50)
        axes.plot(found.stated, found.observed, marker="o", markersize=3, label=name)
    axes.plot([0, 1], [0, 1], "k:", linewidth=0.8)
    axes.set(title="TG", xlabel="stated probability of label 1", ylabel="observed share of label 1")
    axes.legend()
    return figure


if __name__ == "__main__":
    run(main, __doc__)
