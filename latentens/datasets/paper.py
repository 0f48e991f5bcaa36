"""The paper's simulated sets, drawn anew."""

from collections.abc import Mapping

import jax

from latentens.datasets.dataset import Dataset, simulate
from latentens.models import DawidSkene, LayeredGraph, Tree, TruncatedGaussian
from latentens.programs.model import GenerativeModel

PAPER_MODELS: Mapping[str, GenerativeModel] = {
    "condInd": DawidSkene(),
    "Tree": Tree(),
    "LG": LayeredGraph(),
    "TG": TruncatedGaussian(),
}
"""The models of the paper's simulated sets, by the names of their folders."""

PAPER_ITEMS = 10_000


def simulate_paper(family: str, number: int, num_items: int = PAPER_ITEMS) -> Dataset:
    """Simulate one of the paper's sets: parameters are the same for all numbers, items differ."""
    model = PAPER_MODELS[family]
    params = model.example_params(jax.random.key(0))
    drawn = simulate(model, num_items, key=jax.random.key(number), params=params)
    return Dataset(f"{family}/{number}", drawn.votes, drawn.labels, drawn.model, drawn.params)
