"""Juries of LLM judges: the majority, the models, what the judges are worth, and what 50 gold labels change.

    python analyses/jury.py --data ROOT [--out DIR] [--draws 20] [--labels 50] [--parts labels gold worth]

The simulated jury of the guide always takes part; `llmbar_processed` (LLMBar, princeton-nlp, MIT) and `rewardbench2`
(composo-ai/llm-judge-criteria-ensembling, MIT) do where ROOT/panels has them. Votes that are not labels ("tie") are
categories for methods that learn from them, and missing for the others. Gold labels are drawn at random; every method
is scored on the items that have none. Accuracies and shares are in percent.
"""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import run, write
from matplotlib.figure import Figure

from latentens import Dataset, Votes, effective_judges
from latentens.datasets import from_files
from latentens.errors import LatentensWarning
from latentens.methods import Consensus, DawidSkeneEM, Ebcc, Glad, MajorityVote, Stacked, Tempered
from latentens.methods.base import Method
from latentens.scores.reliability import reliability

sys.path.append(str(Path(__file__).parents[1]))
from analyses.guide.jury_data import jury

METHODS: dict[str, Method] = {
    "majority": MajorityVote(),
    "DawidSkeneEM": DawidSkeneEM(),
    "Ebcc": Ebcc(),
    "Glad": Glad(),
    "Tempered(DawidSkeneEM)": Tempered(DawidSkeneEM()),
    "Consensus": Consensus(),
}
"""Methods without gold labels."""

WITH_GOLD: dict[str, Method] = {"DawidSkeneEM": DawidSkeneEM(), "Stacked": Stacked()}
"""Methods that are given them; beside them stands the majority, which has no use for them."""

PANELS = ("llmbar_processed", "rewardbench2")


def main(
    data: Path | None,
    out: Path,
    seed: int,
    draws: int = 20,
    labels: int = 50,
    parts: tuple[str, ...] = ("labels", "gold", "worth"),
) -> None:
    warnings.simplefilter("ignore", LatentensWarning)  # of weak judges, which the tables show
    key, panels = jax.random.key(seed), [*juries(data)]
    if "labels" in parts:
        fits = {
            (panel.name, name): method.fit(votes_for(method, panel.votes), key=key).label_probs
            for panel in panels
            for name, method in METHODS.items()
        }
        rows = [
            {"panel": panel.name, "method": name, **scores(panel.labels, fits[panel.name, name])}
            for panel in panels
            for name in METHODS
        ]
        write(out, "jury", table=pd.DataFrame(rows).set_index("panel"), figure=confidence_figure(panels, fits, key))
    if "gold" in parts:
        gold = pd.DataFrame([row for panel in panels for row in with_gold(panel, draws, labels, seed)])
        write(out, "jury_gold", table=summary(gold).set_index("panel"))
    if "worth" in parts:
        write(out, "jury_worth", table=pd.DataFrame([worth(panel, key) for panel in panels]).set_index("panel"))


def juries(data: Path | None) -> Iterator[Dataset]:
    """The simulated jury, and the panels that are there."""
    frame, truth = jury()
    votes = Votes.from_matrix(frame)
    yield Dataset("simulated", votes, truth.map({name: code for code, name in enumerate(votes.class_names)}).to_numpy())
    for name in PANELS if data is not None else ():
        folder = data / "panels" / name  # type: ignore[operator]
        if folder.is_dir():
            classes = sorted(pd.read_csv(folder / "truth.csv", dtype=str)["truth"].unique())
            found = from_files(folder / "votes.csv", folder / "truth.csv", classes=classes)
            yield Dataset(name, found.votes, found.labels)


def votes_for(method: Method, votes: Votes) -> Votes:
    return votes if method.takes_other_votes else votes.without_other_votes()


def scores(labels: np.ndarray, probs: np.ndarray) -> dict[str, float]:
    """Accuracy, how sure the posterior is, and whether it may be."""
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    sure = confidence > 0.99
    return {
        "accuracy": 100 * right.mean(),
        "confidence": 100 * confidence.mean(),
        "above_.99": 100 * sure.mean(),
        "of_these_wrong": 100 * (~right[sure]).mean() if sure.any() else np.nan,
    }


def with_gold(panel: Dataset, draws: int, labels: int, seed: int) -> Iterator[dict[str, object]]:
    """Scores on the other items of every method, draw by draw."""
    generator = np.random.default_rng(seed)
    key = jax.random.key(seed)
    free = {
        name: METHODS[name].fit(votes_for(METHODS[name], panel.votes), key=key) for name in ("majority", "Consensus")
    }
    for draw in range(draws):
        chosen = generator.choice(panel.votes.num_items, labels, replace=False)
        gold = np.full(panel.votes.num_items, -1)
        gold[chosen] = panel.labels[chosen]
        fits = {f"{name}, no labels": fit for name, fit in free.items()}
        for name, method in WITH_GOLD.items():
            fits[f"{name}, {labels} labels"] = method.fit(votes_for(method, panel.votes), key=key, gold=gold)
        for name, fit in fits.items():
            others = scores(panel.labels[gold < 0], fit.label_probs[gold < 0])
            yield {"panel": panel.name, "method": name, "draw": draw, **others}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and worst draw of every method, and against the majority on the same items."""
    majority = table[table["method"].str.startswith("majority")].set_index(["panel", "draw"])["accuracy"]
    gain = table["accuracy"] - table.set_index(["panel", "draw"]).index.map(majority)
    groups = table.assign(gain=gain).groupby(["panel", "method"], sort=False)
    means = {name: groups[name].mean() for name in ("accuracy", "gain", "confidence")}
    found = pd.DataFrame(means | {"worst accuracy": groups["accuracy"].min(), "worst gain": groups["gain"].min()})
    return found[["accuracy", "worst accuracy", "gain", "worst gain", "confidence"]].reset_index()


def worth(panel: Dataset, key: jax.Array) -> dict[str, object]:
    """How many independent judges a panel is worth, by errors on all true labels; ties are neither right nor wrong."""
    found = effective_judges(panel.votes.without_other_votes(), panel.labels, key=key, resamples=200)
    sizes = {"panel": panel.name, "items": panel.votes.num_items, "judges": panel.votes.num_voters}
    return sizes | {"worth": found.number, "low": found.low, "high": found.high, "correlation": found.correlation}


def confidence_figure(panels: list[Dataset], fits: dict[tuple[str, str], np.ndarray], key: jax.Array) -> Figure:
    """How often the most probable label is right, by its stated probability, one plot per jury."""
    size = (3.4 * len(panels) + 1.6, 3.6)
    figure, (plots,) = plt.subplots(1, len(panels), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axes, panel in zip(plots, panels, strict=True):
        for name in ("majority", "DawidSkeneEM", "Tempered(DawidSkeneEM)", "Consensus"):
            probs = fits[panel.name, name]
            right, stated = (probs.argmax(axis=1) == panel.labels).astype(int), probs.max(axis=1)
            found = reliability(right, np.stack([1 - stated, stated], axis=1), key=key, resamples=20)
            axes.plot(100 * found.stated, 100 * found.observed, label=name, linewidth=1.4)
        axes.plot([0, 100], [0, 100], "k:", linewidth=0.8)
        axes.set(title=f"{panel.name}: {panel.votes.num_voters} judges", xlabel="stated probability (%)")
        axes.set(xlim=(100 / panel.votes.num_classes, 101), ylim=(25, 101))
    plots[0].set_ylabel("labels that are right (%)")
    figure.legend(*plots[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    return figure


if __name__ == "__main__":
    run(main, __doc__)
