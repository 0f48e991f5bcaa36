"""Calibrated confidence without labels: a posterior is tempered until it predicts hidden votes best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import numpy as np

from latentens.errors import LatentensError, VotesError
from latentens.methods.base import Estimate, GoldCodes, GoldMethod, Method, Posterior, fit_known
from latentens.methods.tempering.held_out import HiddenLabels, hold_out
from latentens.methods.tempering.temperature import Score, Temperature, best_temperature, temper
from latentens.methods.tempering.vote_score import VoteScore
from latentens.runtime.numerics import safe_log
from latentens.runtime.settings import at_least
from latentens.votes import Votes


@dataclass(frozen=True)
class Tempered(GoldMethod):
    """A method whose posterior is raised to the power τ at which hidden votes are predicted best.

    Methods that take voters to be independent are too sure of their labels where voters err together. To see this, no
    label is needed. The method is fitted without some of the items; each vote x on these is hidden and predicted from
    the votes of the other voters by Σ_y p_τ(y | others) θ_j(x | y), with p_τ ∝ p^τ and with those confusion matrices θ
    that predict best (see `VoteScore`). The τ at which hidden votes have the highest mean log-probability is applied to
    the fit to all items. The most probable labels stay as they are.

    What τ estimates: by Gibbs' inequality no prediction has a higher expected log-probability than p(x_j | others)
    itself. If voters are independent given the label and p(y | others) is exact, that is the prediction at τ = 1 with
    the true θ, so τ = 1 is the maximum in expectation. In general τ minimises the Kullback–Leibler divergence of such
    predictions from p(x_j | others). Where votes repeat each other they say less about the next vote than they would if
    they were independent, and τ is below 1; it is also where parameters rest on few votes. The label gets the
    confidence it deserves in so far as it depends on the votes as one more vote would: because of what moves all
    voters alike, such as how hard an item is. Votes cannot tell copies from confirmations: where the method has taken
    the opinion of a group of copyists for the label, they predict each other well, and it remains too sure.

    If true labels of some items are given, they choose τ, in the same way: each is predicted by a fit without its item.

    Diagnostics: `temperature`, its `temperature_error` (standard error), `temperatures` and `temperature_curve` (the
    mean score of an item at each); with true labels also `temperature_by_votes`, what would have been chosen without.

    Attributes:
        method: The method to temper.
        folds: Number of parts of the items. The method is fitted once more without each part: two take about as long
            as the fit to all items; with more, τ is closer to what suits that fit where voters have few votes.
    """

    method: Method
    folds: Annotated[int, at_least(2)] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.method, Tempered):
            raise LatentensError(f"{self.method} is tempered already")

    def _fit(self, votes: Votes, key: jax.Array, gold: GoldCodes | None = None) -> Estimate:
        if votes.num_items < self.folds:
            raise VotesError(f"{self.folds} folds need as many items, but there are {votes.num_items}")
        held = hold_out(self.method, votes, self.folds, jax.random.fold_in(key, 0), gold)
        found = by_votes = best_temperature(_together([VoteScore(part) for part in held.votes]))
        if held.labels:
            found = best_temperature(_together([_label_score(part) for part in held.labels]))
        fitted = fit_known(self.method, votes, key, gold)
        return Estimate(
            {**fitted.params, "temperature": np.array(found.value)},
            {**fitted.diagnostics, **_diagnostics(found, by_votes)},
            fitted.draws,
            fitted.state,
            temper(fitted.label_probs, found.value),
        )

    def _predict(self, estimate: Estimate, votes: Votes) -> Posterior:
        return temper(self.method._predict(estimate, votes), float(estimate.params["temperature"]))


def _together(scores: Sequence[Score]) -> Score:
    return lambda temperature: np.concatenate([score(temperature) for score in scores])


def _label_score(hidden: HiddenLabels) -> Score:
    """The log-probability of true labels as a function of the temperature."""
    items = np.arange(len(hidden.label))
    return lambda t: safe_log(temper(hidden.label_probs, t)[items, hidden.label])


def _diagnostics(found: Temperature, by_votes: Temperature) -> dict[str, Any]:
    by_labels = {} if found is by_votes else {"temperature_by_votes": by_votes.value}
    return {
        "label_probs": f"tempered posterior, chosen by {'true labels' if by_labels else 'hidden votes'}",
        "temperature": found.value,
        "temperature_error": found.standard_error,
        "temperatures": found.tried,
        "temperature_curve": found.curve,
        **by_labels,
    }
