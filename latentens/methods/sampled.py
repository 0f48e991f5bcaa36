"""Methods whose estimate is a set of posterior draws, and fits made of draws from elsewhere."""

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from latentens.inference.density import flat_draws
from latentens.inference.draws import judge_chains, label_draws, label_posteriors
from latentens.methods.base import Arrays, Diagnostics, Estimate, Fit, GoldCodes, Method, Posterior, Predictor, finished
from latentens.programs.model import GenerativeModel
from latentens.programs.rows import Rows
from latentens.programs.tables import emits_other_votes
from latentens.runtime.numerics import double_precision
from latentens.votes import Votes
from latentens.votes.matching import Gold, gold_codes

PREDICTION_DRAWS = 200
"""Number of draws, about, by which new items are predicted."""


@dataclass(frozen=True)
class DrawsPredictor(Predictor):
    """Predicts labels by the draws of a model's parameters, whatever made them.

    Attributes:
        model: The generative model.
    """

    model: GenerativeModel

    def posterior(self, estimate: Estimate, votes: Votes) -> Posterior:
        """The posterior of the labels averaged over some of the draws."""
        assert estimate.draws is not None, "a sampled fit has draws"
        flat, _ = flat_draws(self.model, estimate.draws)
        thin = max(1, len(estimate.state["label_orders"]) // PREDICTION_DRAWS)
        orders = estimate.state["label_orders"][::thin]
        rows = Rows.of(self.model, votes)
        drawn = label_posteriors(self.model, {name: value[::thin] for name, value in flat.items()}, rows)
        return np.mean([probs[order] for probs, order in zip(drawn, orders, strict=True)], axis=0).T[rows.inverse]

    def has_fixed_order(self, estimate: Estimate) -> bool:
        """Labels are oriented draw by draw."""
        del estimate
        return True

    @property
    def takes_other_votes(self) -> bool:
        """True if votes of the model can be for categories that are not labels."""
        return emits_other_votes(self.model)

    def fitted_model(self, estimate: Estimate) -> GenerativeModel:
        """The model that was fitted."""
        del estimate
        return self.model


@dataclass(frozen=True)
class SampledMethod(DrawsPredictor, Method):
    """A method that draws from the posterior of a model's parameters; `draw` is all that it has to say.

    Attributes:
        model: The generative model.
    """

    @abstractmethod
    def draw(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> tuple[Arrays, Diagnostics]:
        """Draw from the posterior: the extension point. It runs in double precision.

        Args:
            votes: The votes.
            key: Random key.
            gold: The code of each item's true label, −1 where it is unknown; None if none is known.

        Returns:
            Draws of each parameter with leading axes (draw) or (chain, draw), their labels in any order, and how the
            sampling went. Where that does not say whether it converged, several chains are judged by their R̂, and so
            is a single one with `sample_stats`.
        """

    def estimate(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        """The draws with their labels in order, and the labels' posterior averaged over them."""
        draws, diagnostics = self.draw(votes, key, gold)
        return summarise(self.model, draws, votes, gold, diagnostics)


def summarise(
    model: GenerativeModel,
    draws: Mapping[str, Any],
    votes: Votes,
    gold: GoldCodes | None,
    diagnostics: Diagnostics,
) -> Estimate:
    """The estimate that draws of a model's parameters amount to; chains, if there are several, are compared."""
    flat, chains = flat_draws(model, draws)
    found = label_draws(model, flat, votes, gold)
    shaped = {name: value.reshape(*chains, *value.shape[1:]) for name, value in found.draws.items()}
    means = {name: value.mean(axis=0) for name, value in found.draws.items()}
    diagnostics = diagnostics.updated(label_probs="exact posterior averaged over the draws")
    statistics = diagnostics.get("sample_stats")
    if diagnostics.converged is None and (chains[0] > 1 or statistics is not None):
        invariant = {"log density": statistics["lp"]} if statistics else {}
        invariant["labels of common rows"] = found.watched.reshape(*chains, -1)
        judged, words = judge_chains(shaped, invariant)
        words = [*diagnostics.warnings, *words]
        diagnostics = diagnostics.updated(**judged, converged=not words, warnings=words)
    return Estimate(means, diagnostics, shaped, {"label_orders": found.label_orders}, found.label_probs)


@double_precision
def fit_from_draws(model: GenerativeModel, votes: Votes, draws: Mapping[str, Any], gold: Gold | None = None) -> Fit:
    """A fit from posterior draws that another sampler made, for example by `log_density`.

    The labels of each draw are put in order and the exact posterior of the labels is averaged over the draws, as for
    `Nuts`. To run a sampler of your own in a comparison, write a `SampledMethod`.

    Args:
        model: The generative model.
        votes: The votes.
        draws: Draws of each parameter by name, with leading axes (draw) or (chain, draw).
        gold: True labels of some items, as in `Method.fit`, if the draws were made with them.

    Examples:
        >>> import jax
        >>> import latentens as le
        >>> votes = le.datasets.load("caries").votes
        >>> model = le.models.OneCoin(5)
        >>> fit = le.methods.MaximumLikelihood(model).fit(votes, key=jax.random.key(0))
        >>> draws = {name: value[None] for name, value in fit.params.items()}  # one draw; yours come from a sampler
        >>> le.fit_from_draws(model, votes, draws).label_probs.shape
        (3869, 2)
    """
    start = time.perf_counter()
    codes = None if gold is None else gold_codes(votes, gold)
    return finished(DrawsPredictor(model), summarise(model, draws, votes, codes, Diagnostics()), votes, start, codes)
