"""A panel of LLM judges with known labels: a published one where its files are present, else a simulated one."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from latentens import Votes


def read_panel(name: str = "llmbar_processed") -> tuple[Votes, pd.Series]:
    """Votes and true labels by item, from LATENTENS_PANELS/NAME (votes.csv, truth.csv), or simulated ones.

    Args:
        name: The folder of the panel.
    """
    folder = Path(os.environ.get("LATENTENS_PANELS", "panels")) / name
    if folder.is_dir():
        truth = pd.read_csv(folder / "truth.csv", dtype=str).set_index("item")["truth"]
        return Votes.from_csv(folder / "votes.csv"), truth
    return _simulated()


def _simulated(num_items: int = 466, num_models: int = 4) -> tuple[Votes, pd.Series]:
    """Four models, each asked four times: answers of one model share errors, and half of them prefer answer 1."""
    generator = np.random.default_rng(0)
    labels = generator.integers(1, 3, num_items)
    columns = {}
    for model, skill in enumerate(np.linspace(0.65, 0.85, num_models)):
        opinion = np.where(generator.random(num_items) < skill, labels, 3 - labels)
        for variant in range(4):
            said = np.where(generator.random(num_items) < 0.1, 3 - opinion, opinion)
            columns[f"model{model}/{variant}"] = np.where(generator.random(num_items) < 0.1 * (variant % 2), 1, said)
    items = pd.Index([f"pair{item}" for item in range(num_items)], name="item")
    return Votes.from_matrix(pd.DataFrame(columns, index=items).astype(str)), pd.Series(labels.astype(str), items)
