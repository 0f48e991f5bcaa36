"""What a report needs of one data set's part of a comparison, as plain arrays."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from latentens.comparison import EXACT, data_trees
from latentens.evaluation.items import Labels
from latentens.methods.base import Posterior


@dataclass(frozen=True, eq=False)
class FitRecord:
    """What is on record of one fit.

    Attributes:
        method: Name of the method.
        repetition: Number of the repetition.
        settings: The method with every setting, as text.
        diagnostics: How the fit went.
        error: What it ended in, or nothing.
        params: Estimated parameters.
    """

    method: str
    repetition: int
    settings: str
    diagnostics: Mapping[str, Any]
    error: str
    params: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class View:
    """One data set with everything that was found on it.

    Attributes:
        name: Name of the data set.
        model: The model that the votes come from, as text.
        labels: The true labels, −1 where unknown.
        votes: The votes with −1 for missing ones, unless they are triplets.
        num_voters: Number of voters.
        class_names: What the classes are called.
        posteriors: Posterior by method, of the first repetition that did not fail, the exact one first.
        true_params: The true parameters, where known.
        fits: The record of each fit.
        draws: Trees with the group `posterior`, by method, for sampled fits.
    """

    name: str
    model: str
    labels: Labels
    votes: np.ndarray | None
    num_voters: int
    class_names: tuple[str, ...]
    posteriors: Mapping[str, Posterior]
    true_params: Mapping[str, np.ndarray]
    fits: tuple[FitRecord, ...]
    draws: Mapping[str, xr.DataTree]

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.labels)

    @property
    def num_known(self) -> int:
        """Number of items whose label is known."""
        return int(np.sum(self.labels >= 0))

    @property
    def exact(self) -> Posterior | None:
        """The exact posterior, where known."""
        return self.posteriors.get(EXACT)

    @property
    def estimates(self) -> dict[str, Posterior]:
        """The estimated posteriors by method."""
        return {name: probs for name, probs in self.posteriors.items() if name != EXACT}

    @property
    def first_fits(self) -> dict[str, FitRecord]:
        """The record of the fit whose posterior is in `posteriors`, by method."""
        found: dict[str, FitRecord] = {}
        for fit in self.fits:
            if not fit.error:
                found.setdefault(fit.method, fit)
        return found


def views(tree: xr.DataTree) -> list[View]:
    """Each data set of a comparison."""
    return [_view(name, part) for name, part in data_trees(tree).items()]


def _view(name: str, part: xr.DataTree) -> View:
    truth, observed = part["truth"].to_dataset(), part["observed_data"].to_dataset()
    label_prob = part["estimates"].to_dataset()["label_prob"]
    exact = {EXACT: truth["bayes_prob"].to_numpy()} if "bayes_prob" in truth else {}
    params = truth.drop_vars("bayes_prob", errors="ignore").data_vars
    return View(
        name,
        truth.attrs.get("model", "None"),
        truth["label"].to_numpy(),
        observed["vote"].to_numpy() if observed["vote"].ndim == 2 else None,
        observed.sizes["voter"],
        tuple(map(str, label_prob["label"].to_numpy())),
        exact | _first_posteriors(label_prob),
        {str(key): value.to_numpy() for key, value in params.items()},
        _fits(part.children["fits"], list(map(str, label_prob["method"].to_numpy()))),
        _draws(part),
    )


def _first_posteriors(label_prob: xr.DataArray) -> dict[str, Posterior]:
    cube = label_prob if "repetition" in label_prob.dims else label_prob.expand_dims("repetition")
    values = cube.transpose("method", "repetition", "item", "label").to_numpy()
    whole = ~np.isnan(values).any(axis=(2, 3))
    names = map(str, label_prob["method"].to_numpy())
    return {name: values[i, whole[i].argmax()] for i, name in enumerate(names) if whole[i].any()}


def _fits(part: xr.DataTree, methods: list[str]) -> tuple[FitRecord, ...]:
    records = []
    for method in methods:
        node = part.children[method.replace("/", "_")]
        repeated = (
            {0: node} if "settings" in node.attrs else {int(number): child for number, child in node.children.items()}
        )
        for repetition, found in sorted(repeated.items()):
            about = found.attrs
            diagnostics = json.loads(about["diagnostics"])
            params = {str(key): value.to_numpy() for key, value in found.data_vars.items()}
            records.append(FitRecord(method, repetition, about["settings"], diagnostics, about["error"], params))
    return tuple(records)


def _draws(part: xr.DataTree) -> dict[str, xr.DataTree]:
    """The draws of each sampled method, of its first repetition, laid out as ArviZ expects them."""
    found: dict[str, xr.DataTree] = {}
    for group, node in part.children.items():
        if group.startswith("posterior"):
            groups = {"posterior": node.to_dataset()}
            statistics = group.replace("posterior", "sample_stats", 1)
            if statistics in part.children:
                groups["sample_stats"] = part[statistics].to_dataset()
            found.setdefault(str(node.attrs["method"]), xr.DataTree.from_dict(groups))
    return found
