"""What a report needs of one data set's part of a comparison, as plain arrays."""

import json
from collections.abc import Iterator, Mapping
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
        labels: The true labels, −1 where they are unknown or where methods were told them.
        votes: The votes with −1 for missing ones, unless they are triplets.
        voter_names: What the voters are called.
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
    voter_names: tuple[str, ...]
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
    def num_voters(self) -> int:
        """Number of voters."""
        return len(self.voter_names)

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
    params = truth.drop_vars(["true_label", "gold", "bayes_prob"], errors="ignore").data_vars
    fits = part.children["fits"].children.values()
    return View(
        name,
        truth.attrs["model"],
        _scored_labels(truth),
        observed["vote"].to_numpy() if observed["vote"].ndim == 2 else None,
        tuple(map(str, observed["voter"].to_numpy())),
        tuple(map(str, label_prob["label"].to_numpy())),
        exact | _first_posteriors(label_prob),
        {str(key): value.to_numpy() for key, value in params.items()},
        tuple(record for node in fits for record in _records(node)),
        {str(node.attrs["estimator"]): draws for node in fits if (draws := _draws(node)) is not None},
    )


def _scored_labels(truth: xr.Dataset) -> Labels:
    """The true labels but for those that methods were told."""
    labels = truth["true_label"]
    return (labels.where(truth["gold"] < 0, -1) if "gold" in truth else labels).to_numpy()


def _first_posteriors(label_prob: xr.DataArray) -> dict[str, Posterior]:
    values = label_prob.transpose("estimator", "repetition", "item", "label").to_numpy()
    whole = ~np.isnan(values).any(axis=(2, 3))
    names = map(str, label_prob["estimator"].to_numpy())
    return {name: values[i, whole[i].argmax()] for i, name in enumerate(names) if whole[i].any()}


def _records(node: xr.DataTree) -> Iterator[FitRecord]:
    """The fits of one estimator, by repetition."""
    for found in sorted(node.children.values(), key=lambda found: int(found.attrs["repetition"])):
        about = found.attrs
        params = {str(key): value.to_numpy() for key, value in found["params"].data_vars.items()}
        diagnostics = json.loads(about["diagnostics"])
        repetition, settings = int(about["repetition"]), about["settings"]
        yield FitRecord(about["estimator"], repetition, settings, diagnostics, about["error"], params)


def _draws(node: xr.DataTree) -> xr.DataTree | None:
    """The first repetition of an estimator that has draws, as ArviZ takes it."""
    return next((found for found in node.children.values() if "posterior" in found.children), None)
