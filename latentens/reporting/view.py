"""What a report reads from a comparison, under short names."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from latentens.comparison import EXACT, data_trees
from latentens.comparison.data_tree import HELD_OUT
from latentens.inference.skill import VoterSkill
from latentens.methods.base import Posterior
from latentens.methods.persistence import skill_of
from latentens.scores import Labels
from latentens.votes import Triplets, Votes

LONGEST = 30
"""Characters of a short name."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name for each full one, different for different names.

    `Nuts(DawidSkene(prior=2.0), num_samples=50)` becomes `Nuts(DawidSkene)`. Methods that differ in settings only are
    numbered, and a name that the user made up stays as it is, up to its length.
    """
    full = list(dict.fromkeys(names))
    brief = {name: _shortened(name) for name in full}
    found: dict[str, str] = {}
    for name in full:
        alike = [other for other in full if brief[other] == brief[name]]
        found[name] = brief[name] if len(alike) == 1 else f"{brief[name]} {alike.index(name) + 1}"
    return found if len(set(found.values())) == len(full) else {name: name for name in full}


def with_short_names(words: str, short: Mapping[str, str]) -> str:
    """Words with each full name replaced by its short one."""
    for name in sorted(short, key=len, reverse=True):
        words = words.replace(name, short[name])
    return words


def _shortened(name: str) -> str:
    try:
        short = _classes(ast.parse(name, mode="eval").body) or name
    except (SyntaxError, ValueError):  # a name that the user made up
        short = name
    if len(short) > LONGEST and short != name:
        short = short.partition("(")[0]
    return short if len(short) <= LONGEST else short[: LONGEST - 1] + "…"


def _classes(node: ast.expr) -> str:
    """Classes without their settings; nothing for what is neither a class nor a call of one."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call):
        return ""
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    inner = [classes for part in given if isinstance(part, ast.Call | ast.Name) and (classes := _classes(part))]
    return _classes(node.func) + (f"({', '.join(inner)})" if inner else "")


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
        skill: What the fit knows of the voters; None if it failed.
    """

    method: str
    repetition: int
    settings: str
    diagnostics: Mapping[str, Any]
    error: str
    params: Mapping[str, np.ndarray]
    skill: VoterSkill | None


@dataclass(frozen=True, eq=False)
class View:
    """One data set with everything that was found on it.

    Attributes:
        name: Name of the data set.
        model: The model that the votes come from, as text.
        labels: The true labels that methods are scored on, −1 for other items.
        votes: The votes.
        posteriors: Posterior by method, of the first repetition that did not fail, the exact one first.
        held_out: The posterior of the items with a gold label, by a fit that has not seen it, by method; empty where
            scores do not come from gold labels.
        true_params: The true parameters, where known.
        fits: The record of each fit.
        draws: Trees with the group `posterior`, by method, for sampled fits.
        node: The data set's part of the comparison, for parts of the page that read groups of their own.
    """

    name: str
    model: str
    labels: Labels
    votes: Votes
    posteriors: Mapping[str, Posterior]
    held_out: Mapping[str, Posterior]
    true_params: Mapping[str, np.ndarray]
    fits: tuple[FitRecord, ...]
    draws: Mapping[str, xr.DataTree]
    node: xr.DataTree

    @property
    def voter_names(self) -> tuple[str, ...]:
        """What the voters are called."""
        return tuple(map(str, self.votes.voter_names))

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(map(str, self.votes.class_names))

    @property
    def is_simulated(self) -> bool:
        """Whether the process behind the votes is known."""
        return self.model != "None"

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.labels)

    @property
    def num_voters(self) -> int:
        """Number of voters."""
        return self.votes.num_voters

    @property
    def num_known(self) -> int:
        """Number of items whose label is known."""
        return int(np.sum(self.labels >= 0))

    @property
    def is_scored_by_gold(self) -> bool:
        """Whether the labels are gold labels, each predicted by a fit that has not seen it."""
        return bool(self.held_out)

    @property
    def labels_text(self) -> str:
        """The labels that methods are scored on, as a sentence names them."""
        if not self.is_scored_by_gold:
            return f"{self.num_known:,} labelled items"
        labels = "gold label" if self.num_known == 1 else "gold labels, each"
        return f"your {self.num_known:,} {labels} predicted by a fit that has not seen it"

    @property
    def scored(self) -> dict[str, Posterior]:
        """The posteriors that are scored: those of the fits, but for gold labels by fits that have not seen them."""
        found = dict(self.posteriors)
        for name, probs in self.held_out.items():
            found[name] = np.array(found[name])
            found[name][self.labels >= 0] = probs
        return found

    @property
    def scored_estimates(self) -> dict[str, Posterior]:
        """The same without the exact posterior."""
        return {name: probs for name, probs in self.scored.items() if name != EXACT}

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


def views(tree: xr.DataTree, short: Mapping[str, str] | None = None) -> list[View]:
    """Each data set of a comparison.

    Args:
        tree: The comparison.
        short: Short names of methods by their full ones; by default methods have the names of the tree.
    """
    return [_view(name, part, short or {}) for name, part in data_trees(tree).items()]


def _view(name: str, part: xr.DataTree, short: Mapping[str, str]) -> View:
    truth = part["truth"].to_dataset()
    label_prob = part["estimates"].to_dataset()["label_prob"]
    exact = {EXACT: truth["bayes_prob"].to_numpy()} if "bayes_prob" in truth else {}
    params = truth.drop_vars(["true_label", "gold", "bayes_prob"], errors="ignore").data_vars
    fits = part.children["fits"].children.values()
    unseen = _first_posteriors(part[HELD_OUT].to_dataset()["label_prob"]) if HELD_OUT in part.children else {}
    return View(
        name,
        truth.attrs["model"],
        truth["gold"].to_numpy() if unseen else _scored_labels(truth),
        _votes(part["observed_data"].to_dataset()),
        exact | {short.get(method, method): probs for method, probs in _first_posteriors(label_prob).items()},
        {short.get(method, method): probs for method, probs in unseen.items()},
        {str(key): value.to_numpy() for key, value in params.items()},
        tuple(record for node in fits for record in _records(node, short)),
        {_called(node, short): draws for node in fits if (draws := _draws(node)) is not None},
        part,
    )


def _called(node: xr.DataTree, short: Mapping[str, str]) -> str:
    name = str(node.attrs["estimator"])
    return short.get(name, name)


def _votes(observed: xr.Dataset) -> Votes:
    """The votes as they were given."""
    items, voters, classes = (observed[axis].to_numpy() for axis in ("item", "voter", "vote_class"))
    if "entry" in observed.dims:
        storage: Any = Triplets(*(observed[column].to_numpy() for column in ("item_of", "voter_of", "vote")))
    else:
        storage = observed["vote"].to_numpy()
    return Votes(storage, len(items), len(voters), len(classes), items, voters, classes)


def _scored_labels(truth: xr.Dataset) -> Labels:
    """The true labels but for those that methods were told."""
    labels = truth["true_label"]
    return (labels.where(truth["gold"] < 0, -1) if "gold" in truth else labels).to_numpy()


def _first_posteriors(label_prob: xr.DataArray) -> dict[str, Posterior]:
    values = label_prob.transpose("estimator", "repetition", "item", "label").to_numpy()
    whole = ~np.isnan(values).any(axis=(2, 3))
    names = map(str, label_prob["estimator"].to_numpy())
    return {name: values[i, whole[i].argmax()] for i, name in enumerate(names) if whole[i].any()}


def _records(node: xr.DataTree, short: Mapping[str, str]) -> Iterator[FitRecord]:
    """The fits of one estimator, by repetition."""
    for found in sorted(node.children.values(), key=lambda found: int(found.attrs["repetition"])):
        about = found.attrs
        params, voters = (
            {str(key): value.to_numpy() for key, value in found[group].data_vars.items()}
            for group in ("params", "voters")
        )
        diagnostics, skill = json.loads(about["diagnostics"]), skill_of(voters) if voters else None
        repetition, settings = int(about["repetition"]), about["settings"]
        yield FitRecord(_called(node, short), repetition, settings, diagnostics, about["error"], params, skill)


def _draws(node: xr.DataTree) -> xr.DataTree | None:
    """The first repetition of an estimator that has draws, as ArviZ takes it."""
    return next((found for found in node.children.values() if "posterior" in found.children), None)
