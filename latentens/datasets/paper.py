"""The paper's simulated sets: their models and parameters, and new draws from them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from latentens.datasets.dataset import Dataset, simulate
from latentens.models import DawidSkene, LayeredGraph, Tree, TruncatedGaussian
from latentens.programs.components import two_class_confusion
from latentens.programs.contract import structure_of
from latentens.programs.model import GenerativeModel
from latentens.programs.tables import checked_tables
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes

PAPER_MODELS: Mapping[str, GenerativeModel] = {
    "condInd": DawidSkene(),
    "Tree": Tree(),
    "LG": LayeredGraph(),
    "TG": TruncatedGaussian(),
}
"""The models of the paper's simulated sets, by the names of their folders."""

PAPER_ITEMS, PAPER_VOTERS = 10_000, 15

LARGEST_STANDARD_SCORE = 6.0
"""Votes whose rates are farther than this from those of some parameters were not drawn from them."""


class PaperParams(NamedTuple):
    """Parameters that sets of the paper were drawn from."""

    params: dict[str, Float[np.ndarray, "..."]]
    is_estimate: bool
    """Whether the authors' own were not kept, so that these are estimated from their sets."""


@lru_cache
def paper_params(family: str) -> PaperParams:
    """The parameters of one of the paper's families; `published/README.md` names their source."""
    path = files("latentens.datasets") / "published" / "shaham_2016.json"
    known = json.loads(path.read_text(encoding="utf-8"))[family]
    return PaperParams(paper_to_params(PAPER_MODELS[family], known["params"]), known["source"] == "estimate")


def paper_to_params(model: GenerativeModel, values: Mapping[str, Any]) -> dict[str, Float[np.ndarray, "..."]]:
    """The parameters of a model from the paper's: the prevalence of label 1, sensitivities and specificities."""
    known = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    known["prevalence"] = np.stack([1 - known["prevalence"], known["prevalence"]])
    for name in structure_of(model).parameter_shapes:
        if name.endswith("confusion"):
            prefix = name.removesuffix("confusion")
            known[name] = two_class_confusion(known.pop(f"{prefix}sensitivity"), known.pop(f"{prefix}specificity"))
    return known


def simulate_paper(family: str, number: int, num_items: int = PAPER_ITEMS) -> Dataset:
    """Draw one of the paper's sets anew: parameters are the paper's for all numbers, items differ."""
    model, params = PAPER_MODELS[family], paper_params(family).params
    drawn = simulate(model, num_items, key=jax.random.key(number), params=params)
    return Dataset(f"{family}/{number}", drawn.votes, drawn.labels, drawn.model, drawn.params)


def true_params(family: str, votes: Votes, labels: Int[np.ndarray, " item"]) -> dict[str, np.ndarray] | None:
    """The parameters that votes of a family were drawn from, if these are the authors' and the votes agree with them.

    Somebody who runs the authors' scripts anew draws other parameters; every voter's rate in each class must therefore
    be the one that the parameters give, within the error of sampling.
    """
    known = paper_params(family)
    if known.is_estimate:
        return None
    for label, rates in enumerate(_rates(PAPER_MODELS[family], known.params)):
        own = votes.matrix[labels == label]
        error = np.sqrt(rates * (1 - rates) / max(len(own), 1))
        if len(own) and np.max(np.abs(own.mean(axis=0) - rates) / error) > LARGEST_STANDARD_SCORE:
            return None
    return known.params


@double_precision
def _rates(model: GenerativeModel, params: dict[str, np.ndarray]) -> Float[np.ndarray, "label voter"]:
    """`P(vote = 1 | label)` of each voter."""
    tables = checked_tables(model, params)
    joint = np.exp(np.asarray(tables.log_prior))
    given_label = joint / joint.sum(axis=1, keepdims=True)
    says_one = np.exp(np.asarray(tables.log_emission))[..., 1]
    return (given_label[..., None] * says_one).sum(axis=1)
